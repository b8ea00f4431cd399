"""A gang that waits gets its nodes in the end, however many small jobs pass by."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random

import pytest

from fixtures import GPU, cluster, job, node
from railwright_scheduler.model.snapshot import Job, TierLimit, TopologyConstraints
from railwright_scheduler.policy.decide import decide
from railwright_topology.miscabling import Rails

BUSY = {GPU: 8, "pods": 1}
BLOCKS = {"x": "b", "y": "b", "z": "c", "w": "c"}
"""The block of each rack."""
OF_A_RACK = 8
LONGEST = 40
"""Cycles of a small job. Four new ones arrive in each."""


def cycles_until_it_starts(gang: Job, seed: int, *, most: int) -> int | None:
    """All nodes are busy at first; each job ends after its time. The free nodes that the gang has
    reserved never become fewer."""
    rng = Random(seed)
    names = [f"{rack}{number}" for rack in BLOCKS for number in range(OF_A_RACK)]
    ends = {name: 1 + rng.randrange(LONGEST) for name in names}
    reserved: dict[str, tuple[str, ...]] = {}
    queue, held = list[Job](), 0
    for cycle in range(1, most):
        ends = {name: end for name, end in ends.items() if end > cycle}
        new = (job(f"s{cycle:04d}{number}", submitted_s=cycle) for number in range(4))
        queue = [*queue, *new][:30]
        nodes = [
            node(name, BLOCKS[name[0]], name[0], used=BUSY if name in ends else {})
            for name in names
        ]
        state = cluster(*nodes, jobs=(gang, *queue), levels=("block", "rack"))
        decision = decide(replace(state, reserved=reserved))
        reserved = dict(decision.reservations)
        free = len({*reserved.get(gang.uid, ())} - {*ends})
        for started in decision.admitted:
            if started.job_uid == gang.uid:
                return cycle
            queue = [each for each in queue if each.uid != started.job_uid]
            ends |= {name: cycle + rng.randint(1, LONGEST) for name in started.nodes}
        assert free >= held
        held = free
    return None


@pytest.mark.parametrize(
    ("replicas", "constraints"),
    [
        (24, TopologyConstraints()),
        (24, TopologyConstraints(segments=(TierLimit("rack", 2),))),
        (24, TopologyConstraints(spreads=(TierLimit("rack", 7),))),
        (26, TopologyConstraints(spreads=(TierLimit("rack", OF_A_RACK),))),
        (24, TopologyConstraints(segments=(TierLimit("block", 4),))),
        (12, TopologyConstraints(spreads=(TierLimit("block", 6),))),
        (16, TopologyConstraints(segments=(TierLimit("rack", 2), TierLimit("block", 4)))),
        (12, TopologyConstraints(required="block", spreads=(TierLimit("rack", 6),))),
        (16, TopologyConstraints("", "", (TierLimit("rack", 2),), (TierLimit("block", 8),))),
    ],
    ids=[
        "anywhere",
        "segments",
        "spread",
        "spread of a rack",
        "segments in blocks",
        "spread over blocks",
        "two sizes of segments",
        "spread in a block",
        "segments spread over blocks",
    ],
)
def test_free_nodes_stay_reserved_until_the_gang_starts(
    replicas: int, constraints: TopologyConstraints
) -> None:
    """It starts at the latest when each job that ran at first is over."""
    gang = job("gang", replicas=replicas, priority=100, constraints=constraints)
    for seed in range(2):
        started = cycles_until_it_starts(gang, seed, most=3 * LONGEST)
        assert started is not None
        assert started <= LONGEST + 1


@pytest.mark.parametrize("free", ["n0", "n1", "n2"])
def test_segment_of_several_racks_reserves_free_nodes(free: str) -> None:
    """Whichever rack of the block has them, and whatever the gang had reserved."""
    names = [f"n{rack}{number}" for rack in range(3) for number in range(2)]
    nodes = [
        node(name, "b", name[:2], used={} if name.startswith(free) else BUSY) for name in names
    ]
    constraints = TopologyConstraints(segments=(TierLimit("block", 4),))
    gang = job("gang", replicas=4, constraints=constraints)
    small = [job(f"s{number}", submitted_s=1) for number in range(6)]
    state = cluster(*nodes, jobs=(gang, *small), levels=("block", "rack"))
    for prior in ((), *itertools.combinations(names, 4)):
        decision = decide(replace(state, reserved={"gang": prior}))
        reserved = {*decision.reservations["gang"]}
        assert reserved > {name for name in names if name.startswith(free)}
        assert decision.admitted == ()
        again = decide(replace(state, reserved=decision.reservations))
        assert again.reservations == decision.reservations


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


def test_rail_order_with_reserved_nodes_stays_while_fuller() -> None:
    """The other order has more free nodes, though fewer of them in one rack."""
    free = ["a0", "a1", "b0", "c0", "d0"]
    nodes = [
        node(
            f"{rack}{number}",
            rack,
            rails=Rails((0, 1) if rack == "a" else (1, 0)),
            used={} if f"{rack}{number}" in free else BUSY,
        )
        for rack in "abcd"
        for number in range(3)
    ]
    constraints = TopologyConstraints(required="rack", aligned=True)
    gang, small = job("gang", replicas=3, constraints=constraints), job("small", submitted_s=1)
    state = cluster(*nodes, jobs=(gang, small), levels=("rack",))
    for prior in ((), ("a0", "a1", "a2"), ("b0", "b1", "b2")):
        decision = decide(replace(state, reserved={"gang": prior}))
        assert decision.reservations["gang"] == ("a0", "a1", "a2")
