"""Orders of nodes in which slow ones are where a step waits for them the least.

Problem: a stage of a pipeline is as slow as the slowest of its nodes, and all others wait for the
slowest stage. So slow nodes cost least where there is less to do, and where slow ones are already.

Idea: node ranks that do the same stages are one seat. Those that serve parameters compute nothing;
stages with fewer layers have time left, and all but the last, which tells the next tokens. Slow
nodes are exchanged into one seat after the other, beginning with each of them in turn; each changes
places with the nearest node, so that what ranks send each other goes as far as before. Of few nodes
all that tells arrangements apart is tried instead, which is exact.

The predicted step decides between them. Their number is bounded, and the same for the same input.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.budget import CALL, ELEMENT, WorkBudget
from railwright_scheduler.cost.heterogeneous import Gang

ARRANGEMENTS = 100
"""All of so many are tried: three kinds of machines on six nodes of one rack have 90."""

SEATS = 16
"""Begun with, those with the least to do."""

DEGREES = 4
"""Of how slow nodes are: the slowest alone, with some others, with all that are not the fastest."""


def arrangements(order: Ints, alike: Ints) -> Iterator[Ints]:
    """All orders that differ in more than which of the nodes that are ``alike`` is where; none if
    there are too many. Of nodes that are alike those stay that can."""
    kinds = alike[order].tolist()
    counts = Counter(kinds)
    if len(kinds) > ARRANGEMENTS:
        return
    ways = math.factorial(len(kinds)) // math.prod(map(math.factorial, counts.values()))
    if ways <= ARRANGEMENTS:
        for wanted in _ways(counts, len(kinds)):
            yield _filled(order, alike, np.array(wanted))


def seats(gang: Gang, nodes: int) -> list[Ints]:
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


def orders(
    order: Ints,
    seats: Sequence[Ints],
    slow: Ints,
    domains: Ints,
    *,
    within: bool,
    work: WorkBudget,
) -> Iterator[Ints]:
    """With the slowest nodes, and those next to them, in one seat after the other. ``slow`` says
    how slow each node is, ``domains`` that of each at each tier, the nearest first; ``within``
    lets nodes change places within the nearest alone."""
    limits = np.unique(slow)[:0:-1]
    spread = np.unique(np.linspace(0, len(limits) - 1, DEGREES).round().astype(np.int64))
    for limit in limits[spread[: len(limits)]].tolist():
        is_slow = slow[order] >= limit
        there = [int(is_slow[ranks].sum()) for ranks in seats]
        every = range(len(seats))
        fullest = sorted(every, key=lambda seat: -there[seat])
        begun = ([first, *(seat for seat in every if seat != first)] for first in every[:SEATS])
        for line in (fullest, *begun):
            work.spend(CALL * (1 + len(seats)) + 2 * ELEMENT * len(order))
            wanted = _wanted(is_slow, [seats[seat] for seat in line])
            yield _exchanged(order, is_slow, wanted, domains, within=within, work=work)


def exchanges(
    order: Ints,
    seats: Sequence[Ints],
    slow: Ints,
    domains: Ints,
    *,
    within: bool,
    work: WorkBudget,
) -> Iterator[Ints]:
    """With one of the slowest nodes in another seat, where the nearest faster one was."""
    is_slow = slow[order] > slow.min()
    for rank in np.argsort(-slow[order], kind="stable")[: int(is_slow.sum())].tolist():
        alone = np.arange(len(order)) == rank
        for ranks in seats:
            work.spend(2 * CALL + ELEMENT * len(order))
            if rank not in ranks:
                faster = ranks[slow[order[ranks]] < slow[order[rank]]]
                yield _exchanged(order, alone, faster, domains, within=within, work=work)


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


def _filled(order: Ints, alike: Ints, wanted: Ints) -> Ints:
    """Of each kind a node where it is ``wanted``."""
    found = np.where(alike[order] == wanted, order, -1)
    for kind in np.unique(wanted).tolist():
        empty = np.flatnonzero((found < 0) & (wanted == kind))
        left = np.setdiff1d(np.flatnonzero(alike == kind), found)
        found[empty] = left[: len(empty)]
    return found


def _wanted(is_slow: Mask, line: Sequence[Ints]) -> Ints:
    """The ranks that slow nodes are to have: all of one seat, then of the next; of the last one
    those that have slow ones already come first."""
    left = int(is_slow.sum())
    found: list[Ints] = []
    for ranks in line:
        first = ranks[np.argsort(~is_slow[ranks], kind="stable")]
        found.append(first[:left])
        left -= len(found[-1])
    return np.concatenate(found)


def _exchanged(
    order: Ints,
    is_slow: Mask,
    wanted: Ints,
    domains: Ints,
    *,
    within: bool,
    work: WorkBudget,
) -> Ints:
    """Each slow node that is elsewhere changes places with the nearest that is where it is
    wanted."""
    found = order.copy()
    free = wanted[~is_slow[wanted]]
    for rank in np.setdiff1d(np.flatnonzero(is_slow), wanted).tolist():
        if not len(free):
            break
        work.spend(4 * CALL + ELEMENT * len(domains) * len(free))
        near = domains[:, order[free]] == domains[:, order[rank], np.newaxis]
        at = int(near.sum(axis=0).argmax())
        if within and not near[:1, at].all():
            continue
        found[rank], found[free[at]] = order[free[at]], order[rank]
        free = np.delete(free, at)
    return found
