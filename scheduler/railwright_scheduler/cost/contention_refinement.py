"""Exchanges the places of nodes so that those uplinks are less busy which a step waits for.

A layout that sends the least far away in all may send much of it through one domain's uplinks, and
the busiest decide. So pairs of nodes are tried, and of runs of nodes along an axis of their grid,
half of them with an end in the domain that costs a step the most; of many pairs the best is
exchanged if that makes the step shorter, and at first if it makes it a little longer (threshold
accepting, Dueck and Scheuer 1990). How long it is counts the busiest uplinks most and all others a
little: exchanges that only lead to shorter steps are seen as well. The work is bounded by number;
the same layout becomes the same one everywhere.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from railwright_scheduler.arrays import Floats, Ints
from railwright_scheduler.budget import CALL, ELEMENT, UNLIMITED, WorkBudget
from railwright_scheduler.communication.traffic_matrix import NeighbourTable, TrafficMatrix
from railwright_scheduler.cost import contention
from railwright_scheduler.cost.contention import Uplinks
from railwright_scheduler.random_source import RandomSource

PAIRS = 64
"""Evaluated at a time."""

STEPS, STEPS_A_NODE = 200, 3
WORK = 3_000_000
"""Uplinks and exchanges looked at, at most: about a tenth of a second's worth."""

SHARP = 8
"""How much more the busiest uplinks count: less, and the busiest are lost sight of; more, and
nothing but them is seen."""

ALONE = 0.5
"""So often nodes are exchanged one by one, not in runs along an axis of their grid."""

UPHILL = 0.02
"""Of what it is, the best of many pairs may make it longer by so much at first, and by nothing in
the end."""


EXCHANGED = 80_000
"""Work for each communicator and tier in an evaluation of pairs, however small they are."""

PLACED = 256
"""Pairs evaluated at a time for ranks that must change places; fewer for a large gang."""

SHORTER = 1e-6
"""The least saving of an exchange, beyond rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class WeightedTraffic:
    """What one communicator's nodes exchange, and seconds of a step for each time that it takes
    longer than its adapters need."""

    matrix: TrafficMatrix
    worth_s: float

    @property
    def in_seconds(self) -> TrafficMatrix:
        """By what it is worth of the busiest adapters' time instead of by bytes."""
        each_s = self.worth_s / contention.adapters(self.matrix)
        return replace(self.matrix, weight=self.matrix.weight * each_s)


