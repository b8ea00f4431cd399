"""What a cluster is predicted to reach, beside what was published of one like it.

The cluster is examples/reference-cluster: 2,000 nodes of 8 A100 and 8 adapters of InfiniBand HDR,
in three layers of switches. Nothing is fitted. Progress goes to stderr, one JSON object to stdout.
"""

from __future__ import annotations

import itertools
import json
import random
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from bench import small_steps
from railwright_api import workload as api
from railwright_cli import yaml_files
from railwright_cli.explain import Case
from railwright_conversion import workloads
from railwright_scheduler import cluster
from railwright_scheduler.cost import collectives
from railwright_scheduler.cost.collectives import Group
from railwright_scheduler.cost.hardware import DGX_A100, INFINIBAND_HDR, Machine, hops
from railwright_scheduler.model.snapshot import Snapshot, Unavailable
from railwright_scheduler.policy.decide import decide
from railwright_topology import fabric
from railwright_topology.fabric import Fabric
from railwright_topology.links import Links
from railwright_topology.sources import plan

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TOKENS, DAY_S = 300e9, 86_400
MIB = 1 << 20
SIZE = 128 * MIB
"""No size was published: the largest of the examples in nccl-tests' README of 2021."""
SIZES = (16 * MIB, SIZE, 256 * MIB, 1024 * MIB, 8192 * MIB)
BAR = 0.15
OVERSUBSCRIBED = 4.0
BY_CHANCE = range(5)
REPLICAS, FREE_TORS = 64, 7

PUBLISHED = MappingProxyType(
    {
        "intra_node_algbw": 134.0,
        "allreduce_96_algbw": 78.0,
        "p2p_latency_us": 1.4,
        "pxn_gain_64_nodes": 1.7,
        "sharp_gain": 2.0,
        "scaling_efficiency_1024": 0.9,
        "days_175b_300b_tokens_1024": 34.0,
        "topology_gain_end_to_end": 2.1,
    }
)

STATED = MappingProxyType(
    {
        "message_bytes": SIZE,
        "algbw": "GB/s: bytes of a rank's buffer over the time; busbw is 2 (n - 1) / n of it",
        "allreduce_96": "all 8 ranks of each node, on rings and trees; SHARP is in sharp_gain",
        "p2p": "between the farthest two on a rail: two adapters and five switches, no cables",
        "gains": "times as fast as without; sharp_gain on 96 nodes",
        "scaling": "from 64 ranks to 1,024, as much to do for each; published: 0.9 or more",
        "days": "examples/workloads/gpt3-175b.yaml; published: Narayanan et al., 2021",
        "topology_gain": (
            "a step with nodes and ranks by chance, mean of five, over ours: small steps of Llama "
            "3 70B on 128 nodes while 7 ToRs are free, which let out a quarter of what their nodes "
            "send"
        ),
    }
)

