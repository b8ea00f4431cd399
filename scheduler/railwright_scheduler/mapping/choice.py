"""Which places to take where there are more than ranks.

The fewest and fullest domains are not always the best: rings of four are better off with four nodes
in each of two leaves than with five and three. Where there are few ways that differ by more than
names, all of them are given, so that one more place only adds to what there is to choose from.
Otherwise the ways given take the fewest domains, or domains in multiples that boxes could fill, or
as much of each domain as of any other.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from railwright_scheduler.mapping.problem import Indices, Places

MULTIPLES = (1, 4, 8, 2, 16, 3, 6, 12)
"""What boxes are likely to have as a side, the likeliest first."""

PLACES_TAKEN = 8_000
"""In all the ways together that are given, if it is more than two."""

Shape = int | tuple["Shape", ...]


def all_ways(places: Places, count: int, most: int) -> list[Indices] | None:
    """One for each way to take so many places that differs by more than names, or none if there
    are more than so many of them on the way there."""
    ways = {_shape(places, np.arange(places.count)): np.arange(places.count)}
    for _ in range(places.count - count):
        fewer: dict[Shape, Indices] = {}
        for kept in ways.values():
            _, last = np.unique(places.domains[0][kept][::-1], return_index=True)
            for left_out in len(kept) - 1 - last:
                without = np.delete(kept, left_out)
                fewer.setdefault(_shape(places, without), without)
                if len(fewer) > most:
                    return None
        ways = fewer
    return [*ways.values()]


def good_ways(places: Places, count: int) -> list[Indices]:
    """Those that promise the most."""
    found: dict[bytes, Indices] = {}
    for multiple in MULTIPLES[: max(1, PLACES_TAKEN // count // 2)]:
        room = _whole(places, multiple)
        if len(room) >= count:
            for tight in (True, False):
                taken = np.sort(_taken(places.domains, room, count, tight=tight))
                found.setdefault(taken.tobytes(), taken)
    taken = np.sort(_shared(places.domains, np.arange(places.count), count))
    found.setdefault(taken.tobytes(), taken)
    return [*found.values()]


def _shape(places: Places, kept: Indices) -> Shape:
    """How these places lie in each other, whatever the domains are called."""
    around = places.domains[:, kept]
    shapes: list[Shape] = [1] * len(kept)
    while len(around):
        _, first, at = np.unique(around[0], return_index=True, return_inverse=True)
        inside: list[list[Shape]] = [[] for _ in first]
        for one, shape in zip(at, shapes, strict=True):
            inside[one].append(shape)
        shapes = [tuple(sorted(each, reverse=True)) for each in inside]
        around = around[1:, first]
    return tuple(sorted(shapes, reverse=True))


def _whole(places: Places, multiple: int) -> Indices:
    """So many of each nearest domain's places as are a multiple."""
    sizes = np.bincount(places.domains[0])
    parts = np.split(np.argsort(places.domains[0], kind="stable"), np.cumsum(sizes)[:-1])
    return np.concatenate([part[: len(part) // multiple * multiple] for part in parts])


def _shared(domains: NDArray[np.int64], room: Indices, count: int) -> Indices:
    """So many of this room, the same number out of each of the fewest domains that have it."""
    if not len(domains):
        return room[:count]
    parts = _parts(domains[-1], room)
    for number in range(1, len(parts) + 1):
        share = count // number
        enough = [part for part in parts if len(part) >= share]
        if number * share == count and len(enough) >= number:
            return np.concatenate([_shared(domains[:-1], part, share) for part in enough[-number:]])
    return _taken(domains, room, count, tight=True)


def _parts(domains: Indices, room: Indices) -> list[Indices]:
    """Those in one domain together, the fewest first."""
    line = room[np.argsort(domains[room], kind="stable")]
    parts = np.split(line, np.flatnonzero(np.diff(domains[line])) + 1)
    return sorted(parts, key=len)


def _taken(domains: NDArray[np.int64], room: Indices, count: int, *, tight: bool) -> Indices:
    """So many of this room, out of the largest domains and of one that has enough for the rest:
    the one with the least, or the one with the most."""
    if not len(domains):
        return room[:count]
    parts = _parts(domains[-1], room)
    found: list[Indices] = []
    while count:
        enough = [at for at, part in enumerate(parts) if len(part) >= count]
        part = parts.pop(enough[0] if tight and enough else -1)
        found.append(_taken(domains[:-1], part, min(count, len(part)), tight=tight))
        count -= len(found[-1])
    return np.concatenate(found)
