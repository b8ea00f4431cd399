"""Makes a mapping better by cutting anew what lies in a few neighbouring domains.

Where domains are of unequal size, what stands in one fits into no other, and no exchange of two
ranks leads from one good mapping to a better one. So a few domains that exchange much are emptied
together and filled again by bisection, another way each time, and it is kept if it costs no more:
a search of large neighbourhoods (Shaw 1998). Where there are more places than ranks, a domain with
free ones may be among them, and which of them stay free is drawn anew.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from railwright_scheduler.budget import CALL, ELEMENT, UNLIMITED, WorkBudget
from railwright_scheduler.mapping import neighbours
from railwright_scheduler.mapping.bisection import Bisection, Part
from railwright_scheduler.mapping.draws import Draws
from railwright_scheduler.mapping.problem import Exchanges, Indices, Places

DOMAINS_MAX = 8
"""So many are emptied together, at most."""

EMPTIED = 150_000
"""Work for a few domains that are emptied, however small they are."""

WITH_FREE = 0.5
"""So often is one with free places among them, if there is any."""


def recut(
    exchanges: Exchanges,
    places: Places,
    where: Indices,
    tries: int,
    budget: WorkBudget = UNLIMITED,
) -> Indices:
    """The place of each rank after so many tries; no worse than before. Raises OverBudgetError."""
    work = _Recutting(exchanges, places, where, budget)
    for _ in range(tries):
        work.attempt()
    return work.where


class _Recutting:
    def __init__(
        self, exchanges: Exchanges, places: Places, where: Indices, budget: WorkBudget
    ) -> None:
        budget.spend(CALL + 5 * ELEMENT * exchanges.table)
        self._budget = budget
        self.where = where.copy()
        self._places, self._ranks = places, exchanges.ranks
        self._near = neighbours.of(exchanges, rows=exchanges.ranks)
        self._draws = Draws()
        self._bisection = Bisection(exchanges, places, self._draws, budget)
        self._home = places.domains[0][where]
        line = np.argsort(places.domains[0], kind="stable")
        self._members = np.split(line, np.cumsum(np.bincount(places.domains[0]))[:-1])

    def attempt(self) -> None:
        """Empty a few domains and fill them again."""
        self._budget.spend(EMPTIED + ELEMENT * (self._ranks + self._places.count))
        chosen = self._chosen()
        inside = np.isin(self._home, chosen)
        ranks = np.flatnonzero(inside)
        self._budget.spend(EMPTIED + 20 * ELEMENT * len(ranks) * self._near.of.shape[1])
        laid = self._bisection.laid(self._part(ranks, inside), self._line(chosen, len(ranks)))
        if self._costs(ranks, laid) <= self._costs(ranks, self.where[ranks]):
            self.where[ranks], self._home[ranks] = laid, self._places.domains[0][laid]

    def _chosen(self) -> list[int]:
        """A domain, and one after the other which exchanges much with those before."""
        by_chance, count = self._draws.parts(4), len(self._members)
        wanted = 2 + int(by_chance[0] * (DOMAINS_MAX - 1))
        chosen = [int(self._home[int(by_chance[1] * self._ranks)])]
        exchanged = np.zeros(count)
        while len(chosen) < wanted:
            ranks = np.flatnonzero(self._home == chosen[-1])
            weight = self._near.weight[ranks]
            homes = np.append(self._home, 0)[self._near.of[ranks]]
            exchanged += np.bincount(homes.ravel(), weight.ravel(), count)
            exchanged[chosen] = 0.0
            if not exchanged.any():
                break
            chosen.append(int(np.argmax(exchanged * (1.0 + self._draws.parts(count)))))
        if self._ranks < self._places.count and by_chance[2] < WITH_FREE:
            free = np.delete(self._places.domains[0], self.where)
            chosen.append(int(free[int(by_chance[3] * len(free))]))
        return [*dict.fromkeys(chosen)]

    def _line(self, chosen: list[int], count: int) -> Indices:
        """So many of their places, of as few of them as can be, drawn by chance."""
        order = self._draws.order(len(chosen))
        line = np.concatenate([self._members[chosen[at]] for at in order])[:count]
        return line[np.lexsort(self._places.domains[:, line])]

    def _part(self, ranks: Indices, inside: NDArray[np.bool_]) -> Part:
        row = np.append(np.where(inside, np.cumsum(inside) - 1, -1), -1)
        b = row[self._near.of[ranks]]
        one, at = np.nonzero(b > np.arange(len(ranks))[:, None])
        return Part(ranks, one, b[one, at], self._near.weight[ranks][one, at])

    def _costs(self, ranks: Indices, laid: Indices) -> float:
        """All that these ranks exchange if they are laid out so; between them it counts half."""
        where = np.append(self.where, 0)
        where[ranks] = laid
        near, weight = self._near.of[ranks], self._near.weight[ranks]
        inside = np.zeros(self._ranks + 1, dtype=np.bool_)
        inside[ranks] = True
        apart = self._places.between(np.repeat(laid, near.shape[1]), where[near].ravel())
        return float(((weight * np.where(inside[near], 0.5, 1.0)).ravel() * apart).sum())
