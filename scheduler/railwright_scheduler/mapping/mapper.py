"""Chooses a place for every rank: out of the structure of its grid first, then by small steps.

Ranks that share a node are put together, in a few ways; whole nodes are laid out in many, and the
best of those are made better: parts of them are cut anew, the better half each time goes on, and at
last what remains is annealed. A few nodes are laid out at the least cost there is. The work is
bounded by number and grows with the job, never by time: the same job on the same places gets the
same mapping everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright_scheduler.budget import CALL, ELEMENT, UNLIMITED, WorkBudget
from railwright_scheduler.mapping import branch_and_bound, canonical, choice, units
from railwright_scheduler.mapping.anneal import Cooling, annealed
from railwright_scheduler.mapping.bisection import bisected
from railwright_scheduler.mapping.problem import Exchanges, Indices, Places, cost
from railwright_scheduler.mapping.recutting import recut
from railwright_scheduler.mapping.starts import starts
from railwright_scheduler.mapping.units import Rooms, Units

BUDGET = 300_000
"""Pairs judged at most, of ranks that exchange with few others: about half a second's worth."""

PAIRS_A_RANK = 400
TRIES_A_DOMAIN = 16
PAIRS_A_TRY = 500
"""What it takes to cut a few domains anew, in pairs."""

PLACED = 600
"""Work for each place, to put them in order."""

PAIRS_AN_EXTENSION = 30
"""What it takes to extend a layout of a few nodes by one, in pairs."""

STARTS = 4
WAYS = 2
RANKS_BEGUN = 4_000
"""In all the ways together that are begun with, if it is more than one."""

HOT, COLD = 0.7, 0.05
"""Times what the lightest exchanges cost more one tier further away: a good start is not to be
molten, only its faults."""


@dataclass(frozen=True, slots=True, eq=False)
class Mapping:
    """The place of each rank, and what it costs."""

    cost: float
    where: Indices


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """Units in rooms, and what that costs the ranks."""

    cost: float
    units: Units
    where: Indices


