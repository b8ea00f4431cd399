"""Lays out the few units of a small job at the least cost there is.

Units are placed one after the other, the one that exchanges most with those before it first, and a
partial layout is given up once it cannot become cheaper than the best one known (branch and bound:
Land and Doig 1960). Free places of one domain of the nearest tier are equivalent: one of them is
tried. ``mapper`` calls it after its search, whose result makes the bound tight from the beginning.
"""

from __future__ import annotations

import numpy as np

from railwright_scheduler.arrays import Floats, Ints
from railwright_scheduler.budget import UNLIMITED, WorkBudget
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.mapping.problem import Places

PLACES_MAX = 10
"""Of more places there are too many layouts."""

EXTENSION = 20_000
"""Work for a partial layout: its free places are tried one by one."""

LESS = 1.0 - 1e-12
"""Times the least cost is what counts as less, beside the rounding of sums."""


def cheapest(
    matrix: TrafficMatrix,
    places: Places,
    below: float,
    extensions: int,
    work: WorkBudget = UNLIMITED,
) -> Ints | None:
    """The place of each unit in the cheapest layout of all, None if none costs less than ``below``.

    After ``extensions`` partial layouts it is the best one found. Raises OverBudgetError.
    """
    search = _Search(matrix, places, below, extensions, work)
    search.extend([], 0.0)
    if not search.best:
        return None
    found = np.empty(matrix.ranks, dtype=np.int64)
    found[search.line] = search.best
    return found


class _Search:
    """``line`` are the units in the order in which they are placed."""

    def __init__(
        self,
        matrix: TrafficMatrix,
        places: Places,
        below: float,
        extensions: int,
        work: WorkBudget,
    ) -> None:
        weight = np.zeros((matrix.ranks, matrix.ranks))
        np.add.at(weight, (matrix.a, matrix.b), matrix.weight)
        weight += weight.T
        self.line = _connected(weight)
        self.best: list[int] = []
        self._least = below
        self._left, self._work = extensions, work
        self._nearest: list[int] = places.domains[0].tolist()
        distance = places.table(np.arange(places.count))
        self._distance: list[list[float]] = distance.tolist()
        ordered = weight[np.ix_(self.line, self.line)]
        self._weight: list[list[float]] = ordered.tolist()
        apart = distance[~np.eye(places.count, dtype=bool)]
        between = float(apart.min()) if len(apart) else 0.0
        later = np.tril(ordered).sum(axis=1)[::-1].cumsum()[::-1]
        self._rest = [*(between * later).tolist(), 0.0]

    def extend(self, placed: list[int], spent: float) -> None:
        """Try all that the first units at these places can become, if it may be cheaper."""
        unit = len(placed)
        if unit == len(self._weight):
            self._least, self.best = spent, placed
            return
        weights, rest = self._weight[unit], self._rest[unit + 1]
        tried: dict[int, tuple[float, int]] = {}
        for place, domain in enumerate(self._nearest):
            if domain not in tried and place not in placed:
                row = self._distance[place]
                more = sum(
                    weight * row[other] for weight, other in zip(weights, placed, strict=False)
                )
                tried[domain] = spent + more, place
        for costs, place in sorted(tried.values()):
            if costs + rest >= self._least * LESS or self._left <= 0:
                return
            self._left -= 1
            self._work.spend(EXTENSION)
            self.extend([*placed, place], costs)


def _connected(weight: Floats) -> Ints:
    """Units so that each exchanges as much as can be with those before it."""
    line = [int(weight.sum(axis=1).argmax())]
    while len(line) < len(weight):
        near = weight[line].sum(axis=0)
        near[line] = -1.0
        line.append(int(near.argmax()))
    return np.array(line)
