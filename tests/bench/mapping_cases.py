"""What mappings are compared on: jobs whose ranks exchange as trainings do, and free places.

Floats and distances of the regular ones are those that published comparisons of process mapping
use: for each rank 1000 within its tensor parallel group, 100 along its data parallel ring and 20
along its pipeline; 1, 10, 40 and 80 within a node, a leaf, a pod and beyond.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.mapping.problem import Places

DEVICES = 8
DISTANCE = (1.0, 10.0, 40.0, 80.0)
LEAF_NODES_MAX = 8

Pods = Sequence[Sequence[int]]
"""How many nodes each leaf of each pod has free."""


@dataclass(frozen=True, slots=True)
class Axis:
    """How the ranks along an axis of the grid exchange, and how much each pair or neighbours."""

    kind: str
    size: int
    weight: float


@dataclass(frozen=True, slots=True)
class Case:
    """``axes`` are the fastest first; nodes have as many ``devices`` as these say in turn.

    The optimum is ``planted`` where it is known from how the job was made to fit: each node holds
    a tensor parallel group, each leaf whole data parallel rings, and leaves what is next to each
    other on the pipeline.
    """

    name: str
    axes: tuple[Axis, ...]
    pods: Pods
    devices: tuple[int, ...] = (DEVICES,)
    planted: bool = False

    @property
    def is_irregular(self) -> bool:
        return len({nodes for leaves in self.pods for nodes in leaves}) > 1

    def exchanges(self) -> TrafficMatrix:
        return exchanges(self.axes)

    def places(self) -> Places:
        """Domain after domain."""
        leaves = [nodes for leaves in self.pods for nodes in leaves]
        leaf = np.repeat(np.arange(len(leaves)), leaves)
        pod = np.repeat(np.arange(len(self.pods)), [len(leaves) for leaves in self.pods])[leaf]
        node = np.repeat(np.arange(len(leaf)), np.resize(self.devices, len(leaf)))
        return Places(np.vstack([node, leaf[node], pod[node]]), DISTANCE)


def tensor(size: int) -> Axis:
    return Axis("clique", size, 1000 / size)


def experts(size: int, weight: float) -> Axis:
    return Axis("clique", size, weight)


def data(size: int, weight: float = 100) -> Axis:
    return Axis("ring", size, weight)


def context(size: int, weight: float) -> Axis:
    return Axis("ring", size, weight)


def pipeline(size: int) -> Axis:
    return Axis("chain", size, 20)


def exchanges(axes: Sequence[Axis]) -> TrafficMatrix:
    """All pairs that the axes bring."""
    shape = tuple(axis.size for axis in axes)
    ranks = np.arange(int(np.prod(shape))).reshape(shape[::-1])
    ends: list[tuple[NDArray[np.int64], NDArray[np.int64], float]] = []
    for at, axis in enumerate(reversed(axes)):
        along = np.moveaxis(ranks, at, 0)
        ends += [
            (along[one].ravel(), along[other].ravel(), axis.weight) for one, other in _pairs(axis)
        ]
    a = np.concatenate([one for one, _, _ in ends])
    b = np.concatenate([other for _, other, _ in ends])
    weight = np.concatenate([np.full(len(one), weight) for one, _, weight in ends])
    return TrafficMatrix(shape, np.minimum(a, b), np.maximum(a, b), weight)


def _pairs(axis: Axis) -> list[tuple[int, int]]:
    line = list(itertools.pairwise(range(axis.size)))
    if axis.kind == "clique":
        return list(itertools.combinations(range(axis.size), 2))
    return [*line, (axis.size - 1, 0)] if axis.kind == "ring" and axis.size > 2 else line


def regular(leaves: int, nodes: int, pods: int = 1) -> Pods:
    return [[nodes] * (leaves // pods)] * pods


def irregular(nodes: int, *, seed: int, pods: int = 3) -> Pods:
    """Leaves of one node to all, as others have left them."""
    rng = random.Random(seed)
    leaves: list[int] = []
    while sum(leaves) < nodes:
        leaves.append(min(rng.randint(1, LEAF_NODES_MAX), nodes - sum(leaves)))
    return [
        leaves[pod * len(leaves) // pods : (pod + 1) * len(leaves) // pods] for pod in range(pods)
    ]


CASES = (
    Case("768 planted", (tensor(8), data(12), pipeline(8)), regular(8, 12), planted=True),
    Case("768 6 stages", (tensor(8), data(16), pipeline(6)), regular(6, 16), planted=True),
    Case("1024 planted", (tensor(8), data(16), pipeline(8)), regular(8, 16), planted=True),
    Case("3072", (tensor(8), data(32), pipeline(12)), regular(24, 16)),
    Case("3072 planted", (tensor(8), data(16), pipeline(24)), regular(24, 16), planted=True),
    Case("16384", (tensor(8), data(128), pipeline(16)), regular(128, 16, pods=8)),
    Case(
        "16384 planted",
        (tensor(8), data(16), pipeline(128)),
        regular(128, 16, pods=8),
        planted=True,
    ),
    Case(
        "4096, context parallel",
        (tensor(4), context(4, 60), data(32), pipeline(8)),
        regular(32, 16, pods=2),
    ),
    Case(
        "2048, experts and pipeline",
        (tensor(2), experts(8, 40), data(16, 60), pipeline(8)),
        regular(16, 16),
    ),
    Case("1024 free", (tensor(8), data(16), pipeline(8)), irregular(128, seed=1)),
    Case("2048 free", (tensor(8), data(32), pipeline(8)), irregular(256, seed=2)),
    Case("4096 free", (tensor(8), data(32), pipeline(16)), irregular(512, seed=3)),
    Case("16384 free", (tensor(8), data(64), pipeline(32)), irregular(2048, seed=4)),
    Case(
        "2048 free, context parallel",
        (tensor(4), context(2, 60), data(64), pipeline(4)),
        irregular(256, seed=7),
    ),
    Case("1024 free, experts", (tensor(8), experts(8, 30), data(16)), irregular(128, seed=8)),
    Case(
        "2048 free, experts and pipeline",
        (tensor(2), experts(8, 40), data(16, 60), pipeline(8)),
        irregular(256, seed=9),
    ),
    Case(
        "768 free, unlike nodes",
        (tensor(4), data(24), pipeline(8)),
        irregular(128, seed=10),
        devices=(8, 4),
    ),
    Case("64 free", (tensor(8), data(4), pipeline(2)), [[3, 2], [2, 1]]),
    Case("80 free, experts", (tensor(8), experts(5, 30), data(2)), [[4, 1], [2], [2, 1]]),
)
