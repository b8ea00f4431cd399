"""Name and colour what the nodes of a job differ in, such as the stage of the pipeline.

A few parts have colours that most people can distinguish (after Okabe and Ito, 2008); more of them
go from dark to light in order (after viridis: van der Walt and Smith, 2015).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from railwright_cli.gang import Gang
from railwright_scheduler.communication import grid as grids
from railwright_scheduler.communication.grid import Axis, Grid
from railwright_scheduler.model.workload import Workload

FEW = ("#3a6ea5", "#c86a14", "#2a8f6d", "#b5508f", "#7d6bb8", "#3f8fb0", "#8c6239", "#8f8116")
MANY = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (240, 220, 60))
JOB_COLOR = FEW[0]


@dataclass(frozen=True, slots=True)
class Parts:
    """What one part is called (``kind``), how many there are, and those of each node rank; no node
    of a job without a workload has any."""

    kind: str
    count: int
    of: tuple[tuple[int, ...], ...]

    def color(self, part: int) -> str:
        """The colour of a part, as SVG has it."""
        if self.count <= len(FEW):
            return FEW[part]
        place = part / (self.count - 1) * (len(MANY) - 1)
        low = min(int(place), len(MANY) - 2)
        mixed = (a + (b - a) * (place - low) for a, b in zip(MANY[low], MANY[low + 1], strict=True))
        return "#" + "".join(f"{round(each):02x}" for each in mixed)

    def colors(self, rank: int) -> tuple[str, ...]:
        """One colour for each part of a node rank; the middle one's where there are many parts."""
        its = self.of[rank]
        if not its:
            return (JOB_COLOR,)
        if self.count > len(FEW):
            its = (its[len(its) // 2],)
        return tuple(map(self.color, its))

    def describe(self, rank: int) -> str:
        """The parts of a node rank as text; empty without a workload."""
        its = self.of[rank]
        if not its:
            return ""
        return f"{self.kind} {its[0]}" + (f"–{its[-1]}" if len(its) > 1 else "")


def parts(gang: Gang) -> Parts:
    """Find the first way to split the job in which its nodes differ."""
    nodes, per_node = len(gang.nodes), gang.ranks_per_node
    for kind, grid, axes in _splits(gang.workload) if gang.workload and per_node else ():
        groups = grid.groups(*axes).tolist()
        places = {rank: place for group in groups for place, rank in enumerate(group)}
        found = tuple(
            tuple(sorted({places[rank] for rank in ranks}))
            for ranks in (range(node * per_node, (node + 1) * per_node) for node in range(nodes))
        )
        if len({*found}) > 1:
            return Parts(kind, len(groups[0]), found)
    return Parts("", 0, ((),) * nodes)


def _splits(workload: Workload) -> Iterator[tuple[str, Grid, Sequence[Axis]]]:
    """What a part is called, and the axes of the grid of ranks that number it."""
    dense = grids.dense(workload.split, workload.recipe.framework)
    yield "stage", dense, [Axis.PIPELINE]
    yield "copy", dense, [Axis.REPLICA]
    if workload.split.expert > 1:
        experts = grids.experts(workload.split, workload.recipe.framework)
        others = [axis for axis, _ in experts.axes if axis not in (Axis.EXPERT, Axis.TENSOR)]
        yield "expert group", experts, others
    yield "data-parallel rank", dense, [Axis.DATA]
