"""Places as other mappers want them: leaves of a tree whose parts all have as many parts again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright_scheduler.arrays import Ints
from railwright_scheduler.mapping.problem import Places


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """How many parts there are a step, the farthest first, and how far those are from each other;
    ``number`` is that of each place among all that there are when every part is whole."""

    sizes: tuple[int, ...]
    distance: tuple[int, ...]
    number: Ints

    @property
    def is_whole(self) -> bool:
        return len(self.number) == int(np.prod(self.sizes))


def of(places: Places) -> Hierarchy:
    """The least such tree; places are to be listed domain after domain."""
    number = above = np.zeros(places.count, dtype=np.int64)
    sizes, distance = [], []
    tiers = [*places.domains[::-1], np.arange(places.count)]
    for domains, far in zip(tiers, places.distance[::-1], strict=True):
        child = _child(above, domains)
        size = int(child.max()) + 1
        number, above = number * size + child, domains
        if size > 1:
            sizes.append(size)
            distance.append(round(far))
    return Hierarchy(tuple(sizes), tuple(distance), number)


def _child(above: Ints, domains: Ints) -> Ints:
    """Which one of those in the same domain above each one's domain is."""
    _, first, at = np.unique(domains, return_index=True, return_inverse=True)
    parents = above[first]
    order = np.argsort(parents, kind="stable")
    _, begin, size = np.unique(parents[order], return_index=True, return_counts=True)
    child = np.empty(len(first), dtype=np.int64)
    child[order] = np.arange(len(first)) - np.repeat(begin, size)
    return child[at]
