"""Orders of places, domain after domain, in which runs of ranks end where domains end.

A ring of ranks that is laid out over domains is cut once for every domain that it reaches into. It
is cut the least where no domain holds the end of one ring and the beginning of the next: so domains
are chosen to add up to whole rings, as coins are to a sum.
"""

from __future__ import annotations

import numpy as np

from railwright_scheduler.budget import CALL, SORTED, UNLIMITED, WorkBudget
from railwright_scheduler.mapping.problem import Indices, Places

ADDED = 100
"""Work for each domain, and for each sum that some of them have."""


def sorted_line(places: Places) -> Indices:
    """The places as they stand: domain after domain, those of one further domain together."""
    return np.lexsort(places.domains)


def packed(places: Places, run: int, work: WorkBudget = UNLIMITED) -> Indices:
    """The same with the nearest domains in an order of which as many as can be end a run."""
    work.spend(CALL + SORTED * places.count)
    line = sorted_line(places)
    nearest = _parts(line, places.domains[0])
    if len(places.domains) == 1:
        return _in_order(nearest, run, work, used=0)
    found: list[Indices] = []
    for further in _parts(line, places.domains[1]):
        used = sum(map(len, found))
        found.append(_in_order(_parts(further, places.domains[0]), run, work, used=used))
    return np.concatenate(found)


def _parts(line: Indices, domains: Indices) -> list[Indices]:
    starts = np.flatnonzero(np.diff(domains[line], prepend=-1))
    return np.split(line, starts[1:])


def _in_order(parts: list[Indices], run: int, work: WorkBudget, *, used: int) -> Indices:
    """These domains, so that runs of which so much was used before end with one of them."""
    left = sorted(parts, key=len, reverse=True)
    found: list[Indices] = []
    while left:
        sizes = [len(part) for part in left]
        work.spend(CALL + ADDED * len(left))
        chosen = _adding_up(sizes, run - used % run, work) or [len(left) - 1]
        found += [left[at] for at in chosen]
        used += sum(len(left[at]) for at in chosen)
        left = [part for at, part in enumerate(left) if at not in {*chosen}]
    return np.concatenate(found)


def _adding_up(sizes: list[int], wanted: int, work: WorkBudget) -> list[int]:
    """Which ones add up to what is wanted, or to the most below it; the earliest that do."""
    reached: dict[int, tuple[int, int]] = {0: (0, -1)}
    for at, size in enumerate(sizes):
        if wanted in reached:
            break
        work.spend(ADDED * (50 + len(reached)))
        for total in sorted(reached, reverse=True):
            if total + size <= wanted and total + size not in reached:
                reached[total + size] = total, at
    total, chosen = max(reached), []
    while total:
        total, at = reached[total]
        chosen.append(at)
    return chosen[::-1]