def refine(
    sent: Sequence[WeightedTraffic],
    tiers: tuple[Uplinks, ...],
    order: Ints,
    budget: WorkBudget = UNLIMITED,
) -> Ints:
    """The node of each rank, so that a step is shorter or as long."""
    work = _Refinement(sent, tiers, order, budget)
    steps = min(STEPS, STEPS_A_NODE * len(order), WORK // (PAIRS * work.size))
    for at in range(steps):
        if not work.is_contended:
            break
        work.attempt(UPHILL * (1.0 - (at + 1) / steps))
    return work.best


def place_ranks(
    sent: Sequence[WeightedTraffic],
    tiers: tuple[Uplinks, ...],
    order: Ints,
    ranks: Ints,
    budget: WorkBudget = UNLIMITED,
) -> Ints:
    """The node of each rank after these ranks have changed places with others, one by one and each
    about once, as long as a step is shorter for it: all others stay."""
    work, left = _Refinement(sent, tiers, order, budget), WORK
    for _ in range(len(ranks)):
        pairs = min(PLACED, left // work.size)
        if not pairs or not work.is_contended or not work.place(ranks, pairs):
            break
        left -= pairs * work.size
    return work.best


@dataclass(slots=True, eq=False)
class _Uplinked:
    """The load of one tier's uplinks by one communicator, relative to its busiest adapters;
    ``home`` is the domain of each rank, with one entry for no rank behind them."""

    near: NeighbourTable
    worth_s: float
    home: Ints
    share: Floats
    busy: Floats

    def after(self, moved: Ints, new: Ints) -> Floats:
        """The same after each row's ranks have moved to where ``new`` are now, a row each."""
        count, rows = len(self.share), np.arange(len(moved))[:, np.newaxis]
        home = np.broadcast_to(self.home, (len(moved), len(self.home))).copy()
        home[rows, moved] = self.home[new]
        moves = np.zeros(home.shape, dtype=np.bool_)
        moves[rows, moved] = True
        near = self.near.of[moved].reshape(len(moved), -1)
        degree = near.shape[1] // moved.shape[1]
        # Between two that move it is counted from both ends.
        weight = self.near.weight[moved].reshape(near.shape) * np.where(moves[rows, near], 0.5, 1.0)
        change = np.zeros(len(moved) * count)
        for where, sign in ((self.home[np.newaxis], -1.0), (home, 1.0)):
            row = rows if len(where) > 1 else np.zeros_like(rows)
            one, other = np.repeat(where[row, moved], degree, axis=1), where[row, near]
            sizes = (sign * weight * (one != other)).ravel()
            for end in (one, other):
                change += np.bincount((end + rows * count).ravel(), sizes, len(change))
        return self.busy + change.reshape(-1, count) * self.share


class _Refinement:
    def __init__(
        self,
        sent: Sequence[WeightedTraffic],
        tiers: tuple[Uplinks, ...],
        order: Ints,
        budget: WorkBudget,
    ) -> None:
        cells = sum(each.matrix.table + 2 * len(each.matrix.weight) for each in sent)
        budget.spend(CALL * len(sent) * (1 + len(tiers)) + 5 * ELEMENT * cells * (1 + len(tiers)))
        self._budget = budget
        self.best, self._order = order, order.copy()
        self._source = RandomSource()
        self._shape = sent[0].matrix.shape if sent else (len(order),)
        self._lengths = [
            [length for length in range(1, size + 1) if size % length == 0] for size in self._shape
        ]
        self._uplinked = [list(_uplinked(each, tiers, order)) for each in sent]
        self._every = [each for its in self._uplinked for each in its]
        self._cost = float(self._costs([[each.busy for each in its] for its in self._uplinked]))
        self._least = self._cost
        sizes = (
            len(each.share) + len(each.home) + 8 * each.near.of.shape[1] for each in self._every
        )
        self.size = sum(sizes)

    @property
    def is_contended(self) -> bool:
        """Whether any uplinks are busier than adapters are, and a step longer for it."""
        return any(each.worth_s > 0.0 and each.busy.max() > 1.0 for each in self._every)

    def attempt(self, uphill: float) -> None:
        """Evaluate some pairs, and exchange the best of them if the step is not much longer."""
        self._exchange(*self._pairs(), self._cost * (1.0 + uphill))

    def place(self, ranks: Ints, pairs: int) -> bool:
        """Exchange one of these with another, the best of about so many pairs, if that is
        shorter."""
        others = np.arange(len(self._order))
        others = others[:: -(-len(others) * len(ranks) // pairs)]
        one, other = np.repeat(ranks, len(others)), np.tile(others, len(ranks))
        apart = one != other
        limit = self._cost * (1.0 - SHORTER)
        return self._exchange(one[apart, np.newaxis], other[apart, np.newaxis], limit)

    def _exchange(self, one: Ints, other: Ints, limit: float) -> bool:
        """Of these pairs the best, if it costs less than that; whether it did."""
        if not len(one):
            return False
        tables = sum(its[0].near.of.shape[1] * 2 * one.size for its in self._uplinked)
        self._budget.spend(EXCHANGED * len(self._every))
        self._budget.spend(ELEMENT * (len(one) * self.size + 20 * tables))
        moved, new = np.concatenate([one, other], axis=1), np.concatenate([other, one], axis=1)
        after = [[each.after(moved, new) for each in its] for its in self._uplinked]
        costs = self._costs(after)
        best = int(costs.argmin())
        if costs[best] >= limit:
            return False
        self._cost = float(costs[best])
        self._order[moved[best]] = self._order[new[best]]
        for each, busy in zip(self._every, itertools.chain(*after), strict=True):
            each.home[moved[best]] = each.home[new[best]]
            each.busy = busy[best]
        if self._cost < self._least:
            self._least, self.best = self._cost, self._order.copy()
        return True

    def _pairs(self) -> tuple[Ints, Ints]:
        """Runs along an axis of the grid, a row each: one that begins in the domain that costs
        most, or anywhere; the other anywhere else."""
        ranks = len(self._order)
        drawn = self._source.uniform(3, PAIRS)
        length, stride = self._run()
        first = (drawn[0] * ranks).astype(np.int64)
        there = self._worst()
        first[::2] = there[(drawn[0, ::2] * len(there)).astype(np.int64)]
        second = (drawn[1] * ranks).astype(np.int64)
        run = np.arange(length) * stride
        ends = [each - each // stride % length * stride for each in (first, second)]
        one, other = (each[:, np.newaxis] + run for each in ends)
        nearest = self._uplinked[0][0].home
        apart = (one[:, 0] != other[:, 0]) & (nearest[one] != nearest[other]).any(axis=1)
        return one[apart], other[apart]

    def _run(self) -> tuple[int, int]:
        """A length that divides the axis, and how far apart its ranks are numbered."""
        drawn = self._source.uniform(3)
        if drawn[0] < ALONE:
            return 1, 1
        axis = int(drawn[1] * len(self._shape))
        lengths = self._lengths[axis]
        return lengths[int(drawn[2] * len(lengths))], math.prod(self._shape[:axis])

    def _worst(self) -> Ints:
        """The ranks in the domain that costs most."""
        worst = max(self._every, key=lambda each: each.worth_s * float(each.busy.max()))
        return np.flatnonzero(worst.home[:-1] == int(worst.busy.argmax()))

    def _costs(self, busy: Sequence[Sequence[Floats]]) -> Floats:
        """Seconds that shared links cost, as norms of how busy they are; at least the adapters
        are."""
        found: Floats = np.zeros(())
        for its, tiers in zip(self._uplinked, busy, strict=True):
            total = 1.0 + sum((each**SHARP).sum(axis=-1) for each in tiers)
            found = found + its[0].worth_s * total ** (1.0 / SHARP)
        return found


def _uplinked(
    sent: WeightedTraffic, tiers: tuple[Uplinks, ...], order: Ints
) -> Iterator[_Uplinked]:
    near = sent.matrix.neighbours(rows=len(order))
    adapters = contention.adapters(sent.matrix)
    for tier in tiers:
        of_rank = tier.of(order)
        share = 1.0 / (tier.capacity * adapters)
        busy = contention.uplinks(sent.matrix, of_rank) * share
        yield _Uplinked(near, sent.worth_s, np.append(of_rank.domains, 0), share, busy)
