"""Ranks as a grid: one axis for each way a job is split.

Frameworks number ranks along the axes in an order of their own. Megatron Core: tensor, context,
data, pipeline, or pipeline before data (``--use-tp-pp-dp-mapping``). DeepSpeed: tensor, sequence,
data, pipeline. PyTorch (torchtitan's device mesh, which names the slowest first): pipeline,
replicas, shards, context, tensor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from railwright_scheduler.model.workload import Framework, Parallelism


class Axis(StrEnum):
    """A way to split a job."""

    TENSOR = "tensor"
    CONTEXT = "context"
    EXPERT = "expert"
    DATA = "data"
    REPLICA = "replica"
    PIPELINE = "pipeline"
    RANK = "rank"


@dataclass(frozen=True, slots=True)
class Grid:
    """``axes`` are those that ranks are numbered along, the fastest first, with their sizes."""

    axes: tuple[tuple[Axis, int], ...]

    def __post_init__(self) -> None:
        names = [axis for axis, _ in self.axes]
        if len({*names}) < len(names):
            raise ValueError(f"an axis appears twice: {', '.join(names)}")
        if small := [f"{axis} {size}" for axis, size in self.axes if size < 1]:
            raise ValueError(f"an axis has at least one rank, not {', '.join(small)}")

    @property
    def ranks(self) -> int:
        """How many there are."""
        return math.prod(size for _, size in self.axes)

    def size(self, *axes: Axis) -> int:
        """How many ranks differ along these axes alone; 1 for those that the grid has not."""
        return math.prod(size for axis, size in self.axes if axis in axes)

    def groups(self, *axes: Axis) -> NDArray[np.int64]:
        """The ranks that differ along these axes alone: a row each, in the order of ranks."""
        slowest_first = self.axes[::-1]
        ranks = np.arange(self.ranks).reshape([size for _, size in slowest_first])
        along = [at for at, (axis, _) in enumerate(slowest_first) if axis in axes]
        outside = [at for at in range(len(slowest_first)) if at not in along]
        return ranks.transpose([*outside, *along]).reshape(-1, self.size(*axes))


def distinct_rows(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct rows, in some order, and the number of each."""
    # As bytes: numpy's own way to compare rows makes each a record of as many fields.
    whole = np.ascontiguousarray(rows).view(f"V{rows.itemsize * rows.shape[1]}").ravel()
    _, first, counts = np.unique(whole, return_index=True, return_counts=True)
    return rows[first], counts


def dense(split: Parallelism, framework: Framework) -> Grid:
    """The ranks as all layers but experts see them."""
    sizes = {
        Axis.TENSOR: split.tensor,
        Axis.CONTEXT: split.context,
        Axis.DATA: split.data // split.replicas,
        Axis.REPLICA: split.replicas,
        Axis.PIPELINE: split.pipeline,
    }
    return Grid(tuple((axis, sizes[axis]) for axis in _axes(framework)))


def experts(split: Parallelism, framework: Framework) -> Grid:
    """The same ranks as experts see them: over all of a stage, or over those of DeepSpeed's that
    are at the same place among tensor-parallel ranks."""
    kept = split.tensor if framework is Framework.DEEPSPEED else 1
    sizes = {
        Axis.DATA: split.stage // (kept * split.expert * split.replicas),
        Axis.REPLICA: split.replicas,
        Axis.PIPELINE: split.pipeline,
    }
    rest = tuple((axis, sizes[axis]) for axis in _axes(framework) if axis in sizes)
    return Grid(((Axis.TENSOR, kept), (Axis.EXPERT, split.expert), *rest))


def _axes(framework: Framework) -> tuple[Axis, ...]:
    """The axes of the rank grid of all layers but experts, the fastest first."""
    if framework is Framework.MEGATRON_PIPELINE_FIRST:
        return Axis.TENSOR, Axis.CONTEXT, Axis.PIPELINE, Axis.DATA, Axis.REPLICA
    return Axis.TENSOR, Axis.CONTEXT, Axis.DATA, Axis.REPLICA, Axis.PIPELINE
