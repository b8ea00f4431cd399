"""Trainings on networks that are scarce further out, whose predicted steps are compared.

Every job could be one that is trained: its layers divide into its stages, its heads into its
tensor-parallel ranks. Networks are told under scrambled names, and part of each rack may be busy.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fixtures.jobs import job
from railwright_scheduler.model.snapshot import Job, Node, Snapshot
from railwright_scheduler.model.workload import (
    Attention,
    Framework,
    Parallelism,
    Recipe,
    Sharding,
    Transformer,
    Workload,
)
from railwright_topology.links import Links

DEVICES = 8
GPU = "nvidia.com/gpu"
LEVELS = ("block", "rack")
MACHINE = "DGX H100"

Free = Sequence[Sequence[int]]
"""How many nodes each rack of each block has free."""


@dataclass(frozen=True, slots=True)
class StepCase:
    """Racks have ``rack`` nodes each; for every node that may send out of a rack, and out of a
    block, there are as many as ``oversubscription`` says. A network of one block has two tiers.
    Switches of the racks ``reducing``, counted from 0, add up what crosses them."""

    name: str
    workload: Workload
    free: Free
    rack: int
    oversubscription: tuple[float, float]
    reducing: tuple[int, ...] = ()

    @property
    def nodes(self) -> int:
        """How many the job takes."""
        return self.workload.split.ranks // DEVICES

    def world(self) -> Snapshot:
        """The job alone in the queue; no name says where a node stands or in which order."""
        rng = random.Random(self.name)
        racks = [free for block in self.free for free in block]
        names = [f"n{at:04d}" for at in range(self.rack * len(racks))]
        labels = [f"r{at:03d}" for at in range(len(racks))]
        blocks = [f"b{at:02d}" for at in range(len(self.free))]
        for each in (names, labels, blocks):
            rng.shuffle(each)
        adding = frozenset(labels[-1 - at] for at in self.reducing)
        nodes = [
            _node(names.pop(), (block, label), busy=at >= free)
            for block, its in zip(blocks, self.free, strict=True)
            for label, free in zip([labels.pop() for _ in its], its, strict=True)
            for at in range(self.rack)
        ]
        rack, block = self.oversubscription
        return Snapshot(
            LEVELS,
            tuple(nodes),
            ("default",),
            (self._job(),),
            (Links(block), Links(rack, reducing=adding)),
        )

    def _job(self) -> Job:
        return job(
            uid=self.name,
            namespace="team",
            name="job",
            queue="default",
            priority=0,
            submitted_s=0,
            attempt=1,
            replicas=self.nodes,
            per_pod={GPU: DEVICES, "pods": 1},
            ranks_per_pod=DEVICES,
            workload=self.workload,
        )


def _node(name: str, domains: tuple[str, str], *, busy: bool) -> Node:
    used = {GPU: DEVICES, "pods": 1} if busy else {}
    return Node(name, domains, {GPU: DEVICES, "pods": 110}, used, machine=MACHINE)


def even(racks: int, nodes: int, *, blocks: int = 1) -> Free:
    return [[nodes] * (racks // blocks)] * blocks


def uneven(nodes: int, *, rack: int, blocks: int, seed: int) -> Free:
    """Racks of one free node to all, as others have left them."""
    rng = random.Random(seed)
    racks: list[int] = []
    while sum(racks) < nodes:
        racks.append(min(rng.randint(1, rack), nodes - sum(racks)))
    return [racks[at::blocks] for at in range(blocks)]


DENSE = Transformer(48, 8192, 64, 8, 128, 28_672, 128_000, gated=True)
LARGE = Transformer(96, 12_288, 96, 96, 128, 4 * 12_288, 51_200)
MIXTURE = Transformer(48, 4096, 32, 8, 128, 1536, 128_000, gated=True, experts=128, chosen=8)

MEGATRON = Recipe(4096, 1, 512, sequence_parallel=True, gradient_bytes=4)
PIPELINE_FIRST = replace(MEGATRON, framework=Framework.MEGATRON_PIPELINE_FIRST)
FEW = replace(PIPELINE_FIRST, global_batch=64)
SHARDED = Recipe(
    4096,
    1,
    512,
    sharding=Sharding.PARAMETERS,
    framework=Framework.TORCH,
    overlap=True,
)

CASES = (
    StepCase(
        "dense, 8 nodes",
        Workload(
            DENSE,
            Parallelism(tensor=8, pipeline=4, data=2),
            replace(PIPELINE_FIRST, global_batch=64),
        ),
        [[3, 2, 2, 1]],
        8,
        (4.0, 1.0),
    ),
    StepCase(
        "dense, stages first, 32 nodes",
        Workload(DENSE, Parallelism(tensor=8, pipeline=4, data=8), PIPELINE_FIRST),
        even(4, 8),
        8,
        (4.0, 1.0),
    ),
    StepCase(
        "the same, all may leave",
        Workload(DENSE, Parallelism(tensor=8, pipeline=4, data=8), PIPELINE_FIRST),
        even(4, 8),
        8,
        (1.0, 1.0),
    ),
    StepCase(
        "dense, 64 nodes, uneven",
        Workload(DENSE, Parallelism(tensor=8, pipeline=8, data=8), MEGATRON),
        uneven(64, rack=8, blocks=2, seed=1),
        8,
        (2.0, 8.0),
    ),
    StepCase(
        "dense, 128 nodes, uneven",
        Workload(LARGE, Parallelism(tensor=8, pipeline=8, data=16), MEGATRON),
        uneven(128, rack=16, blocks=3, seed=2),
        16,
        (2.0, 4.0),
    ),
    StepCase(
        "dense, stages first, 256 nodes",
        Workload(LARGE, Parallelism(tensor=8, pipeline=16, data=16), PIPELINE_FIRST),
        even(32, 8, blocks=4),
        8,
        (2.0, 8.0),
    ),
    StepCase(
        "dense, half a node, 32 nodes, uneven",
        Workload(DENSE, Parallelism(tensor=4, pipeline=4, data=16), MEGATRON),
        uneven(32, rack=8, blocks=1, seed=3),
        8,
        (8.0, 1.0),
    ),
    StepCase(
        "sharded, 32 nodes, uneven",
        Workload(DENSE, Parallelism(data=256), SHARDED),
        uneven(32, rack=8, blocks=1, seed=4),
        8,
        (4.0, 1.0),
    ),
    StepCase(
        "sharded with replicas, 64 nodes, uneven",
        Workload(DENSE, Parallelism(data=512, replicas=8), SHARDED),
        uneven(64, rack=12, blocks=2, seed=5),
        12,
        (4.0, 8.0),
    ),
    StepCase(
        "experts, 32 nodes",
        Workload(MIXTURE, Parallelism(data=256, expert=32), replace(MEGATRON, global_batch=1024)),
        even(8, 4),
        8,
        (4.0, 1.0),
    ),
    StepCase(
        "experts and stages, 64 nodes, uneven",
        Workload(
            MIXTURE,
            Parallelism(pipeline=4, data=128, expert=32),
            replace(MEGATRON, global_batch=1024),
        ),
        uneven(64, rack=8, blocks=2, seed=6),
        8,
        (2.0, 4.0),
    ),
    StepCase(
        "context, 32 nodes",
        Workload(
            DENSE,
            Parallelism(tensor=8, context=4, pipeline=4, data=2),
            replace(PIPELINE_FIRST, sequence=65_536, global_batch=32),
        ),
        [[6, 6, 5, 5, 5, 5]],
        8,
        (8.0, 1.0),
    ),
    StepCase(
        "context by heads, 32 nodes, uneven",
        Workload(
            LARGE,
            Parallelism(tensor=2, context=8, pipeline=4, data=4),
            replace(MEGATRON, sequence=65_536, global_batch=32, attention=Attention.HEADS),
        ),
        uneven(32, rack=8, blocks=2, seed=7),
        8,
        (4.0, 8.0),
    ),
    StepCase(
        "dense, 48 of 70 nodes, uneven",
        Workload(DENSE, Parallelism(tensor=8, pipeline=6, data=8), MEGATRON),
        uneven(70, rack=12, blocks=2, seed=8),
        12,
        (4.0, 8.0),
    ),
    StepCase(
        "experts, 16 of 30 nodes, uneven",
        Workload(
            MIXTURE,
            Parallelism(pipeline=2, data=64, expert=32),
            replace(MEGATRON, global_batch=256),
        ),
        uneven(30, rack=8, blocks=1, seed=9),
        8,
        (4.0, 1.0),
    ),
    StepCase(
        "sharded with replicas, 32 of 50 nodes, uneven",
        Workload(DENSE, Parallelism(data=256, replicas=4), SHARDED),
        uneven(50, rack=12, blocks=2, seed=10),
        12,
        (8.0, 8.0),
    ),
    StepCase(
        "dense, 16 of 40 nodes, SHARP in three racks",
        Workload(
            DENSE,
            Parallelism(tensor=8, pipeline=2, data=8),
            replace(PIPELINE_FIRST, global_batch=64),
        ),
        [[16, 8], [5, 8, 3]],
        16,
        (4.0, 2.0),
        reducing=(1, 2, 3),
    ),
)
