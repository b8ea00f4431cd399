"""Initial orders of ranks: what the shape of the grid and the room in each domain suggest.

Rank grids are far from arbitrary graphs: each axis is a ring, a chain or a clique of its own, so
boxes of them have the least surface. Three families, none of which wins everywhere, and all of them
together cost less than a search: runs through the grid along sorted domains, boxes within boxes
where domains are of equal size, and recursive bisection where they are not.

A ring of ranks that is laid out over domains is cut once for every domain that it reaches into. It
is cut the least where no domain holds the end of one ring and the beginning of the next: so domains
are chosen to add up to whole rings, as coins are to a sum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from railwright_scheduler.arrays import Ints
from railwright_scheduler.budget import CALL, ELEMENT, SORTED, UNLIMITED, WorkBudget
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.mapping.bisection import bisected, reachable_sums, subset
from railwright_scheduler.mapping.problem import Places, by_domain
from railwright_scheduler.random_source import RandomSource

AXES_MAX = 5
"""Longer grids are ordered as they are numbered: the orders of more axes are too many."""

LAID_RANKS = 1_000_000
"""Ranks laid along lines in all of these orders together."""

NESTED_MAX = 64
BISECTIONS_MAX = 8
BISECTED_RANKS = 8_000
"""Ranks bisected in all of these together."""

ADDED = 100
"""Work for each domain that is added to the sums of others."""


def initial_orders(matrix: TrafficMatrix, places: Places, budget: WorkBudget) -> Iterator[Ints]:
    """The place of each rank, in one way after the other. Raises OverBudgetError."""
    wide = min(AXES_MAX, sum(size > 1 for size in matrix.shape))
    budget.spend(2 * math.factorial(wide) * (CALL + ELEMENT * matrix.ranks))
    through = [np.arange(matrix.ranks), *runs(matrix.shape)]
    laid = itertools.product(_lines(matrix, places, budget), through)
    work = matrix.ranks * matrix.heft
    for line, run in itertools.islice(laid, LAID_RANKS // work + 1):
        budget.spend(CALL + ELEMENT * matrix.ranks)
        yield _laid(run, line)
    line = np.lexsort(places.domains)
    tries = max(1, NESTED_MAX // matrix.heft)
    for boxes_in_boxes in itertools.islice(nested(matrix.shape, places), tries):
        budget.spend(len(boxes_in_boxes) * (CALL + SORTED * matrix.ranks))
        yield _laid(boxed(matrix.shape, boxes_in_boxes), line)
    yield bisected(matrix, places, work=budget)
    source = RandomSource()
    for _ in range(min(BISECTIONS_MAX, BISECTED_RANKS // work)):
        yield bisected(matrix, places, source=source, work=budget)


def _laid(run: Ints, line: Ints) -> Ints:
    where = np.empty(len(run), dtype=np.int64)
    where[run] = line
    return where


def _lines(matrix: TrafficMatrix, places: Places, work: WorkBudget) -> Iterator[Ints]:
    """Places in order, for rings and planes of each size to end where domains do."""
    yield np.lexsort(places.domains)
    sizes = [size for size in matrix.shape if size > 1]
    lengths = {*sizes, *(one * other for one, other in itertools.combinations(sizes, 2))}
    for run in sorted(lengths - {matrix.ranks}):
        yield packed(places, run, work)


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


def box_of(shape: Sequence[int], box: Sequence[int]) -> Ints:
    """Which box each cell lies in, numbered as the grid of boxes is."""
    cells = np.indices(shape[::-1])[::-1]
    found = np.zeros(shape[::-1], dtype=np.int64)
    stride = 1
    for axis, size in enumerate(box):
        found += cells[axis] // size * stride
        stride *= shape[axis] // size
    return found.ravel()


def boxed(shape: Sequence[int], nested: Sequence[Sequence[int]]) -> Ints:
    """The cells in an order that runs through boxes within boxes, the smallest first."""
    keys = [box_of(shape, box) for box in nested]
    return np.lexsort([np.arange(int(np.prod(shape))), *keys])


def runs(shape: Sequence[int]) -> Iterator[Ints]:
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


def packed(places: Places, run: int, work: WorkBudget = UNLIMITED) -> Ints:
    """Places domain after domain, the nearest in an order in which as many as can be end a run."""
    work.spend(CALL + SORTED * places.count)
    line = np.lexsort(places.domains)
    nearest = by_domain(line, places.domains[0])
    if len(places.domains) == 1:
        return _in_order(nearest, run, work, used=0)
    found: list[Ints] = []
    for further in by_domain(line, places.domains[1]):
        used = sum(map(len, found))
        found.append(_in_order(by_domain(further, places.domains[0]), run, work, used=used))
    return np.concatenate(found)


def _in_order(parts: list[Ints], run: int, work: WorkBudget, *, used: int) -> Ints:
    """These domains, so that runs of which so much was used before end with one of them: those that
    add up to what is left of a run, or to the most below it; the earliest that do."""
    left = sorted(parts, key=len, reverse=True)
    found: list[Ints] = []
    while left:
        sizes = [len(part) for part in left]
        work.spend(CALL + ADDED * len(left))
        reached = reachable_sums(sizes)
        up_to_target = (2 << (run - used % run)) - 1
        chosen = subset(sizes, reached, (reached[-1] & up_to_target).bit_length() - 1)
        if not any(chosen):
            chosen[-1] = True
        found += itertools.compress(left, chosen)
        used += sum(itertools.compress(sizes, chosen))
        left = [part for part, its in zip(left, chosen, strict=True) if not its]
    return np.concatenate(found)
