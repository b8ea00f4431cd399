"""Improve a mapping by partitioning a few neighbouring domains again.

With domains of unequal size, the ranks of one domain do not fit into another, and no exchange of
two ranks leads from one good mapping to a better one. So a few domains with much traffic between
them are emptied together and filled again by a random bisection. The result is kept if it costs no
more: large neighbourhood search (Shaw 1998).
"""

from __future__ import annotations

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.budget import CALL, ELEMENT, UNLIMITED, WorkBudget
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.mapping.bisection import Bisection, RankSubset
from railwright_scheduler.mapping.problem import Places
from railwright_scheduler.random_source import RandomSource

DOMAINS_MAX = 8
"""So many are emptied together, at most."""

EMPTIED = 150_000
"""Work for a few domains that are emptied, however small they are."""


def repartitioned(
    matrix: TrafficMatrix,
    places: Places,
    where: Ints,
    tries: int,
    budget: WorkBudget = UNLIMITED,
) -> Ints:
    """The place of each rank after so many tries; no worse than before. Raises OverBudgetError."""
    work = _Repartitioning(matrix, places, where, budget)
    for _ in range(tries):
        work.attempt()
    return work.where


class _Repartitioning:
    def __init__(
        self, matrix: TrafficMatrix, places: Places, where: Ints, budget: WorkBudget
    ) -> None:
        budget.spend(CALL + 5 * ELEMENT * matrix.table)
        self._budget = budget
        self.where = where.copy()
        self._places, self._ranks = places, matrix.ranks
        self._near = matrix.neighbours(rows=matrix.ranks)
        self._source = RandomSource()
        self._bisection = Bisection(matrix, places, self._source, budget)
        self._home = places.domains[0][where]
        line = np.argsort(places.domains[0], kind="stable")
        self._members = np.split(line, np.cumsum(np.bincount(places.domains[0]))[:-1])

    def attempt(self) -> None:
        """Empty a few domains and fill them again."""
        self._budget.spend(EMPTIED + 2 * ELEMENT * self._ranks)
        chosen = self._chosen()
        is_chosen = np.zeros(len(self._members), dtype=np.bool_)
        is_chosen[chosen] = True
        selected = is_chosen[self._home]
        (ranks,) = selected.nonzero()
        self._budget.spend(EMPTIED + 20 * ELEMENT * len(ranks) * self._near.of.shape[1])
        laid = self._bisection.laid(self._part(ranks, selected), self._line(chosen))
        if self._costs(ranks, laid) <= self._costs(ranks, self.where[ranks]):
            self.where[ranks], self._home[ranks] = laid, self._places.domains[0][laid]

    def _chosen(self) -> list[int]:
        """A domain, and one after the other which exchanges much with those before."""
        drawn, count = self._source.uniform(4), len(self._members)
        target = 2 + int(drawn[0] * (DOMAINS_MAX - 1))
        chosen = [int(self._home[int(drawn[1] * self._ranks)])]
        exchanged = np.zeros(count)
        while len(chosen) < target:
            (ranks,) = (self._home == chosen[-1]).nonzero()
            weight = self._near.weight[ranks]
            homes = np.append(self._home, 0)[self._near.of[ranks]]
            exchanged += np.bincount(homes.ravel(), weight.ravel(), count)
            exchanged[chosen] = 0.0
            if not exchanged.any():
                break
            chosen.append(int(np.argmax(exchanged * (1.0 + self._source.uniform(count)))))
        return chosen

    def _line(self, chosen: list[int]) -> Ints:
        """Their places, sorted by domain."""
        # The order of the domains changes nothing but which numbers are drawn next.
        order = self._source.permutation(len(chosen))
        line = np.concatenate([self._members[chosen[at]] for at in order])
        return line[np.lexsort(self._places.domains[:, line])]

    def _part(self, ranks: Ints, selected: Mask) -> RankSubset:
        row = np.append(np.where(selected, np.cumsum(selected) - 1, -1), -1)
        b = row[self._near.of[ranks]]
        one, at = np.nonzero(b > np.arange(len(ranks))[:, None])
        return RankSubset(ranks, one, b[one, at], self._near.weight[ranks][one, at])

    def _costs(self, ranks: Ints, laid: Ints) -> float:
        """All that these ranks exchange if they are laid out so; between them it counts half."""
        where = np.append(self.where, 0)
        where[ranks] = laid
        near, weight = self._near.of[ranks], self._near.weight[ranks]
        selected = np.zeros(self._ranks + 1, dtype=np.bool_)
        selected[ranks] = True
        apart = self._places.between(np.repeat(laid, near.shape[1]), where[near].ravel())
        return float(((weight * np.where(selected[near], 0.5, 1.0)).ravel() * apart).sum())