EXPLAINED = MappingProxyType(
    {
        "pxn_gain_64_nodes": (
            "The gain is in the number of messages, so it hangs on their size, which was not "
            "published: by_bytes has it. It is 1.7 at 190 MiB. Without PXN the messages of a rank "
            "are taken to start one after the other."
        ),
        "sharp_gain": (
            "What was published is that the volume halves, and it does (sharp_volume). The time "
            "does not: NVLink inside the nodes, whose switches add nothing up on A100, then takes "
            "longer than the network."
        ),
        "topology_gain_end_to_end": (
            "Neither the job nor the network was published. The gain hangs on how much of a step "
            "nodes send, and on how scarce uplinks are; where all may leave a ToR at once, as in "
            "this cluster, it is topology_gain_without_oversubscription. On real links it is "
            "measured by bench-remap."
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Machines:
    """A node of it on the network, with SHARP and without."""

    plain: Machine
    sharp: Machine


def main() -> None:
    site = _site()
    tiers = len(site.levels)
    _log(f"{len(site.places):,} nodes in {tiers} tiers")
    machines = Machines(
        DGX_A100.behind(INFINIBAND_HDR, tiers, sharp=False),
        DGX_A100.behind(INFINIBAND_HDR, tiers, sharp=True),
    )
    figures = {
        **_by_size(SIZE, machines),
        "p2p_latency_us": INFINIBAND_HDR.latency_s(hops(tiers)) * 1e6,
        **_training(machines.plain),
        "topology_gain_end_to_end": _gain(site, OVERSUBSCRIBED),
    }
    beside = {
        "intra_node_busbw": figures["intra_node_algbw"] * 2 * 7 / 8,
        "allreduce_96_busbw": figures["allreduce_96_algbw"] * 2 * 767 / 768,
        "p2p_mean_latency_us": _mean_latency_s(site) * 1e6,
        "sharp_volume": 2 * 767 / 768,
        "topology_gain_without_oversubscription": _gain(site, 1.0),
    }
    answer = {
        **_rounded({name: figures[name] for name in PUBLISHED}),
        **_rounded(beside),
        "published": dict(PUBLISHED),
        "errors": _errors(figures),
        "explained": dict(EXPLAINED),
        "stated": dict(STATED),
        "by_bytes": {size: _rounded(_by_size(size, machines)) for size in SIZES},
    }
    print(json.dumps(answer))


def _site() -> Fabric:
    declared = plan.parse((EXAMPLES / "reference-cluster/plan.yaml").read_text(encoding="utf-8"))
    return fabric.of(declared.nodes, [declared])


def _by_size(size: int, machines: Machines) -> dict[str, float]:
    """What hangs on how large a message is."""
    nodes_96 = Group(machines.plain, 96, 8)
    reduced_s = collectives.all_reduce_s(size, nodes_96)
    nodes_64 = Group(machines.plain, 64, 8)
    straight = Group(replace(machines.plain, algorithms=()), 64, 8)
    return {
        "intra_node_algbw": size / collectives.all_reduce_s(size, replace(nodes_96, nodes=1)) / 1e9,
        "allreduce_96_algbw": size / reduced_s / 1e9,
        "pxn_gain_64_nodes": collectives.all_to_all_s(size, straight)
        / collectives.all_to_all_s(size, nodes_64),
        "sharp_gain": reduced_s / collectives.all_reduce_s(size, Group(machines.sharp, 96, 8)),
    }


def _mean_latency_s(site: Fabric) -> float:
    """Over all pairs of nodes, on a rail."""
    pairs = [
        sum(count * (count - 1) for count in site.sizes(site.places, level).values())
        for level in range(len(site.levels))
    ]
    meeting = [upper - lower for upper, lower in itertools.pairwise([*pairs, 0])]
    latencies = [INFINIBAND_HDR.latency_s(hops(len(pairs) - level)) for level in range(len(pairs))]
    return sum(map(lambda many, each: many * each, meeting, latencies)) / pairs[0]


RANKS = 1_024
"""Of the example."""


def _training(machine: Machine) -> dict[str, float]:
    stored = yaml_files.read(EXAMPLES / "workloads/gpt3-175b.yaml", api.Workload)
    case = Case(workloads.stated(stored, RANKS), (machine,))
    few, many = case.on(8), case.on(128)
    return {
        "scaling_efficiency_1024": few.step.total / many.step.total,
        "days_175b_300b_tokens_1024": TOKENS / many.tokens * many.step.total / DAY_S,
    }


def _gain(site: Fabric, ratio: float) -> float:
    """How many times longer a step takes on nodes by chance, in an order by chance, than on ours,
    if only so many ToRs are free; ``ratio`` adapters share an uplink's worth."""
    job = small_steps.job(REPLICAS)
    tors = sorted(set(site.places.values()))[:FREE_TORS]
    nodes = {name: small_steps.node(name, place) for name, place in site.places.items()}
    names = [name for name, place in site.places.items() if place in tors]
    cordoned = Unavailable.CORDONED
    world = Snapshot(
        site.levels,
        tuple(
            node if name in names else replace(node, unavailable=cordoned)
            for name, node in nodes.items()
        ),
        ("default",),
        (job,),
        (*[Links()] * (len(site.levels) - 1), Links(ratio)),
    )
    (ours,) = decide(world).admitted
    hall = cluster.of(world)
    by_chance = [
        small_steps.predicted_s(job, hall, random.Random(seed).sample(names, job.num_pods))
        for seed in BY_CHANCE
    ]
    return statistics.mean(by_chance) / small_steps.predicted_s(job, hall, ours.nodes)


def _errors(figures: Mapping[str, float]) -> dict[str, float]:
    """Relative to what was published; those over the bar have to be explained."""
    errors = {name: figures[name] / published - 1 for name, published in PUBLISHED.items()}
    for name, error in errors.items():
        _log(f"{name}: {figures[name]:.4g}, published {PUBLISHED[name]:g} ({error:+.1%})")
    over = {name for name, error in errors.items() if abs(error) > BAR}
    assert over <= EXPLAINED.keys(), f"more than {BAR:.0%} off: {sorted(over)}"
    return _rounded(errors)


def _rounded(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: round(figure, 4) for name, figure in figures.items()}


def _log(text: str) -> None:
    print(text, file=sys.stderr)


if __name__ == "__main__":
    main()
