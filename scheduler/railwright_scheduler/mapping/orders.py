"""Orders to lay a grid of ranks out in, so that those next to each other come to stand together.

Rank grids are far from arbitrary graphs: each axis is a ring, a chain or a clique of its own, so
boxes of them have the least surface. An order that runs through boxes, laid onto places sorted by
where they stand, fills each domain with one or a few of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from railwright_scheduler.mapping.problem import Indices, Places

AXES_MAX = 5
"""Longer grids are ordered as they are numbered: the orders of more axes are too many."""


def boxes(shape: Sequence[int], volume: int) -> Iterator[tuple[int, ...]]:
    """All boxes of this many cells that tile the grid."""
    if not shape:
        if volume == 1:
            yield ()
        return
    for size in range(1, shape[0] + 1):
        if shape[0] % size == 0 and volume % size == 0:
            for rest in boxes(shape[1:], volume // size):
                yield (size, *rest)


def box_of(shape: Sequence[int], box: Sequence[int]) -> Indices:
    """Which box each cell lies in, numbered as the grid of boxes is."""
    cells = np.indices(shape[::-1])[::-1]
    found = np.zeros(shape[::-1], dtype=np.int64)
    stride = 1
    for axis, size in enumerate(box):
        found += cells[axis] // size * stride
        stride *= shape[axis] // size
    return found.ravel()


def boxed(shape: Sequence[int], nested: Sequence[Sequence[int]]) -> Indices:
    """The cells in an order that runs through boxes within boxes, the smallest first."""
    keys = [box_of(shape, box) for box in nested]
    return np.lexsort([np.arange(int(np.prod(shape))), *keys])


def runs(shape: Sequence[int]) -> Iterator[Indices]:
    """The cells along their axes, in each order of these, from one side or to and fro."""
    cells = np.arange(int(np.prod(shape))).reshape(shape[::-1])
    wide = [axis for axis, size in enumerate(cells.shape) if size > 1]
    thin = [axis for axis in range(cells.ndim) if axis not in wide]
    orders = itertools.permutations(wide) if len(wide) <= AXES_MAX else iter((tuple(wide),))
    for order in orders:
        turned = cells.transpose([*thin, *order])
        yield turned.ravel()
        if len(wide) > 1:
            rows = turned.reshape(-1, turned.shape[-1]).copy()
            rows[1::2] = rows[1::2, ::-1]
            yield rows.ravel()


def nested(shape: Sequence[int], places: Places) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Boxes that fill the domains of each tier exactly, those of a tier within those of the next.

    None where the domains of a tier are of unequal size, or no box has just their size.
    """
    sizes = []
    for domains in places.domains:
        counts = np.unique(np.bincount(domains)[np.unique(domains)])
        if len(counts) != 1:
            return
        sizes.append(int(counts[0]))
    yield from _nested(tuple(shape), (1,) * len(shape), [size for size in sizes if size > 1])


def _nested(
    shape: tuple[int, ...], inner: tuple[int, ...], sizes: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], ...]]:
    if not sizes:
        yield ()
        return
    volume = int(np.prod(inner))
    if sizes[0] % volume:
        return
    left = [whole // part for whole, part in zip(shape, inner, strict=True)]
    for factors in boxes(left, sizes[0] // volume):
        box = tuple(part * factor for part, factor in zip(inner, factors, strict=True))
        for rest in _nested(shape, box, sizes[1:]):
            yield (box, *rest)
