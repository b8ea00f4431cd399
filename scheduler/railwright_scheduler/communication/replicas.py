"""Communication of data-parallel replicas: gradients are reduced, and new weights are gathered.

Formulas: Rajbhandari et al., 2020, for sharding; within it replicas of all shards as in
PyTorch's hybrid sharding (Zhao et al., 2023); optimizers on the host, Ren et al., 2021, with their
state on its disks, Rajbhandari et al., 2021; parameter servers, Li et al., 2014.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from railwright_scheduler.communication import grid
from railwright_scheduler.communication.graph import Collective, Communicator, Overlap, Transfer
from railwright_scheduler.communication.grid import Axis, Grid
from railwright_scheduler.model.workload import Framework, Optimizer, Parallelism, Recipe, Sharding

STATE_BYTES = 12
"""A parameter's: its weight, momentum and variance in 32 bits."""


@dataclass(frozen=True, slots=True)
class _Held:
    """So many ``parameters`` of a rank, which those that differ along ``axes`` have too; of these,
    ``outside`` are in no layer."""

    name: str
    parameters: int
    outside: int
    ranks: Grid
    axes: tuple[Axis, ...]

    @property
    def shards(self) -> int:
        return self.ranks.size(*self.axes)


def communicators(
    parameters: tuple[int, int], split: Parallelism, recipe: Recipe, *, outside: int
) -> Iterator[Communicator]:
    """Those of the parameters that a rank holds, of all but experts and of experts; of the former
    so many are ``outside`` of layers."""
    if split.servers:
        yield _served(sum(parameters), split, recipe)
        return
    for held in _held(parameters, split, recipe, outside=outside):
        if recipe.sharding:
            yield from _sharded(held, split, recipe)
        else:
            yield from _whole(held, recipe)
    if recipe.optimizer is not Optimizer.DEVICE:
        share = updated(parameters, split, recipe)
        ranks = grid.dense(split, recipe.framework)
        yield Communicator("offload", ranks, (), tuple(_offloaded(share, recipe)))


def updated(parameters: tuple[int, int], split: Parallelism, recipe: Recipe) -> int:
    """Of these, those whose new weights one rank computes, or one server."""
    if split.servers:
        stages = split.pipeline, split.pipeline
        parts = split.tensor, split.expert
        return sum(map(math.prod, zip(parameters, stages, parts, strict=True))) // split.servers
    if not recipe.sharding:
        return sum(parameters)
    return sum(held.parameters // held.shards for held in _held(parameters, split, recipe))


def _held(
    parameters: tuple[int, int], split: Parallelism, recipe: Recipe, *, outside: int = 0
) -> Iterator[_Held]:
    dense, experts = grid.dense(split, recipe.framework), grid.experts(split, recipe.framework)
    yield _Held("data", parameters[0], outside, dense, (Axis.CONTEXT, Axis.DATA))
    if parameters[1]:
        yield _Held("expert data", parameters[1], 0, experts, (Axis.DATA,))


def _whole(held: _Held, recipe: Recipe) -> Iterator[Communicator]:
    axes = (*held.axes, Axis.REPLICA)
    gradients = recipe.gradient_bytes * held.parameters
    if held.ranks.size(*axes) > 1:
        all_reduced = Transfer("gradients", Collective.ALL_REDUCE, gradients, 1, _beside(recipe))
        yield Communicator(held.name, held.ranks, axes, (all_reduced,))


def _sharded(held: _Held, split: Parallelism, recipe: Recipe) -> Iterator[Communicator]:
    gradients = recipe.gradient_bytes * held.parameters
    # What is not kept whole is sent after each micro-batch, and gathered again for each pass.
    often = 1 if recipe.sharding is Sharding.OPTIMIZER else recipe.micro_batches(split)
    again = 2 * often if recipe.sharding is Sharding.PARAMETERS else 1
    # PyTorch keeps those of the whole model, beside its layers, between forward and backward pass
    # (fully_shard, reshard_after_forward).
    kept = held.outside if recipe.framework is Framework.TORCH and again > 1 else 0
    beside = _beside(recipe)
    if held.shards > 1:
        sizes = ((held.parameters - kept, again), (kept, often))
        weights = [
            Transfer("weights", Collective.ALL_GATHER, recipe.value_bytes * size, count, beside)
            for size, count in sizes
            if size
        ]
        # PyTorch's ZeroRedundancyOptimizer leaves gradients to DDP, which sums all of them up.
        by_ddp = recipe.framework is Framework.TORCH and recipe.sharding is Sharding.OPTIMIZER
        how = Collective.ALL_REDUCE if by_ddp else Collective.REDUCE_SCATTER
        summed = Transfer("gradients", how, gradients, often, beside)
        yield Communicator(held.name, held.ranks, held.axes, (summed, *weights))
    if held.ranks.size(Axis.REPLICA) > 1:
        share = gradients // held.shards
        summed = Transfer("gradients", Collective.ALL_REDUCE, share, often, beside)
        yield Communicator(f"{held.name} replicas", held.ranks, (Axis.REPLICA,), (summed,))


def _served(parameters: int, split: Parallelism, recipe: Recipe) -> Communicator:
    """Every rank pushes its gradients to the servers, which are no ranks of these, and pulls the
    weights."""
    everyone = Grid(((Axis.RANK, split.ranks),))
    gradients, weights = recipe.gradient_bytes * parameters, recipe.value_bytes * parameters
    there = Transfer("gradients", Collective.PUSH, gradients, 1, _beside(recipe))
    back = Transfer("weights", Collective.PULL, weights, 1)
    served = (replace(each, servers=split.servers) for each in (there, back))
    return Communicator("servers", everyone, (Axis.RANK,), tuple(served))


def _offloaded(parameters: int, recipe: Recipe) -> Iterator[Transfer]:
    gradients, weights = recipe.gradient_bytes * parameters, recipe.value_bytes * parameters
    yield Transfer("gradients", Collective.COPY, gradients, 1, _beside(recipe))
    yield Transfer("weights", Collective.COPY, weights, 1)
    if recipe.optimizer is Optimizer.DISK:
        yield Transfer("state", Collective.LOAD, STATE_BYTES * parameters, 1)
        yield Transfer("state", Collective.STORE, STATE_BYTES * parameters, 1)


def _beside(recipe: Recipe) -> Overlap:
    return Overlap.BACKWARD if recipe.overlap else Overlap.NOTHING
