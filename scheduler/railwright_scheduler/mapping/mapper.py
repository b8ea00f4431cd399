"""Chooses a place for every rank: out of the structure of its grid first, then by small steps.

Ranks that share a node are put together, in a few ways; whole nodes are laid out in many, and the
best of those are made better: parts of them are partitioned anew, the better half each time goes
on, and at last what remains is annealed. A few nodes are laid out at the least cost there is. The
work is bounded by number and grows with the job, never by time: the same job on the same places
gets the same mapping everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright_scheduler.arrays import Ints
from railwright_scheduler.budget import CALL, ELEMENT, UNLIMITED, WorkBudget
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.mapping import blocks, branch_and_bound
from railwright_scheduler.mapping.anneal import annealed
from railwright_scheduler.mapping.blocks import Blocks, Rooms
from railwright_scheduler.mapping.initial_orders import initial_orders
from railwright_scheduler.mapping.problem import Places, cost
from railwright_scheduler.mapping.repartitioning import repartitioned

BUDGET = 300_000
"""The most evaluated pairs, for ranks that send to few others: about half a second."""

PAIRS_A_RANK = 400
TRIES_A_DOMAIN = 16
PAIRS_A_TRY = 500
"""Work of repartitioning a few domains once, in pairs."""

PLACED = 600
"""Work for each place, to put them in order."""

PAIRS_AN_EXTENSION = 30
"""Work of extending a layout of a few nodes by one, in pairs."""

INITIAL = 4
"""Initial orders that are made better, the best ones."""


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """Blocks in rooms, and what that costs the ranks."""

    cost: float
    blocks: Blocks
    where: Ints


def assign(
    matrix: TrafficMatrix, places: Places, *, budget: int = BUDGET, work: WorkBudget = UNLIMITED
) -> Ints:
    """The place of each rank in the best mapping found, onto as many places as ranks, whatever
    domains are called.

    The same input gives the same one. Raises OverBudgetError if not even one is found with so much
    ``work``.
    """
    if places.count != matrix.ranks:
        raise ValueError(f"{matrix.ranks} ranks need as many places, not {places.count}")
    work.spend(CALL + PLACED * places.count * len(places.distance))
    budget //= matrix.heft
    numbered, order = places.canonical()
    size = blocks.volume(matrix, numbered)
    search = _Search(matrix, blocks.rooms(numbered, size), work)
    begun = search.begun()
    found = begun[0]
    with work.search():
        found = search.improved(begun, budget)
        found = search.proven(found, budget)
    where = search.spread(found)
    with work.search():
        where = _mended(matrix, numbered, where, size, budget, work)
    return order[where]


def _mended(
    matrix: TrafficMatrix, places: Places, where: Ints, size: int, budget: int, work: WorkBudget
) -> Ints:
    """The same with parts of nodes exchanged, where nodes may be torn apart."""
    cores = blocks.cores(matrix, size, work)
    if cores is None:
        return where
    rooms = blocks.rooms(places, len(where) // cores.matrix.ranks)
    gathered = cores.gathered(where, rooms)
    if gathered is None:
        return where
    search = _Search(matrix, rooms, work)
    layout = _Layout(cost(matrix, places, where), cores, gathered)
    return search.spread(search.annealed([layout], budget))


class _Search:
    """Layouts of one job in one set of rooms."""

    def __init__(self, matrix: TrafficMatrix, rooms: Rooms, work: WorkBudget) -> None:
        self._matrix, self._rooms, self._work = matrix, rooms, work

    def begun(self) -> list[_Layout]:
        """The best initial orders, the best first; of equal ones the first."""
        found: dict[float, _Layout] = {}
        for its in blocks.groupings(self._matrix, self._rooms.size, self._work):
            for where in initial_orders(its.matrix, self._rooms.places, self._work):
                layout = self._layout(its, where)
                found.setdefault(layout.cost, layout)
        return [found[value] for value in sorted(found)[:INITIAL]]

    def improved(self, found: list[_Layout], budget: int) -> _Layout:
        """The best of what these lead to: the better half of them goes on, again and again."""
        places = self._rooms.places
        domains = int(places.domains[0].max()) + 1
        tries = min(budget // 2 // PAIRS_A_TRY, TRIES_A_DOMAIN * domains)
        rounds = len(found).bit_length()
        left = found
        for _ in range(rounds):
            share = tries // rounds // len(left)
            left = [
                self._layout(
                    each.blocks,
                    repartitioned(each.blocks.matrix, places, each.where, share, self._work),
                )
                for each in left
            ]
            found = sorted([*left, *found], key=_cost)[:INITIAL]
            left = sorted(left, key=_cost)[: max(1, len(left) // 2)]
        return self.annealed(found, budget)

    def annealed(self, found: list[_Layout], budget: int) -> _Layout:
        """The best of these and of what annealing makes of them, those of the same blocks side by
        side."""
        pairs = min(budget // 2, PAIRS_A_RANK * found[0].blocks.matrix.ranks)
        better = []
        for its in dict.fromkeys(each.blocks for each in found):
            where = [each.where for each in found if each.blocks is its]
            step = _step(its.matrix, self._rooms.places)
            if step > 0.0:
                share = pairs * len(where) // len(found)
                orders = annealed(its.matrix, self._rooms.places, where, step, share, self._work)
                better += [self._layout(its, each) for each in orders]
        return min([*found, *better], key=_cost)

    def proven(self, found: _Layout, budget: int) -> _Layout:
        """The cheapest layout of a few nodes, each way to put ranks together tried."""
        rooms = self._rooms
        if rooms.places.count > branch_and_bound.PLACES_MAX:
            return found
        for its in blocks.groupings(self._matrix, rooms.size, self._work):
            where = branch_and_bound.cheapest(
                its.matrix,
                rooms.places,
                found.cost - its.within * rooms.within,
                budget // PAIRS_AN_EXTENSION,
                self._work,
            )
            if where is not None:
                found = min(found, self._layout(its, where), key=_cost)
        return found

    def spread(self, layout: _Layout) -> Ints:
        """The place of each rank."""
        return layout.blocks.spread(layout.where, self._rooms)

    def _layout(self, its: Blocks, where: Ints) -> _Layout:
        tiers = len(self._rooms.places.distance)
        self._work.spend(tiers * (3 * CALL + ELEMENT * len(its.matrix.weight)))
        within = its.within * self._rooms.within
        return _Layout(within + cost(its.matrix, self._rooms.places, where), its, where)


def _cost(layout: _Layout) -> float:
    return layout.cost


def _step(matrix: TrafficMatrix, places: Places) -> float:
    """The extra cost of one of the lightest exchanges one tier further away."""
    farther = np.diff(places.distance)
    farther = farther[farther > 0.0]
    if not len(farther) or not len(matrix.weight):
        return 0.0
    return float(np.quantile(matrix.weight, 0.1) * farther.min())
