"""The communicators of a transformer, of how it is split.

Formulas: tensor parallelism, Shoeybi et al., 2019; with its sequence, Korthikanti et al., 2022;
pipelines, Narayanan et al., 2021; context as a ring, Liu et al., 2023, or by heads, Jacobs et al.,
2023; experts, Rajbhandari et al., 2022, on ranks folded as in Megatron Core.
"""

from __future__ import annotations

from collections.abc import Iterator

from railwright_scheduler.communication import grid, parameters, replicas
from railwright_scheduler.communication.graph import Collective, Communicator, Overlap, Transfer
from railwright_scheduler.communication.grid import Axis
from railwright_scheduler.model.workload import (
    Attention,
    Framework,
    Parallelism,
    Precision,
    Recipe,
    Transformer,
)


def communicators(
    model: Transformer, split: Parallelism, recipe: Recipe
) -> tuple[Communicator, ...]:
    """Those that send anything, for ranks numbered as the framework does."""
    dense = grid.dense(split, recipe.framework)
    pipeline = tuple(_pipeline(model, split, recipe))
    found = [
        Communicator("tensor", dense, (Axis.TENSOR,), tuple(_tensor(model, split, recipe))),
        Communicator("context", dense, (Axis.CONTEXT,), tuple(_context(model, split, recipe))),
        Communicator("pipeline", dense, (Axis.PIPELINE,), pipeline),
    ]
    if model.experts:
        experts = grid.experts(split, recipe.framework)
        tokens = tuple(_expert(model, split, recipe))
        found.append(Communicator("expert", experts, (Axis.EXPERT,), tokens))
    found = [each for each in found if each.ranks > 1]
    held, outside = parameters.held(model, split), parameters.outside(model, split)
    return (*found, *replicas.communicators(held, split, recipe, outside=outside))


def _tensor(model: Transformer, split: Parallelism, recipe: Recipe) -> Iterator[Transfer]:
    """The traffic of split token tables, beside that of layers: the last stage predicts tokens
    instead of embedding them, and its gradients are reduced beside its products."""
    size = recipe.value_bytes * recipe.tokens(split) * model.hidden
    # Experts are not split over tensor-parallel ranks: of their layers only attention is.
    blocks = 1 if model.experts else 2
    micro_batches = recipe.micro_batches(split)
    each = blocks * parameters.layers(model, split) * micro_batches
    looked_up = micro_batches if split.pipeline == 1 else 0
    beside = Overlap.OUTPUT
    if not recipe.sequence_parallel:
        count = recipe.passes * each + looked_up
        yield Transfer("activations", Collective.ALL_REDUCE, size, count)
        yield Transfer(
            "gradients of the output", Collective.ALL_REDUCE, size, micro_batches, beside
        )
        if split.pipeline > 1 and recipe.shares_handed:
            # Each rank sends its part to the next stage, which puts them together.
            handed = 2 * micro_batches * split.virtual
            yield Transfer("activations handed on", Collective.ALL_GATHER, size, handed)
        return
    # What is multiplied in 8 bits is made so first. Megatron gathers inputs once more for the
    # gradients of weights, PyTorch has kept them.
    again = 0 if recipe.framework is Framework.TORCH else 1
    gathered = size // recipe.value_bytes if recipe.precision is Precision.FP8 else size
    meanwhile = Overlap.PRODUCTS if recipe.overlap_tensor else Overlap.NOTHING
    count = (recipe.passes + again) * each
    yield Transfer("activations", Collective.ALL_GATHER, gathered, count, meanwhile)
    yield Transfer("activations", Collective.REDUCE_SCATTER, size, recipe.passes * each, meanwhile)
    yield Transfer("tables of tokens", Collective.ALL_GATHER, size, looked_up + micro_batches)
    if looked_up:
        yield Transfer("tables of tokens", Collective.REDUCE_SCATTER, size, looked_up)
    if again:
        yield Transfer("inputs of the output", Collective.ALL_GATHER, size, micro_batches, beside)
    yield Transfer(
        "gradients of the output", Collective.REDUCE_SCATTER, size, micro_batches, beside
    )


def _context(model: Transformer, split: Parallelism, recipe: Recipe) -> Iterator[Transfer]:
    rows = recipe.value_bytes * recipe.tokens(split) * model.head_size // split.tensor
    each = parameters.layers(model, split) * recipe.micro_batches(split)
    if recipe.attention is Attention.RING:
        # Keys and values go around; going back their gradients go with them.
        size = 2 * rows * model.kv_heads
        count = (recipe.passes + 1) * each * (split.context - 1)
        yield Transfer("keys and values", Collective.RING, size, count, Overlap.ATTENTION)
        return
    # There are as many heads of keys and values as ranks, or more: fewer would have to be copied.
    queries, others = rows * model.heads, rows * model.kv_heads
    yield Transfer(
        "queries and what they find", Collective.ALL_TO_ALL, queries, 2 * recipe.passes * each
    )
    yield Transfer("keys and values", Collective.ALL_TO_ALL, others, 2 * recipe.passes * each)


def _pipeline(model: Transformer, split: Parallelism, recipe: Recipe) -> Iterator[Transfer]:
    parts = split.tensor if recipe.shares_handed else 1
    size = recipe.value_bytes * recipe.tokens(split) * model.hidden // parts
    count = 2 * recipe.micro_batches(split)
    # Only in an interleaved schedule is there a micro-batch that waits for nothing of these.
    beside = recipe.overlap and split.virtual > 1
    overlap = Overlap.MICRO_BATCH if beside else Overlap.NOTHING
    what = "activations and their gradients"
    yield Transfer(what, Collective.SEND, size, count, overlap)
    if split.virtual > 1:
        # Of interleaved stages the last rank's is followed by one of the first's, but for the last.
        around = count * (split.virtual - 1)
        yield Transfer(what, Collective.RING, size, around, overlap)


def _expert(model: Transformer, split: Parallelism, recipe: Recipe) -> Iterator[Transfer]:
    """Tokens go to their experts and come back, and so do gradients."""
    size = recipe.value_bytes * recipe.routed(split) * model.hidden
    each = parameters.layers(model, split) * recipe.micro_batches(split)
    overlap = Overlap.MICRO_BATCH if recipe.overlap_experts else Overlap.NOTHING
    count = 2 * recipe.passes * each
    if recipe.forwarded:
        yield Transfer("tokens", Collective.DISPATCH, size, count, overlap, model.routing)
    else:
        yield Transfer("tokens", Collective.ALL_TO_ALL, model.chosen * size, count, overlap)
