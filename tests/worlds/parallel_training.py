"""A small transformer trained in parallel by what torch brings, split as its command line says.

Tensor parallelism by DTensor's plans, with the sequence or without; pipelines by torch's schedules;
replicas by DDP, shards of parameters by FSDP2, with replicas or without. Nothing here counts bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from dataclasses import asdict, dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.pipelining.stage import _PipelineStageBase
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform
from torch.distributed.tensor.parallel.style import ParallelStyle
from torch.nn.parallel import DistributedDataParallel

import railwright

STEPS = 7


@dataclass(frozen=True, slots=True)
class Shape:
    """What is trained and how it is split; a batch has so many ``sequences`` a micro-batch."""

    tensor: int = 1
    pipeline: int = 1
    virtual: int = 1
    data: int = 1
    replicas: int = 1
    sharded: bool = False
    optimizer_sharded: bool = False
    half: bool = False
    sequence_parallel: bool = False
    micro_batches: int = 4
    layers: int = 4
    hidden: int = 64
    heads: int = 4
    vocabulary: int = 512
    length: int = 64
    sequences: int = 2

    @property
    def ranks(self) -> int:
        return self.tensor * self.pipeline * self.data

    @property
    def command(self) -> list[str]:
        """What each rank runs."""
        return [sys.executable, "-m", "worlds.parallel_training", json.dumps(asdict(self))]


class Block(nn.Module):
    """A layer; its heads are those of one rank."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.hidden
        self.heads = shape.heads // shape.tensor
        self.first_norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.joined, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        joined: torch.Tensor = self.joined(self.first_norm(hidden))
        rows = joined.view(*joined.shape[:2], self.heads, -1).transpose(1, 2)
        queries, keys, values = rows.chunk(3, -1)
        found = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        hidden = hidden + self.out(found.transpose(1, 2).flatten(2))
        hidden = hidden + self.down(nn.functional.gelu(self.up(self.second_norm(hidden))))
        return hidden


class Stage(nn.Module):
    """Consecutive layers; the first stage looks tokens up, the last one tells the next."""

    def __init__(self, shape: Shape, number: int) -> None:
        super().__init__()
        stages = shape.pipeline * shape.virtual
        self.table = nn.Embedding(shape.vocabulary, shape.hidden) if number == 0 else None
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers // stages))
        self.norm = nn.LayerNorm(shape.hidden) if number == stages - 1 else None
        self.output = (
            nn.Linear(shape.hidden, shape.vocabulary, bias=False) if number == stages - 1 else None
        )

    def forward(self, found: torch.Tensor) -> torch.Tensor:
        if self.table is not None:
            found = self.table(found)
        for layer in self.layers:
            found = layer(found)
        if self.norm is not None and self.output is not None:
            found = self.output(self.norm(found))
        return found

    def plan(self, *, sequence_parallel: bool) -> dict[str, ParallelStyle]:
        """How tensor-parallel ranks share it."""
        between = Shard(1) if sequence_parallel else Replicate()
        found: dict[str, ParallelStyle] = {}
        for number in range(len(self.layers)):
            at = f"layers.{number}"
            for wide, narrow in (("joined", "out"), ("up", "down")):
                found[f"{at}.{wide}"] = ColwiseParallel(input_layouts=between)
                found[f"{at}.{narrow}"] = RowwiseParallel(output_layouts=between)
            if sequence_parallel:
                found |= {f"{at}.{norm}_norm": SequenceParallel() for norm in ("first", "second")}
        if self.table is not None:
            found["table"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=between)
        if self.output is not None:
            found["output"] = ColwiseParallel(
                input_layouts=between, output_layouts=Shard(-1), use_local_output=False
            )
            if sequence_parallel:
                found["norm"] = SequenceParallel()
        return found


def spread(stage: Stage, shape: Shape, mesh: DeviceMesh) -> nn.Module:
    """The stage as tensor- and data-parallel ranks share it."""
    if shape.tensor > 1:
        plan = stage.plan(sequence_parallel=shape.sequence_parallel)
        parallelize_module(stage, mesh["tensor"], plan)
    if shape.sharded:
        within = mesh["replicas", "shards"] if shape.replicas > 1 else mesh["shards"]
        policy = MixedPrecisionPolicy()
        if shape.half:
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for part in (*stage.layers, stage):
            fully_shard(part, mesh=within, mp_policy=policy)
        return stage
    if shape.data > 1:
        _pre_dp_module_transform(stage)
        return DistributedDataParallel(stage, process_group=mesh["shards"].get_group())
    return stage


class Job:
    """The stages of one rank, and how a batch passes through all of them."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        sizes = shape.pipeline, shape.replicas, shape.data // shape.replicas, shape.tensor
        names = ("pipeline", "replicas", "shards", "tensor")
        mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
        place = mesh["pipeline"].get_local_rank()
        numbers = range(place, shape.pipeline * shape.virtual, shape.pipeline)
        self.stages = {number: spread(Stage(shape, number), shape, mesh) for number in numbers}
        parameters = [each for stage in self.stages.values() for each in stage.parameters()]
        self.optimizer: torch.optim.Optimizer
        if shape.optimizer_sharded:
            kind = torch.optim.AdamW
            self.optimizer = ZeroRedundancyOptimizer(parameters, kind, lr=1e-3, foreach=False)
        else:
            self.optimizer = torch.optim.AdamW(parameters, lr=1e-3, foreach=False)
        self.schedule = self._schedule(mesh) if shape.pipeline > 1 else None
        self.is_first, self.is_last = place == 0, place == shape.pipeline - 1

    def _schedule(self, mesh: DeviceMesh) -> Schedule1F1B | ScheduleInterleaved1F1B:
        count, group = self.shape.pipeline * self.shape.virtual, mesh["pipeline"].get_group()
        stages: list[_PipelineStageBase] = [
            PipelineStage(stage, number, count, torch.device("cpu"), group=group)
            for number, stage in self.stages.items()
        ]
        if self.shape.virtual > 1:
            return ScheduleInterleaved1F1B(stages, self.shape.micro_batches, loss_fn=loss_of)
        return Schedule1F1B(stages[0], self.shape.micro_batches, loss_fn=loss_of)

    def train(self) -> None:
        """One step."""
        # Logits stay where they are: ranks tell each other what the loss needs of them.
        with loss_parallel() if self.shape.tensor > 1 else contextlib.nullcontext():
            self._pass()
        if self.shape.sharded and self.shape.tensor == 1:
            parameters = self.stages[0].parameters()
            nn.utils.clip_grad_norm_(parameters, 1.0, foreach=False)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _pass(self) -> None:
        shape = self.shape
        size = shape.sequences * shape.micro_batches, shape.length
        text = torch.randint(shape.vocabulary, size)
        if self.schedule is None:
            for part in text.chunk(shape.micro_batches):
                torch.autograd.backward(loss_of(self.stages[0](part), part))
        else:
            target = text if self.is_last else None
            self.schedule.step(*([text] if self.is_first else []), target=target)


def loss_of(logits: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), text.flatten())


def main() -> None:
    shape = Shape(**json.loads(sys.argv[1]))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    job = Job(shape)
    for step in range(1, STEPS + 1):
        job.train()
        railwright.report(step)
    dist.barrier()
    dist.destroy_process_group()
    # Python's own end races with gloo's threads, and torch then aborts (pytorch/pytorch#179291).
    os._exit(0)


if __name__ == "__main__":
    main()
