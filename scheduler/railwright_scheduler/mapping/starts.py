"""Mappings to begin with: what the shape of the grid and the room in each domain suggest.

Three families, for a job that has just as many ranks as there are places: runs through the grid
along sorted domains, boxes within boxes where domains are of equal size, and recursive bisection
where they are not. None of them wins everywhere, and all of them together cost less than a search.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from railwright_scheduler.budget import CALL, ELEMENT, SORTED, WorkBudget
from railwright_scheduler.mapping import bisection, lines, orders
from railwright_scheduler.mapping.draws import Draws
from railwright_scheduler.mapping.problem import Exchanges, Indices, Places

LAID_RANKS = 1_000_000
"""Ranks laid along lines in all of these starts together."""

NESTED_MAX = 64
BISECTIONS_MAX = 8
BISECTED_RANKS = 8_000
"""Ranks bisected in all of these together."""


def starts(exchanges: Exchanges, places: Places, budget: WorkBudget) -> Iterator[Indices]:
    """The place of each rank, in one way after the other. Raises OverBudgetError."""
    wide = min(orders.AXES_MAX, sum(size > 1 for size in exchanges.shape))
    budget.spend(2 * math.factorial(wide) * (CALL + ELEMENT * exchanges.ranks))
    runs = [np.arange(exchanges.ranks), *orders.runs(exchanges.shape)]
    laid = itertools.product(_lines(exchanges, places, budget), runs)
    work = exchanges.ranks * exchanges.heft
    for line, run in itertools.islice(laid, LAID_RANKS // work + 1):
        budget.spend(CALL + ELEMENT * exchanges.ranks)
        yield _laid(run, line)
    line = lines.sorted_line(places)
    tries = max(1, NESTED_MAX // exchanges.heft)
    for nested in itertools.islice(orders.nested(exchanges.shape, places), tries):
        budget.spend(len(nested) * (CALL + SORTED * exchanges.ranks))
        yield _laid(orders.boxed(exchanges.shape, nested), line)
    yield bisection.bisected(exchanges, places, work=budget)
    draws = Draws()
    for _ in range(min(BISECTIONS_MAX, BISECTED_RANKS // work)):
        yield bisection.bisected(exchanges, places, draws=draws, work=budget)


def _laid(run: Indices, line: Indices) -> Indices:
    where = np.empty(len(run), dtype=np.int64)
    where[run] = line
    return where


def _lines(exchanges: Exchanges, places: Places, work: WorkBudget) -> Iterator[Indices]:
    """Places in order, for rings and planes of each size to end where domains do."""
    yield lines.sorted_line(places)
    sizes = [size for size in exchanges.shape if size > 1]
    runs = {*sizes, *(one * other for one, other in itertools.combinations(sizes, 2))}
    for run in sorted(runs - {exchanges.ranks}):
        yield lines.packed(places, run, work)
