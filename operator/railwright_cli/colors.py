"""Which part of its job a node has, and the colour of each part.

What nodes differ by in their work is told apart: the stage of the pipeline; or the copy of what is
sharded, the group that shares the experts, the place among data-parallel ranks. A few parts have
colours that most people can tell apart (after Okabe and Ito, 2008); more of them go from dark to
light in order (after viridis: van der Walt and Smith, 2015).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from railwright_cli.gang import Gang
from railwright_scheduler.communication import grid as grids
from railwright_scheduler.communication.grid import Axis, Grid

FEW = ("#3a6ea5", "#e08a1e", "#2a8f6d", "#b5508f", "#7d6bb8", "#5aa9c9", "#8c6239", "#b3a125")
MANY = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (240, 220, 60))
ALONE = "#3a6ea5"
SERVER = "#455a64"
BRIGHT = 140
"""Of 255: text on what is brighter is dark."""


@dataclass(frozen=True, slots=True)
class Parts:
    """``what`` parts are called, how many there are, and those of each node rank; servers have
    none, nor has anybody where it is not known what the job does."""

    what: str
    count: int
    of: tuple[tuple[int, ...], ...]

    def color(self, part: int) -> str:
        """As SVG has it."""
        if self.count <= len(FEW):
            return FEW[part]
        place = part / (self.count - 1) * (len(MANY) - 1)
        low = min(int(place), len(MANY) - 2)
        mixed = (a + (b - a) * (place - low) for a, b in zip(MANY[low], MANY[low + 1], strict=True))
        return "#" + "".join(f"{round(each):02x}" for each in mixed)

    def colors(self, rank: int) -> tuple[str, ...]:
        """Of a node rank: one for each of its parts, or of the middle one where there are many."""
        its = self.of[rank]
        if not its:
            return (SERVER if self.count else ALONE,)
        if self.count > len(FEW):
            its = (its[len(its) // 2],)
        return tuple(self.color(part) for part in its)

    def told(self, rank: int) -> str:
        """The parts of a node rank, for people; empty where nothing is known."""
        if not self.count:
            return ""
        its = self.of[rank]
        if not its:
            return "parameter server"
        return f"{self.what} {its[0]}" + (f"–{its[-1]}" if len(its) > 1 else "")


def parts(gang: Gang) -> Parts:
    """What tells the nodes of a job apart."""
    nodes, each = len(gang.nodes), gang.ranks_per_node
    if gang.workload is None or not each:
        return Parts("", 0, ((),) * nodes)
    _, split, recipe = gang.workload.parts
    dense, experts = (of(split, recipe.framework) for of in (grids.dense, grids.experts))
    # All but the experts' axes number their groups.
    others = [axis for axis, _ in experts.axes if axis not in (Axis.EXPERT, Axis.TENSOR)]
    for what, grid, axes in (
        ("stage", dense, [Axis.PIPELINE]),
        ("copy", dense, [Axis.REPLICA]),
        ("expert group", experts, others),
        ("data-parallel rank", dense, [Axis.DATA]),
    ):
        if what == "expert group" and split.expert == 1:
            continue
        places = _places(grid, axes)
        found = [tuple(sorted({*run})) for run in _runs(places, each, nodes)]
        if len({each for each in found if each}) > 1:
            return Parts(what, max(places) + 1, tuple(found))
    return Parts("", 0, ((),) * nodes)


def is_bright(color: str) -> bool:
    """Whether text on it had better be dark."""
    red, green, blue = (int(color[at : at + 2], 16) for at in (1, 3, 5))
    return 0.299 * red + 0.587 * green + 0.114 * blue > BRIGHT


def _places(grid: Grid, axes: Sequence[Axis]) -> list[int]:
    """Of each rank, where it comes along these axes, the first of them the fastest."""
    strides = itertools.accumulate((size for _, size in grid.axes), int.__mul__, initial=1)
    found = [0] * grid.ranks
    times = 1
    for (axis, size), stride in zip(grid.axes, strides, strict=False):
        if axis in axes:
            found = [place + rank // stride % size * times for rank, place in enumerate(found)]
            times *= size
    return found


def _runs(places: Sequence[int], each: int, nodes: int) -> list[Sequence[int]]:
    """Those of each node's ranks."""
    return [places[node * each : (node + 1) * each] for node in range(nodes)]
