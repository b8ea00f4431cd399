"""Straggler placement: orders of nodes in which slow nodes delay a step the least.

Problem: a pipeline stage is as slow as its slowest node, and all others wait for the slowest stage.
So slow nodes cost least in stages with less work, and in stages that have slow nodes already.

Idea: node ranks with the same stages are one group. Stages with fewer layers have slack, as have
all but the last one, which computes the output. Slow nodes are exchanged into one group after the
other, beginning with each of them in turn; each swaps with the nearest node, so that traffic goes
as far as before. With few nodes every distinct arrangement is evaluated instead, which is exact.

The predicted step time decides. The number of candidates is bounded, and deterministic.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.budget import CALL, ELEMENT, WorkBudget
from railwright_scheduler.cost.heterogeneous import GangModel

ARRANGEMENTS = 100
"""All of so many are tried: three kinds of machines on six nodes of one rack have 90."""

GROUPS = 16
"""Begun with, those with the least to do."""

DEGREES = 4
"""Of how slow nodes are: the slowest alone, with some others, with all that are not the fastest."""


def arrangements(order: Ints, classes: Ints) -> Iterator[Ints]:
    """All orders that differ in more than which of the nodes of one of the ``classes`` is where;
    none if there are too many. Of equivalent nodes those stay that can."""
    kinds = classes[order].tolist()
    counts = Counter(kinds)
    if len(kinds) > ARRANGEMENTS:
        return
    ways = math.factorial(len(kinds)) // math.prod(map(math.factorial, counts.values()))
    if ways <= ARRANGEMENTS:
        for target in _ways(counts, len(kinds)):
            yield _filled(order, classes, np.array(target))


class StragglerPlacement:
    """Exchanges of slow nodes. ``slow`` has how slow each node is, ``domains`` that of each at each
    tier, the nearest first; ``within`` lets nodes change places within the nearest alone."""

    def __init__(
        self, gang: GangModel, slow: Ints, domains: Ints, *, within: bool, work: WorkBudget
    ) -> None:
        self._slow, self._domains, self._within, self._work = slow, domains, within, work
        self._groups = _groups(gang, len(slow))

    def orders(self, order: Ints) -> Iterator[Ints]:
        """With the slowest nodes, and those next to them, in one group after the other."""
        limits = np.unique(self._slow)[:0:-1]
        spread = np.unique(np.linspace(0, len(limits) - 1, DEGREES).round().astype(np.int64))
        for limit in limits[spread[: len(limits)]].tolist():
            is_slow = self._slow[order] >= limit
            there = [int(is_slow[ranks].sum()) for ranks in self._groups]
            every = range(len(self._groups))
            fullest = sorted(every, key=lambda group: -there[group])
            begun = ([at, *(each for each in every if each != at)] for at in every[:GROUPS])
            for line in (fullest, *begun):
                self._work.spend(CALL * (1 + len(self._groups)) + 2 * ELEMENT * len(order))
                target = _target(is_slow, [self._groups[group] for group in line])
                yield self._exchanged(order, is_slow, target)

    def exchanges(self, order: Ints) -> Iterator[Ints]:
        """With one of the slowest nodes in another group, where the nearest faster one was."""
        slow = self._slow[order]
        slower = int((slow > slow.min()).sum())
        for rank in np.argsort(-slow, kind="stable")[:slower].tolist():
            alone = np.arange(len(order)) == rank
            for ranks in self._groups:
                self._work.spend(2 * CALL + ELEMENT * len(order))
                if rank not in ranks:
                    yield self._exchanged(order, alone, ranks[slow[ranks] < slow[rank]])

    def _exchanged(self, order: Ints, is_slow: Mask, target: Ints) -> Ints:
        """Each slow node outside the ``target`` ranks changes places with the nearest in them."""
        found = order.copy()
        free = target[~is_slow[target]]
        for rank in np.setdiff1d(np.flatnonzero(is_slow), target).tolist():
            if not len(free):
                break
            self._work.spend(4 * CALL + ELEMENT * len(self._domains) * len(free))
            near = self._domains[:, order[free]] == self._domains[:, order[rank], np.newaxis]
            at = int(near.sum(axis=0).argmax())
            if self._within and not near[:1, at].all():
                continue
            found[rank], found[free[at]] = order[free[at]], order[rank]
            free = np.delete(free, at)
        return found


def _groups(gang: GangModel, nodes: int) -> list[Ints]:
    """Node ranks that do the same, those with the least to do first."""
    does = [frozenset[int]()] * nodes
    for stage, ranks in enumerate(gang.stages):
        for rank in ranks.tolist():
            does[rank] |= {stage}
    last = len(gang.stages) - 1

    def busy(stages: frozenset[int]) -> tuple[bool, float, list[int]]:
        most = max((gang.shares[stage] for stage in stages), default=0.0)
        return last in stages, most, sorted(stages)

    by: dict[frozenset[int], list[int]] = {}
    for rank, its in enumerate(does):
        by.setdefault(its, []).append(rank)
    return [np.array(by[key]) for key in sorted(by, key=busy)]


def _ways(counts: Counter[int], left: int) -> Iterator[tuple[int, ...]]:
    """Every way to put so many of each kind in a row."""
    if not left:
        yield ()
        return
    for kind in sorted(counts):
        if counts[kind]:
            fewer = counts - Counter([kind])
            for rest in _ways(fewer, left - 1):
                yield kind, *rest


def _filled(order: Ints, classes: Ints, target: Ints) -> Ints:
    """Of each class a node where the ``target`` has it."""
    found = np.where(classes[order] == target, order, -1)
    for kind in np.unique(target).tolist():
        empty = np.flatnonzero((found < 0) & (target == kind))
        left = np.setdiff1d(np.flatnonzero(classes == kind), found)
        found[empty] = left[: len(empty)]
    return found


def _target(is_slow: Mask, line: Sequence[Ints]) -> Ints:
    """The ranks that slow nodes are to have: all of one group, then of the next; of the last one
    those that have slow ones already come first."""
    left = int(is_slow.sum())
    found: list[Ints] = []
    for ranks in line:
        first = ranks[np.argsort(~is_slow[ranks], kind="stable")]
        found.append(first[:left])
        left -= len(found[-1])
    return np.concatenate(found)
