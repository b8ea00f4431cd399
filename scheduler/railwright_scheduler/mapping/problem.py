"""What is to be mapped onto what: ranks that exchange data, and places with distances.

The cost of a mapping is the sum over all pairs of what they exchange times how far apart they are.
It is what process mapping has been judged by since Hatazaki (1998) and Träff (2002), and says
nothing of links that are shared; the step's predicted time, which does, chooses among mappings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Weights = NDArray[np.float64]

FEW, MANY = 16, 64
"""Pairs for each rank, and for one of them: what axes that are rings, chains and small cliques
bring."""


@dataclass(frozen=True, slots=True, eq=False)
class Exchanges:
    """Pair ``i`` is ``a[i]`` and ``b[i]``, which exchange ``weight[i]``; no pair stands twice.

    ``shape`` is how ranks are numbered: the sizes of their grid's axes, the fastest first. Ranks
    of which nothing is known have one axis.
    """

    shape: tuple[int, ...]
    a: Indices
    b: Indices
    weight: Weights

    @property
    def ranks(self) -> int:
        """How many there are."""
        return int(np.prod(self.shape))

    @property
    def heft(self) -> int:
        """How many times more work it is to look at a mapping than where each rank exchanges with a
        few others."""
        return max(1, len(self.weight) // (FEW * self.ranks), self.table // (MANY * self.ranks))

    @property
    def table(self) -> int:
        """Ranks times those that one of them exchanges with at most."""
        ends = np.bincount(self.a, minlength=1).max() + np.bincount(self.b, minlength=1).max()
        return self.ranks * int(ends)

    def merged(self, group: Indices, shape: tuple[int, ...]) -> Exchanges:
        """What groups of ranks exchange: ``group`` is that of each rank, ``shape`` the groups'."""
        a, b = group[self.a], group[self.b]
        apart = a != b
        low, high = np.minimum(a, b)[apart], np.maximum(a, b)[apart]
        count = int(np.prod(shape))
        pairs, at = np.unique(low * count + high, return_inverse=True)
        weight: Weights = np.zeros(len(pairs))
        np.add.at(weight, at, self.weight[apart])
        return Exchanges(shape, pairs // count, pairs % count, weight)


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """``domains[t]`` is the domain of each place at tier ``t``, the nearest tier first; a domain
    lies in one of the next tier. ``distance[t]`` is that of two places which first meet at tier
    ``t``, and the last one that of those which never do."""

    domains: NDArray[np.int64]
    distance: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.distance) != len(self.domains) + 1:
            raise ValueError(
                f"{len(self.distance)} distances for {len(self.domains)} tiers, expected one more"
            )
        if list(self.distance) != sorted(self.distance):
            raise ValueError(f"distances must not shrink outwards: {self.distance}")

    @property
    def count(self) -> int:
        """How many places there are."""
        return int(self.domains.shape[1])

    def only(self, kept: Indices) -> Places:
        """These of them."""
        return Places(self.domains[:, kept], self.distance)

    def between(self, one: Indices, other: Indices) -> Weights:
        """The distance of each pair of places."""
        found = np.full(len(one), self.distance[-1])
        for tier in range(len(self.domains) - 1, -1, -1):
            domains = self.domains[tier]
            found[domains[one] == domains[other]] = self.distance[tier]
        return found


def cost(exchanges: Exchanges, places: Places, where: Indices) -> float:
    """The sum of weights times distances; ``where`` is the place of each rank."""
    apart = places.between(where[exchanges.a], where[exchanges.b])
    return float((exchanges.weight * apart).sum())
