"""Improve mappings by exchanging the ranks of two places, many pairs at a time.

Simulated annealing (Kirkpatrick, Gelatt and Vecchi 1983) from good initial orders and a low
temperature. A rank moves to the domain of a rank that it exchanges data with, and the rank there
takes its place. A step evaluates many such pairs at once, and applies those whose ranks and
neighbours were not moved by an earlier pair, so that their gains add up. Several initial orders are
processed together, as array operations on a small job cost as much as on a larger one. The number
of evaluations is bounded, not the time, so that the result is the same on any machine.
"""

from __future__ import annotations

import numpy as np

from railwright_scheduler.arrays import Floats, Ints
from railwright_scheduler.budget import CALL, ELEMENT, UNLIMITED, WorkBudget
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.mapping.problem import Places
from railwright_scheduler.random_source import RandomSource

TOUCHED = 4
"""One in so many ranks is drawn in a step: more of them would touch each other."""

STEP = 100_000
"""Work for a step, however few pairs it judges."""

STRAY = 0.1
"""So often is a rank drawn to any domain at all."""


HOT, COLD = 0.7, 0.05
"""Times the heat, at first and in the end: a good start is not to be molten, only its faults."""


def annealed(
    matrix: TrafficMatrix,
    places: Places,
    starts: list[Ints],
    heat: float,
    pairs: int,
    budget: WorkBudget = UNLIMITED,
) -> list[Ints]:
    """Where each start leads to in so many evaluated pairs: the place of each rank. It may be worse
    than the start. ``heat`` is what small changes cost. Raises OverBudgetError."""
    domains = int(places.domains[0].max()) + 1
    budget.spend(CALL + 5 * ELEMENT * (matrix.table + domains**2))
    work = _Annealing(matrix, places, starts)
    batch = max(1, matrix.ranks // TOUCHED)
    steps = pairs // (batch * len(starts))
    hot, cold = HOT * heat, COLD * heat
    factor = (cold / hot) ** (1.0 / max(1, steps - 1))
    considered = batch * len(starts) * work.width
    for step in range(steps):
        budget.spend(STEP + 4 * ELEMENT * considered)
        work.step(batch, hot * factor**step)
    return work.where()


class _Annealing:
    """The place of each rank in each start; each has numbers of its own, one behind the other."""

    def __init__(self, matrix: TrafficMatrix, places: Places, starts: list[Ints]) -> None:
        self._ranks, self._starts = matrix.ranks, len(starts)
        self._near = matrix.neighbours(rows=matrix.ranks)
        self._members = np.argsort(places.domains[0], kind="stable")
        self._sizes = np.bincount(places.domains[0])
        self._first = np.cumsum(self._sizes) - self._sizes
        _, nearest = np.unique(places.domains[0], return_index=True)
        self._distance = places.table(nearest).ravel()
        # Behind the ranks of each start is a place that is none.
        self._place = np.concatenate([np.append(where, places.count) for where in starts])
        self._home = np.append(places.domains[0], 0)[self._place]
        rows = [np.append(np.argsort(each[:-1]), 0) for each in np.split(self._place, len(starts))]
        self._holder = np.concatenate(rows)
        self._unmoved = np.full(len(self._place), np.iinfo(np.int64).max)
        self._source = RandomSource()

    @property
    def width(self) -> int:
        """Those that a rank exchanges with, at most."""
        return int(self._near.of.shape[1])

    def where(self) -> list[Ints]:
        return [each[: self._ranks] for each in np.split(self._place, self._starts)]

    def step(self, batch: int, heat: float) -> None:
        """Evaluate pairs of each initial order, and apply those accepted at this temperature."""
        base = np.repeat(np.arange(self._starts) * (self._ranks + 1), batch)
        drawn = self._source.uniform(5, len(base))
        one = (drawn[0] * self._ranks).astype(np.int64)
        beside = (drawn[1] * self._near.count[one]).astype(np.int64)
        there = self._home[self._near.of[one, beside] + base]
        stray = (drawn[2] < STRAY) | (self._near.count[one] == 0)
        there = np.where(stray, (drawn[1] * len(self._sizes)).astype(np.int64), there)
        here = self._home[one + base]
        (apart,) = (here != there).nonzero()
        one, base, here, there = one[apart], base[apart], here[apart], there[apart]
        crossed = (drawn[3, apart] * self._sizes[there]).astype(np.int64)
        other = self._holder[self._members[self._first[there] + crossed] + base]
        near, weight = self._near.of[one], self._near.weight[one]
        mine, its = near + base[:, None], self._near.of[other] + base[:, None]
        change = self._moved(weight, mine, here, there)
        change += self._moved(self._near.weight[other], its, there, here)
        # The traffic between the two ranks keeps its distance, as both move.
        joined = (weight * (near == other[:, None])).sum(axis=1)
        change += joined * self._there_and_back(here, there)
        (taken,) = (np.exp(-np.maximum(change, 0.0) / heat) > drawn[4, apart]).nonzero()
        if len(taken):
            self._exchange(
                np.stack([one[taken], other[taken]], axis=1) + base[taken, None],
                np.concatenate([mine[taken], its[taken]], axis=1),
            )

    def _moved(self, weight: Floats, near: Ints, old: Ints, new: Ints) -> Floats:
        """How much more each row's neighbours cost from a new domain."""
        homes = self._home[near] * len(self._sizes)
        farther = self._distance[homes + new[:, None]] - self._distance[homes + old[:, None]]
        found: Floats = (weight * farther).sum(axis=1)
        return found

    def _there_and_back(self, here: Ints, there: Ints) -> Floats:
        count = len(self._sizes)
        crossed = self._distance[here * count + here] + self._distance[there * count + there]
        found: Floats = 2.0 * self._distance[here * count + there] - crossed
        return found

    def _exchange(self, pairs: Ints, near: Ints) -> None:
        """Exchange the pairs whose ranks and neighbours have not moved since the evaluation."""
        order = np.arange(len(pairs))
        # Backwards, so that of several pairs with one rank the first is the one that is kept.
        self._unmoved[pairs[::-1].ravel()] = np.repeat(order[::-1], 2)
        touched = np.concatenate([pairs, near], axis=1)
        free = (self._unmoved[touched] >= order[:, None]).all(axis=1)
        self._unmoved[pairs] = np.iinfo(np.int64).max
        there = pairs[free]
        here = there[:, ::-1]
        self._place[there], self._home[there] = self._place[here], self._home[here]
        base = there // (self._ranks + 1) * (self._ranks + 1)
        self._holder[self._place[there] + base] = there - base