def mapped(
    exchanges: Exchanges, places: Places, *, budget: int = BUDGET, work: WorkBudget = UNLIMITED
) -> Mapping:
    """The best mapping found. The same input gives the same one, whatever domains are called.

    Where there are more places than ranks, all ways to choose among them are tried if the budget
    has room for that: one more place then never makes it worse. Otherwise the ways that promise
    most are where the search begins, and it may leave places for others that stayed free. Raises
    OverBudgetError if not even one is found with so much ``work``.
    """
    if places.count < exchanges.ranks:
        raise ValueError(f"{exchanges.ranks} ranks do not fit into {places.count} places")
    work.spend(CALL + PLACED * places.count * len(places.distance))
    budget //= exchanges.heft
    numbered, order = canonical.ordered(places)
    size = units.volume(exchanges, numbered)
    rooms = units.rooms(numbered, size)
    count = exchanges.ranks // size
    ways = choice.all_ways(rooms.places, count, budget // _work(rooms.places, count))
    if ways is None:
        good_ways = choice.good_ways(rooms.places, count)
        found = _mapped(exchanges, numbered, good_ways, budget, work)
        return Mapping(found.cost, order[found.where])
    everywhere = [np.arange(count)]
    tried = []
    for way in ways:
        taken, line = canonical.ordered(numbered.only(rooms.members[way].ravel()))
        found = _mapped(exchanges, taken, everywhere, budget, work)
        tried.append(Mapping(found.cost, order[rooms.members[way].ravel()[line[found.where]]]))
    return min(tried, key=lambda each: each.cost)


def _mapped(
    exchanges: Exchanges, places: Places, ways: list[Indices], budget: int, work: WorkBudget
) -> Mapping:
    """Begun with these ways to choose rooms."""
    rooms = units.rooms(places, units.volume(exchanges, places))
    search = _Search(exchanges, rooms, work)
    begun = search.begun(ways)
    found = begun[0]
    with work.search():
        found = search.improved(begun, budget)
        found = search.proven(found, budget)
    where = found.units.spread(found.where, rooms)
    with work.search():
        where = _mended(exchanges, places, where, budget, work)
    return Mapping(cost(exchanges, places, where), where)


def _mended(
    exchanges: Exchanges, places: Places, where: Indices, budget: int, work: WorkBudget
) -> Indices:
    """The same with parts of nodes exchanged, where nodes may be torn apart."""
    cores = units.cores(exchanges, units.volume(exchanges, places), work)
    if cores is None:
        return where
    rooms = units.rooms(places, len(where) // cores.exchanges.ranks)
    gathered = cores.gathered(where, rooms)
    if gathered is None:
        return where
    search = _Search(exchanges, rooms, work)
    found = search.annealed([_Layout(cost(exchanges, places, where), cores, gathered)], budget)
    return found.units.spread(found.where, rooms)


def _tries(places: Places) -> int:
    return TRIES_A_DOMAIN * (int(places.domains[0].max()) + 1)


def _work(places: Places, count: int) -> int:
    """What it takes to map so many units, in pairs."""
    return PAIRS_A_RANK * count + PAIRS_A_TRY * _tries(places)


class _Search:
    """Layouts of one job in one set of rooms."""

    def __init__(self, exchanges: Exchanges, rooms: Rooms, work: WorkBudget) -> None:
        self._exchanges, self._rooms, self._work = exchanges, rooms, work

    def begun(self, ways: list[Indices]) -> list[_Layout]:
        """The best starts in the best of these ways, the best first; of equal ones the first."""
        found: dict[float, _Layout] = {}
        groupings = units.groupings(self._exchanges, self._rooms.members.shape[1], self._work)
        for way in self._promising(ways, groupings[0]):
            taken, line = canonical.ordered(self._rooms.places.only(way))
            for its in groupings:
                for where in starts(its.exchanges, taken, self._work):
                    layout = self._layout(its, way[line[where]])
                    found.setdefault(layout.cost, layout)
        return [found[value] for value in sorted(found)[:STARTS]]

    def _promising(self, ways: list[Indices], its: Units) -> list[Indices]:
        most = min(WAYS, RANKS_BEGUN // its.exchanges.ranks)
        if len(ways) <= most or most == 0:
            return ways[: max(1, most)]
        costs = []
        for way in ways:
            taken, _ = canonical.ordered(self._rooms.places.only(way))
            where = bisected(its.exchanges, taken, work=self._work)
            costs.append(cost(its.exchanges, taken, where))
        return [ways[at] for at in np.argsort(costs, kind="stable")[:most]]

    def improved(self, found: list[_Layout], budget: int) -> _Layout:
        """The best of what these lead to: the better half of them goes on, again and again."""
        tries = min(budget // 2 // PAIRS_A_TRY, _tries(self._rooms.places))
        rounds = len(found).bit_length()
        left = found
        for _ in range(rounds):
            left = [self._recut(each, tries // rounds // len(left)) for each in left]
            found = sorted([*left, *found], key=_cost)[:STARTS]
            left = sorted(left, key=_cost)[: max(1, len(left) // 2)]
        return self.annealed(found, budget)

    def annealed(self, found: list[_Layout], budget: int) -> _Layout:
        """The best of these and of what annealing makes of them, those of the same units side by
        side."""
        pairs = min(budget // 2, PAIRS_A_RANK * found[0].units.exchanges.ranks)
        better = []
        for its in _unlike([each.units for each in found]):
            where = [each.where for each in found if each.units is its]
            step = _step(its.exchanges, self._rooms.places)
            if step > 0.0:
                cooling = Cooling(HOT * step, COLD * step, pairs * len(where) // len(found))
                better += [
                    self._layout(its, each)
                    for each in annealed(
                        its.exchanges, self._rooms.places, where, cooling, self._work
                    )
                ]
        return min([*found, *better], key=_cost)

    def proven(self, found: _Layout, budget: int) -> _Layout:
        """The cheapest layout of a few nodes, each way to put ranks together tried."""
        rooms = self._rooms
        if rooms.places.count > branch_and_bound.PLACES_MAX:
            return found
        for its in units.groupings(self._exchanges, rooms.members.shape[1], self._work):
            where = branch_and_bound.cheapest(
                its.exchanges,
                rooms.places,
                found.cost - its.inside * rooms.inside,
                budget // PAIRS_AN_EXTENSION,
                self._work,
            )
            if where is not None:
                found = min(found, self._layout(its, where), key=_cost)
        return found

    def _recut(self, layout: _Layout, tries: int) -> _Layout:
        its = layout.units
        where = recut(its.exchanges, self._rooms.places, layout.where, tries, self._work)
        return self._layout(its, where)

    def _layout(self, its: Units, where: Indices) -> _Layout:
        tiers = len(self._rooms.places.distance)
        self._work.spend(tiers * (3 * CALL + ELEMENT * len(its.exchanges.weight)))
        inside = its.inside * self._rooms.inside
        return _Layout(inside + cost(its.exchanges, self._rooms.places, where), its, where)


def _unlike(found: list[Units]) -> list[Units]:
    return [its for at, its in enumerate(found) if all(its is not other for other in found[:at])]


def _cost(layout: _Layout) -> float:
    return layout.cost


def _step(exchanges: Exchanges, places: Places) -> float:
    """What one of the lightest exchanges costs more one tier further away."""
    farther = np.diff(places.distance)
    farther = farther[farther > 0.0]
    if not len(farther) or not len(exchanges.weight):
        return 0.0
    return float(np.quantile(exchanges.weight, 0.1) * farther.min())
