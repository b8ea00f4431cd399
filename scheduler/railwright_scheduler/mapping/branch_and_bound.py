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
    weight = np.zeros((matrix.ranks, matrix.ranks))
    weight[matrix.a, matrix.b] = weight[matrix.b, matrix.a] = matrix.weight
    line = _connected(weight)
    ordered = weight[np.ix_(line, line)]
    distance = places.table(np.arange(places.count))
    apart = distance[~np.eye(places.count, dtype=bool)]
    later = np.tril(ordered).sum(axis=1)[::-1].cumsum()[::-1]
    rest = [*((float(apart.min()) if len(apart) else 0.0) * later).tolist(), 0.0]
    weights: list[list[float]] = ordered.tolist()
    rows: list[list[float]] = distance.tolist()
    nearest: list[int] = places.domains[0].tolist()
    best: list[int] = []
    least, left = below, extensions

    def extend(placed: list[int], spent: float) -> None:
        """Try all that the first units at these places can become, if it may be cheaper."""
        nonlocal best, least, left
        unit = len(placed)
        if unit == len(weights):
            best, least = placed, spent
            return
        tried: dict[int, tuple[float, int]] = {}
        for place, domain in enumerate(nearest):
            if domain not in tried and place not in placed:
                pairs = zip(weights[unit], placed, strict=False)
                more = sum(exchanged * rows[place][other] for exchanged, other in pairs)
                tried[domain] = spent + more, place
        for costs, place in sorted(tried.values()):
            if costs + rest[unit + 1] >= least * LESS or left <= 0:
                return
            left -= 1
            work.spend(EXTENSION)
            extend([*placed, place], costs)

    extend([], 0.0)
    if not best:
        return None
    found = np.empty(matrix.ranks, dtype=np.int64)
    found[line] = best
    return found


def _connected(weight: Floats) -> Ints:
    """Units so that each exchanges as much as can be with those before it."""
    line = [int(weight.sum(axis=1).argmax())]
    while len(line) < len(weight):
        near = weight[line].sum(axis=0)
        near[line] = -1.0
        line.append(int(near.argmax()))
    return np.array(line)
