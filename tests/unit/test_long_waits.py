"""A gang that waits gets its nodes in the end, however many small jobs pass by."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from fixtures import GPU, cluster, job, node
from railwright_scheduler.model.snapshot import Job, TierLimit, TopologyConstraints
from railwright_scheduler.policy.decide import decide
from railwright_topology.miscabling import Rails

BUSY = {GPU: 8, "pods": 1}
RACKS = "xyzw"
OF_A_RACK = 8
LONGEST = 40
"""Cycles of a small job. Four new ones arrive in each."""


def cycles_until_it_starts(gang: Job, seed: int, *, most: int) -> int | None:
    """All nodes are busy at first; each job ends after its time."""
    rng = Random(seed)
    names = [f"{rack}{number}" for rack in RACKS for number in range(OF_A_RACK)]
    ends = {name: 1 + rng.randrange(LONGEST) for name in names}
    reserved: dict[str, tuple[str, ...]] = {}
    queue: list[Job] = []
    for cycle in range(1, most):
        ends = {name: end for name, end in ends.items() if end > cycle}
        new = (job(f"s{cycle:04d}{number}", submitted_s=cycle) for number in range(4))
        queue = [*queue, *new][:30]
        nodes = [node(name, name[0], used=BUSY if name in ends else {}) for name in names]
        state = cluster(*nodes, jobs=(gang, *queue), levels=("rack",))
        decision = decide(replace(state, reserved=reserved))
        reserved = dict(decision.reservations)
        for started in decision.admitted:
            if started.job_uid == gang.uid:
                return cycle
            queue = [each for each in queue if each.uid != started.job_uid]
            ends |= {name: cycle + rng.randint(1, LONGEST) for name in started.nodes}
    return None


@pytest.mark.parametrize(
    ("replicas", "constraints"),
    [
        (24, TopologyConstraints()),
        (24, TopologyConstraints(segments=(TierLimit("rack", 2),))),
        (24, TopologyConstraints(spreads=(TierLimit("rack", 7),))),
        (26, TopologyConstraints(spreads=(TierLimit("rack", OF_A_RACK),))),
    ],
    ids=["anywhere", "segments", "spread", "spread of a rack"],
)
def test_free_nodes_stay_reserved_until_the_gang_starts(
    replicas: int, constraints: TopologyConstraints
) -> None:
    """It starts at the latest when each job that ran at first is over: racks of which it has the
    most free nodes are those that it needs whole."""
    gang = job("gang", replicas=replicas, priority=100, constraints=constraints)
    for seed in range(2):
        started = cycles_until_it_starts(gang, seed, most=3 * LONGEST)
        assert started is not None
        assert started <= LONGEST + 1


def test_rail_order_with_capacity_counts_before_a_larger_one() -> None:
    """Four orders have more nodes, in no rack two of them."""
    spread = [
        node(f"n{order}{rack}", f"r{order}{rack}", rails=Rails((order, order + 1)))
        for order in range(4)
        for rack in range(3)
    ]
    together = [node(name, "r9", rails=Rails((9, 10))) for name in ("t0", "t1")]
    constraints = TopologyConstraints(required="rack", aligned=True)
    state = cluster(
        *spread, *together, jobs=(job("a", replicas=2, constraints=constraints),), levels=("rack",)
    )
    (started,) = decide(state).admitted
    assert started.nodes == ("t0", "t1")
