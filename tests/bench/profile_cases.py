"""Trainings whose communication is derived and measured: the examples, and shapes of our own."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from fixtures.parallel_training import TrainingShape
from railwright_scheduler.model.workload import (
    Framework,
    Parallelism,
    Precision,
    Recipe,
    Sharding,
    Transformer,
    Workload,
)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STEPS = 7


@dataclass(frozen=True, slots=True)
class Case:
    """A command that so many ranks run, and the same in the words of a workload."""

    name: str
    command: tuple[str, ...]
    workload: Workload

    @property
    def ranks(self) -> int:
        return self.workload.split.ranks


def example(name: str, ranks: int, sharding: Sharding) -> Case:
    """One of the examples as it is; its options say nothing of what is sent."""
    model = Transformer(
        layers=2,
        hidden=64,
        heads=4,
        kv_heads=4,
        head_size=16,
        feed_forward=256,
        vocabulary=128,
        biased=True,
        positions=48,
    )
    recipe = Recipe(
        sequence=48,
        micro_batch=8,
        global_batch=8 * ranks,
        precision=Precision.SINGLE,
        gradient_bytes=4,
        sharding=sharding,
        framework=Framework.TORCH,
    )
    script = str(EXAMPLES / name / "train.py")
    command = (sys.executable, script, f"--steps={STEPS}", "--checkpoint-every=100")
    return Case(f"examples/{name}", command, Workload(model, Parallelism(data=ranks), recipe))


def shaped(name: str, shape: TrainingShape) -> Case:
    """A training of this shape."""
    model = Transformer(
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        kv_heads=shape.heads,
        head_size=shape.hidden // shape.heads,
        feed_forward=4 * shape.hidden,
        vocabulary=shape.vocabulary,
        biased=True,
    )
    split = Parallelism(
        tensor=shape.tensor,
        pipeline=shape.pipeline,
        virtual=shape.virtual,
        data=shape.data,
        replicas=shape.replicas,
    )
    recipe = Recipe(
        sequence=shape.length,
        micro_batch=shape.sequences,
        global_batch=shape.sequences * shape.micro_batches * shape.data,
        precision=Precision.HALF if shape.half else Precision.SINGLE,
        gradient_bytes=4,
        sequence_parallel=shape.sequence_parallel,
        sharding=_sharding(shape),
        framework=Framework.TORCH,
    )
    return Case(name, tuple(shape.command), Workload(model, split, recipe))


def _sharding(shape: TrainingShape) -> Sharding:
    if shape.optimizer_sharded:
        return Sharding.OPTIMIZER
    return Sharding.PARAMETERS if shape.sharded else Sharding.NONE


SPLIT = shaped("tensor 2 × pipeline 2 × data 2", TrainingShape(tensor=2, pipeline=2, data=2))

FSDP = example("fsdp", 2, Sharding.PARAMETERS)

HYBRID = TrainingShape(data=4, replicas=2, sharded=True, half=True, micro_batches=2)

CASES = (
    example("ddp", 2, Sharding.NONE),
    FSDP,
    SPLIT,
    shaped(
        "tensor 2 with its sequence × pipeline 2 of 2 stages each",
        TrainingShape(tensor=2, pipeline=2, virtual=2, sequence_parallel=True),
    ),
    shaped("pipeline 4 of 2 stages each", TrainingShape(pipeline=4, virtual=2, layers=8)),
    shaped("shards 2 × replicas 2, in 16 bits", HYBRID),
    shaped("optimizer shards 2", TrainingShape(data=2, optimizer_sharded=True, micro_batches=1)),
    shaped("shards 2 × tensor 2", TrainingShape(tensor=2, data=2, sharded=True, micro_batches=1)),
)

GROWN = (
    (FSDP, example("fsdp", 4, Sharding.PARAMETERS)),
    (shaped("shards × replicas 2", HYBRID), shaped("shards", replace(HYBRID, data=8))),
)
"""A pre-run, and the same with more replicas."""
