"""Whatever the schema admits in a NodeHealth or the Fabric, every job is decided about and mapped.

All jobs are decided from these objects: a value that raises there would stop all of them.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import reporting
from fixtures.attempts import seen, world_of
from fixtures.examples import examples
from fixtures.jobs import job, node
from fixtures.trained_jobs import workload_of
from railwright_api.interconnect import SchedulingTopology
from railwright_api.node_health import RAIL_MAX, NodeHealthSpec
from railwright_conversion import interconnects
from railwright_scheduler.model.snapshot import Node
from railwright_scheduler.model.workload import Parallelism
from railwright_scheduler.plan import plan
from railwright_topology.interconnect import Interconnect
from railwright_watch import node_healths

Fields = dict[str, Any]

NODES, GPUS = 4, 8
DECIMALS = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3})?(e[+-]?[0-9]{1,3})?", fullmatch=True)
RAIL = st.integers(0, 64) | st.just(RAIL_MAX)
MISCABLED = st.fixed_dictionaries({"rail": RAIL, "adapter": st.just("a"), "reason": st.just("b")})
HEALTHS = st.fixed_dictionaries(
    {
        "relativeSpeed": st.fixed_dictionaries({"products": DECIMALS, "memory": DECIMALS}),
        "rails": st.fixed_dictionaries(
            {
                "order": st.lists(RAIL, max_size=GPUS),
                "miscabled": st.lists(MISCABLED, max_size=GPUS),
            }
        ),
    }
)
LEVELS = st.fixed_dictionaries(
    {
        "level": st.just("rack"),
        "oversubscription": DECIMALS,
        "domains": st.lists(
            st.fixed_dictionaries({"name": st.sampled_from(["r0", "r1"]), "uplinkNodes": DECIMALS}),
            max_size=2,
        ),
    }
)


def _node(number: int, interconnect: Interconnect, health: Fields) -> Node:
    NodeHealthSpec.model_validate(health)
    record = node_healths.answered(reporting.raw_object(f"n{number}", spec=health))
    return replace(
        node(f"n{number}", *interconnect.place(f"n{number}")),
        relative_speed=record.relative_speed,
        rails=record.rails,
        machine="DGX H100",
    )


@settings(max_examples=examples(100))
@given(st.lists(HEALTHS, min_size=NODES, max_size=NODES), LEVELS)
def test_every_job_is_decided_about_and_mapped(healths: list[Fields], level: Fields) -> None:
    places = [
        {"domains": ["r0"], "nodes": "n[0-1]"},
        {"domains": ["r1"], "nodes": "n[2-3]"},
    ]
    topology = {"levels": [level], "places": places}
    SchedulingTopology.model_validate(topology)
    interconnect = Interconnect()
    with contextlib.suppress(ValueError):
        interconnect = interconnects.parse(topology)
    mapped = job(
        "mapped",
        priority=1,
        replicas=NODES,
        workload=workload_of(Parallelism(tensor=8, pipeline=2, data=2)),
        ranks_per_pod=GPUS,
    )
    nodes = tuple(_node(at, interconnect, health) for at, health in enumerate(healths))
    state = world_of(seen(), seen(job=mapped), nodes=nodes, levels=interconnect.levels)
    decided = plan(replace(state, links=interconnect.links))
    assert not decided.faults
    assert len(decided.ledger.entries) + len(decided.waits) == 2
