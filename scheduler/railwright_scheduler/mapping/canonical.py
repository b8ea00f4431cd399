"""Places in an order that follows from how they lie in each other, and not from any name.

Two fabrics that differ in their names alone get the same order, and so the same mapping: the
canonical form of a rooted tree (Aho, Hopcroft and Ullman 1974), larger domains first.
"""

from __future__ import annotations

import numpy as np

from railwright_scheduler.mapping.problem import Indices, Places

_Shape = tuple[int, tuple["_Shape", ...]]


def ordered(places: Places) -> tuple[Places, Indices]:
    """The same places, domains numbered as they come, and which of the given ones each is."""
    line = np.lexsort(places.domains)
    parts = np.split(line, np.flatnonzero(np.diff(places.domains[0][line])) + 1)
    shapes: list[_Shape] = [(len(part), ()) for part in parts]
    for domains in [*places.domains[1:], np.zeros(places.count, dtype=np.int64)]:
        starts = np.flatnonzero(np.diff(domains[[part[0] for part in parts]], prepend=-1))
        ends = [*starts[1:], len(parts)]
        wider: list[Indices] = []
        around: list[_Shape] = []
        for start, end in zip(starts, ends, strict=True):
            inside = sorted(range(start, end), key=shapes.__getitem__, reverse=True)
            wider.append(np.concatenate([parts[at] for at in inside]))
            size = sum(shapes[at][0] for at in inside)
            around.append((size, tuple(shapes[at] for at in inside)))
        parts, shapes = wider, around
    (order,) = parts
    numbered = [
        np.cumsum(np.diff(domains[order], prepend=-1) != 0) - 1 for domains in places.domains
    ]
    return Places(np.array(numbered), places.distance), order
