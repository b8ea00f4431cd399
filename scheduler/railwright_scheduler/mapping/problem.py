"""The places that ranks are mapped onto, and the cost of a mapping.

The cost is the sum over all pairs of ranks of their traffic times their distance, the usual
objective of process mapping since Hatazaki (1998) and Träff (2002). It does not model shared links;
the predicted step time does, and chooses among mappings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright_scheduler.arrays import Floats, Ints
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix

_Tree = tuple[int, tuple["_Tree", ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """``domains[t]`` is the domain of each place at tier ``t``, the nearest tier first; a domain
    lies in one of the next tier. ``distance[t]`` is that of two places which first meet at tier
    ``t``, and the last one that of those which never do."""

    domains: Ints
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

    def only(self, kept: Ints) -> Places:
        """These of them."""
        return Places(self.domains[:, kept], self.distance)

    def between(self, one: Ints, other: Ints) -> Floats:
        """The distance of each pair of places."""
        found = np.full(len(one), self.distance[-1])
        for tier in range(len(self.domains) - 1, -1, -1):
            domains = self.domains[tier]
            found[domains[one] == domains[other]] = self.distance[tier]
        return found

    def table(self, some: Ints) -> Floats:
        """The distance of each of these places from each other."""
        count = len(some)
        return self.between(np.repeat(some, count), np.tile(some, count)).reshape(count, count)

    def canonical(self) -> tuple[Places, Ints]:
        """The same places in an order without names of domains, and which of these each one is.

        Two fabrics that differ in their names alone get the same order, and so the same mapping:
        the canonical form of a rooted tree (Aho, Hopcroft and Ullman 1974), larger domains first.
        """
        line = np.lexsort(self.domains)
        parts = by_domain(line, self.domains[0])
        trees: list[_Tree] = [(len(part), ()) for part in parts]
        for domains in [*self.domains[1:], np.zeros(self.count, dtype=np.int64)]:
            starts = np.flatnonzero(np.diff(domains[[part[0] for part in parts]], prepend=-1))
            ends = [*starts[1:], len(parts)]
            wider: list[Ints] = []
            around: list[_Tree] = []
            for start, end in zip(starts, ends, strict=True):
                nested = sorted(range(start, end), key=trees.__getitem__, reverse=True)
                wider.append(np.concatenate([parts[at] for at in nested]))
                size = sum(trees[at][0] for at in nested)
                around.append((size, tuple(trees[at] for at in nested)))
            parts, trees = wider, around
        (order,) = parts
        numbered = [
            np.cumsum(np.diff(domains[order], prepend=-1) != 0) - 1 for domains in self.domains
        ]
        return Places(np.array(numbered), self.distance), order


def by_domain(line: Ints, domains: Ints) -> list[Ints]:
    """These places, sorted by domain, as those of each domain."""
    return np.split(line, np.flatnonzero(np.diff(domains[line])) + 1)


def cost(matrix: TrafficMatrix, places: Places, where: Ints) -> float:
    """The sum of bytes times distances; ``where`` is the place of each rank."""
    apart = places.between(where[matrix.a], where[matrix.b])
    return float((matrix.weight * apart).sum())
