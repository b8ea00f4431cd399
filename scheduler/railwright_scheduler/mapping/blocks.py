"""Blocks of ranks that share a node, so that whole nodes are laid out and not single ranks.

The ranks of a node are a box of the grid or a piece of a run through it, whichever keeps the most
of the exchange inside. Several ways compete: the one that keeps the most inside a node is not
always the one whose nodes fit together best.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from railwright_scheduler.arrays import Ints
from railwright_scheduler.budget import CALL, ELEMENT, SORTED, UNLIMITED, WorkBudget
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.mapping import initial_orders as orders
from railwright_scheduler.mapping.problem import Places

BOXES = 4
LEFT_MOST = 1.5
"""Groupings with so many times the traffic between blocks of the best one are not tried."""

T = TypeVar("T")

_Grouping = tuple[Ints, tuple[int, ...]]
"""The block of each rank, and the shape of the blocks' own grid."""


@dataclass(frozen=True, slots=True, eq=False)
class Rooms:
    """Places for blocks instead of ranks; row ``i`` of ``members`` are the places in room ``i``,
    which are ``within`` from each other."""

    places: Places
    members: Ints
    within: float

    @property
    def size(self) -> int:
        """Places in a room."""
        return int(self.members.shape[1])


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The traffic between blocks and inside them, and the block of each rank."""

    block_of: Ints
    matrix: TrafficMatrix
    within: float

    def gathered(self, where: Ints, rooms: Rooms) -> Ints | None:
        """The room of each block when ranks are at these places; none if a block is torn apart."""
        room_of = np.empty(rooms.members.size, dtype=np.int64)
        room_of[rooms.members] = np.arange(len(rooms.members))[:, None]
        found = np.empty(self.matrix.ranks, dtype=np.int64)
        found[self.block_of] = room_of[where]
        return found if np.array_equal(found[self.block_of], room_of[where]) else None

    def spread(self, where: Ints, rooms: Rooms) -> Ints:
        """The place of each rank when its block is in that room."""
        found = np.empty(len(self.block_of), dtype=np.int64)
        found[np.argsort(self.block_of, kind="stable")] = rooms.members[where].ravel()
        return found


def volume(matrix: TrafficMatrix, places: Places) -> int:
    """How many ranks a block may have, so that blocks fill every node and the job."""
    return int(np.gcd.reduce([matrix.ranks, *np.bincount(places.domains[0])]))


def rooms(places: Places, size: int) -> Rooms:
    """So many places of a node each; a node is no domain any more where it is just one room."""
    members = np.argsort(places.domains[0], kind="stable").reshape(-1, size)
    domains, distance = places.domains[:, members[:, 0]], places.distance
    if len(domains) > 1 and len(np.unique(domains[0])) == len(members):
        domains, distance = domains[1:], distance[1:]
    return Rooms(Places(domains, distance), members, places.distance[0])


def groupings(matrix: TrafficMatrix, size: int, work: WorkBudget = UNLIMITED) -> list[Blocks]:
    """The candidate blocks of ranks: the boxes and the run with the least traffic to others, the
    best first; and ranks in their own order."""
    count = matrix.ranks // size
    work.spend((BOXES + 2) * (CALL + 2 * SORTED * len(matrix.weight)))
    if size == 1:
        return [_blocks(matrix, np.arange(matrix.ranks), matrix.shape)]
    boxes: list[_Grouping] = [
        _boxes(matrix, box) for box in _counted(orders.boxes(matrix.shape, size), matrix, work)
    ]
    runs: list[_Grouping] = []
    for run in _counted(orders.runs(matrix.shape), matrix, work):
        block_of = np.empty(matrix.ranks, dtype=np.int64)
        block_of[run] = np.arange(matrix.ranks) // size
        runs.append((block_of, (count,)))
    own = np.arange(matrix.ranks) // size, (count,)
    kept = [*_best(matrix, boxes, BOXES), *_best(matrix, runs, 1)]
    return [
        _blocks(matrix, *each) for each in [*(each for each in kept if not _same(each, own)), own]
    ]


def cores(matrix: TrafficMatrix, size: int, work: WorkBudget = UNLIMITED) -> Blocks | None:
    """Parts of blocks of this size that had better not be torn apart, if they are smaller: a block
    is split as long as the parts exchange less than all the blocks do."""
    boxes = [*_counted(orders.boxes(matrix.shape, size), matrix, work)]
    if not boxes:
        return None
    within = {box: _within(matrix, orders.box_of(matrix.shape, box)) for box in boxes}
    whole = box = max(boxes, key=lambda each: within[each])
    while parts := [*_counted(_split(box), matrix, work)]:
        within |= {part: _within(matrix, orders.box_of(matrix.shape, part)) for part in parts}
        part = max(parts, key=lambda each: within[each])
        if within[box] - within[part] >= float(matrix.weight.sum()) - within[box]:
            break
        box = part
    return None if box == whole else _blocks(matrix, *_boxes(matrix, box))


def _best(matrix: TrafficMatrix, found: list[_Grouping], most: int) -> list[_Grouping]:
    """So many, and none that leaves much more to exchange with others than the best one."""
    whole = float(matrix.weight.sum())
    left = [whole - _within(matrix, block_of) for block_of, _ in found]
    order = sorted(range(len(found)), key=left.__getitem__)[:most]
    return [found[at] for at in order if left[at] <= LEFT_MOST * left[order[0]]]


def _counted(ways: Iterator[T], matrix: TrafficMatrix, work: WorkBudget) -> Iterator[T]:
    """The same candidates; the work to evaluate each is spent before it."""
    for way in ways:
        axes = len(matrix.shape)
        work.spend(3 * CALL + ELEMENT * (2 * axes * matrix.ranks + 2 * len(matrix.weight)))
        yield way


def _boxes(matrix: TrafficMatrix, box: tuple[int, ...]) -> _Grouping:
    shape = tuple(whole // part for whole, part in zip(matrix.shape, box, strict=True))
    return orders.box_of(matrix.shape, box), shape


def _split(box: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The box cut along each axis, into as few equal parts as can be."""
    for axis, size in enumerate(box):
        parts = next((each for each in range(2, size + 1) if size % each == 0), 1)
        if parts > 1:
            yield (*box[:axis], size // parts, *box[axis + 1 :])


def _blocks(matrix: TrafficMatrix, block_of: Ints, shape: tuple[int, ...]) -> Blocks:
    return Blocks(block_of, matrix.merged(block_of, shape), _within(matrix, block_of))


def _same(one: _Grouping, other: _Grouping) -> bool:
    return one[1] == other[1] and np.array_equal(one[0], other[0])


def _within(matrix: TrafficMatrix, block_of: Ints) -> float:
    together = block_of[matrix.a] == block_of[matrix.b]
    return float(matrix.weight[together].sum())
