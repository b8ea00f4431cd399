"""What the exact split of gangs over domains takes, counted."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest

from fixtures import GPU, job
from fixtures import cluster as world
from railwright_scheduler import cluster
from railwright_scheduler.arrays import Ints
from railwright_scheduler.budget import WorkBudget
from railwright_scheduler.model.decisions import Decisions
from railwright_scheduler.model.snapshot import Node, Snapshot, TierLimit, TopologyConstraints
from railwright_scheduler.placement import split
from railwright_scheduler.placement.choose import choose
from railwright_scheduler.placement.constraints import ANYWHERE, caps
from railwright_scheduler.policy import scheduling_queue
from railwright_scheduler.policy.decide import decide
from railwright_topology.miscabling import Rails
from railwright_topology.relative_speed import RelativeSpeed


class MergeCounter:
    """Counts the sums of two entries in products of tables."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._merge = split._merge
        monkeypatch.setattr(split, "_merge", self._counted)

    def _counted(
        self, prices: split._Prices, ahead: Ints, part: Ints, *, count: int
    ) -> tuple[Ints, Ints]:
        lengths = ahead.shape[-1], part.shape[-1]
        self.count += min(sum(lengths) - 1, count + 1) * min(lengths)
        return self._merge(prices, ahead, part, count=count)


def nodes(
    number: int, *sizes: int, unlabelled: int = 0, rails: int = 1, used: int = 0, slow: bool = False
) -> list[Node]:
    """Nodes in domains of these sizes, each ``unlabelled``-th without any label; a half is slow."""
    rng = Random(7)
    order = tuple(range(8))
    return [
        Node(
            f"n{i:05}",
            tuple("" if unlabelled and i % unlabelled == 0 else f"{i // size}" for size in sizes),
            {GPU: 8, "pods": 110},
            {GPU: used},
            rails=Rails((*order[(run_cycle := rng.randrange(rails)) :], *order[:run_cycle])),
            relative_speed=RelativeSpeed(rng.random() / 2 + 0.5, 1.0)
            if slow and rng.random() < 0.5
            else RelativeSpeed(),
        )
        for i in range(number)
    ]


def large_gangs() -> Snapshot:
    levels = ("hall", "spine", "block", "rack")
    gangs = tuple(job(name=f"j{i}", replicas=60 - i) for i in range(10))
    return world(*nodes(700, 256, 64, 16, 4, unlabelled=3), levels=levels, jobs=gangs)


def waiting_gangs() -> Snapshot:
    constraints = TopologyConstraints(segments=(TierLimit("rack", 3),))
    gangs = tuple(
        job(name=f"j{i}", replicas=300 - 3 * i, constraints=constraints) for i in range(30)
    )
    return world(*nodes(700, 48, 12, 3, used=8), levels=("spine", "block", "rack"), jobs=gangs)


def aligned_gangs() -> Snapshot:
    gangs = tuple(
        job(name=f"j{i}", replicas=60 - i, constraints=TopologyConstraints(aligned=True))
        for i in range(8)
    )
    tree = nodes(1000, 48, 12, 3, rails=4, slow=True)
    return world(*tree, levels=("spine", "block", "rack"), jobs=gangs)


def test_costs_of_eight_levels_are_int64() -> None:
    """Half of the nodes are a domain of their own on each level."""
    tree = cluster.of(
        world(
            *nodes(600, 300, 150, 64, 32, 16, 8, 4, 2, unlabelled=2),
            levels=("a", "b", "c", "d", "e", "f", "g", "h"),
            jobs=(),
        )
    ).domains
    eligible = np.ones(600, dtype=np.bool_)
    held = caps(tree, eligible, ANYWHERE)
    supply = split.Supply(tree, held, held, (1,) * len(held))
    table = split._table(supply, split._prices(supply, 400), 0, 0, count=400)
    assert table.cost.dtype == np.int64


@pytest.mark.parametrize("gangs", [large_gangs, waiting_gangs, aligned_gangs])
def test_split_work_of_a_decision_is_bounded(
    gangs: Callable[[], Snapshot], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many pods start and reserve nodes as without the bound."""
    snapshot, sums = gangs(), MergeCounter(monkeypatch)
    exact = decide(snapshot)
    limit = sums.count // 4
    monkeypatch.setattr(scheduling_queue, "PLACEMENT_WORK", limit, raising=False)
    sums.count = 0
    bounded = decide(snapshot)
    assert sums.count <= limit
    assert pods(bounded) == pods(exact) != {}


def test_gang_over_the_bound_takes_the_largest_domains() -> None:
    levels = ("block", "rack")
    tree = cluster.of(world(*nodes(20, 10, 4), levels=levels, jobs=())).domains
    eligible, capacity = np.ones(20, dtype=np.bool_), np.zeros(20, dtype=np.int64)
    work = WorkBudget(0)
    chosen = choose(tree, eligible, capacity, count=13, work=work)
    assert work.is_cut
    # Racks of 4, 4 and 2 in the first block, of 2, 4 and 4 in the second.
    assert chosen.tolist() == [*range(10), 12, 13, 14]


def pods(decisions: Decisions) -> dict[str, int]:
    started = {admit.job_uid: len(admit.nodes) for admit in decisions.admitted}
    return started | {uid: len(reserved) for uid, reserved in decisions.reservations.items()}
