"""Ranks that share a node, put together so that whole nodes are laid out and not single ranks.

The ranks of a node are a box of the grid or a piece of a run through it, whichever keeps the most
of the exchange inside. Several ways compete: the one that keeps the most inside a node is not
always the one whose nodes fit together best.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from railwright_scheduler.budget import CALL, ELEMENT, SORTED, UNLIMITED, WorkBudget
from railwright_scheduler.mapping import orders
from railwright_scheduler.mapping.problem import Exchanges, Indices, Places

BOXES = 4
LEFT_MOST = 1.5
"""What leaves so many times more to exchange between units than the best is not tried."""

T = TypeVar("T")

_Grouping = tuple[Indices, tuple[int, ...]]
"""The unit of each rank, and the shape of the units' own grid."""


@dataclass(frozen=True, slots=True, eq=False)
class Rooms:
    """Places for units instead of ranks; row ``i`` of ``members`` are the places in room ``i``,
    which are ``inside`` from each other."""

    places: Places
    members: Indices
    inside: float


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """What units exchange with each other and within, and the unit of each rank."""

    unit_of: Indices
    exchanges: Exchanges
    inside: float

    def gathered(self, where: Indices, rooms: Rooms) -> Indices | None:
        """The room of each unit when ranks are at these places; none if a unit is torn apart."""
        room_of = np.empty(rooms.members.size, dtype=np.int64)
        room_of[rooms.members] = np.arange(len(rooms.members))[:, None]
        found = np.empty(self.exchanges.ranks, dtype=np.int64)
        found[self.unit_of] = room_of[where]
        return found if np.array_equal(found[self.unit_of], room_of[where]) else None

    def spread(self, where: Indices, rooms: Rooms) -> Indices:
        """The place of each rank when its unit is in that room."""
        found = np.empty(len(self.unit_of), dtype=np.int64)
        found[np.argsort(self.unit_of, kind="stable")] = rooms.members[where].ravel()
        return found


def volume(exchanges: Exchanges, places: Places) -> int:
    """How many ranks a unit may have, so that units fill every node and the job."""
    return int(np.gcd.reduce([exchanges.ranks, *np.bincount(places.domains[0])]))


def rooms(places: Places, size: int) -> Rooms:
    """So many places of a node each; a node is no domain any more where it is just one room."""
    members = np.argsort(places.domains[0], kind="stable").reshape(-1, size)
    domains, distance = places.domains[:, members[:, 0]], places.distance
    if len(domains) > 1 and len(np.unique(domains[0])) == len(members):
        domains, distance = domains[1:], distance[1:]
    return Rooms(Places(domains, distance), members, places.distance[0])


def groupings(exchanges: Exchanges, size: int, work: WorkBudget = UNLIMITED) -> list[Units]:
    """Which ranks may be a unit: those boxes and that run which leave the least to exchange with
    others, the best first; and ranks in their own order, which lose to nobody."""
    count = exchanges.ranks // size
    work.spend((BOXES + 2) * (CALL + 2 * SORTED * len(exchanges.weight)))
    if size == 1:
        return [_units(exchanges, np.arange(exchanges.ranks), exchanges.shape)]
    boxes: list[_Grouping] = [
        _boxes(exchanges, box)
        for box in _counted(orders.boxes(exchanges.shape, size), exchanges, work)
    ]
    runs: list[_Grouping] = []
    for run in _counted(orders.runs(exchanges.shape), exchanges, work):
        unit_of = np.empty(exchanges.ranks, dtype=np.int64)
        unit_of[run] = np.arange(exchanges.ranks) // size
        runs.append((unit_of, (count,)))
    own = np.arange(exchanges.ranks) // size, (count,)
    kept = [*_best(exchanges, boxes, BOXES), *_best(exchanges, runs, 1)]
    return [
        _units(exchanges, *each) for each in [*(each for each in kept if not _same(each, own)), own]
    ]


def _best(exchanges: Exchanges, found: list[_Grouping], most: int) -> list[_Grouping]:
    """So many, and none that leaves much more to exchange with others than the best one."""
    whole = float(exchanges.weight.sum())
    left = [whole - _inside(exchanges, unit_of) for unit_of, _ in found]
    order = sorted(range(len(found)), key=left.__getitem__)[:most]
    return [found[at] for at in order if left[at] <= LEFT_MOST * left[order[0]]]


def cores(exchanges: Exchanges, size: int, work: WorkBudget = UNLIMITED) -> Units | None:
    """Parts of units of this size that had better not be torn apart, if they are smaller: a unit
    is split as long as the parts exchange less than all the units do."""
    boxes = [*_counted(orders.boxes(exchanges.shape, size), exchanges, work)]
    if not boxes:
        return None
    inside = {box: _inside(exchanges, orders.box_of(exchanges.shape, box)) for box in boxes}
    unit = box = max(boxes, key=lambda each: inside[each])
    while parts := [*_counted(_split(box), exchanges, work)]:
        inside |= {part: _inside(exchanges, orders.box_of(exchanges.shape, part)) for part in parts}
        part = max(parts, key=lambda each: inside[each])
        if inside[box] - inside[part] >= float(exchanges.weight.sum()) - inside[box]:
            break
        box = part
    if box == unit:
        return None
    return _units(exchanges, *_boxes(exchanges, box))


def _counted(ways: Iterator[T], exchanges: Exchanges, work: WorkBudget) -> Iterator[T]:
    """The same ways to group ranks; what each takes to judge is spent before it."""
    for way in ways:
        axes = len(exchanges.shape)
        work.spend(3 * CALL + ELEMENT * (2 * axes * exchanges.ranks + 2 * len(exchanges.weight)))
        yield way


def _boxes(exchanges: Exchanges, box: tuple[int, ...]) -> _Grouping:
    shape = tuple(whole // part for whole, part in zip(exchanges.shape, box, strict=True))
    return orders.box_of(exchanges.shape, box), shape


def _split(box: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The box cut along each axis, into as few equal parts as can be."""
    for axis, size in enumerate(box):
        parts = next((each for each in range(2, size + 1) if size % each == 0), 1)
        if parts > 1:
            yield (*box[:axis], size // parts, *box[axis + 1 :])


def _units(exchanges: Exchanges, unit_of: Indices, shape: tuple[int, ...]) -> Units:
    return Units(unit_of, exchanges.merged(unit_of, shape), _inside(exchanges, unit_of))


def _same(one: _Grouping, other: _Grouping) -> bool:
    return one[1] == other[1] and np.array_equal(one[0], other[0])


def _inside(exchanges: Exchanges, unit_of: Indices) -> float:
    together = unit_of[exchanges.a] == unit_of[exchanges.b]
    return float(exchanges.weight[together].sum())
