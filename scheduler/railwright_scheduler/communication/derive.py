"""The communicators of a transformer, of how it is split.

Formulas: tensor parallelism, Shoeybi et al., 2019; with its sequence, Korthikanti et al., 2022;
pipelines, Narayanan et al., 2021; context as a ring, Liu et al., 2023, or by heads, Jacobs et al.,
2023; experts, Rajbhandari et al., 2022, on ranks folded as in Megatron Core.
"""

from __future__ import annotations

from collections.abc import Iterator

from railwright_scheduler.communication import grid, replicas
from railwright_scheduler.communication.graph import Collective, Communicator, Overlap, Traffic
from railwright_scheduler.communication.grid import Axis
from railwright_scheduler.workload import (
    Attention,
    Parallelism,
    Precision,
    Recipe,
    Transformer,
)

HALF_BYTES = 2


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
    held = parameters(model, split)
    if model.experts:
        experts = grid.experts(split, recipe.framework)
        tokens = tuple(_expert(model, split, recipe))
        found.append(Communicator("expert", experts, (Axis.EXPERT,), tokens))
    found = [each for each in found if each.ranks > 1]
    return (*found, *replicas.communicators(held, split, recipe))


def parameters(model: Transformer, split: Parallelism) -> tuple[int, int]:
    """Those that a rank of the stage with an embedding holds: of all but experts, of experts."""
    return _dense(model, split), _held(model, split)


def _tensor(model: Transformer, split: Parallelism, recipe: Recipe) -> Iterator[Traffic]:
    size = HALF_BYTES * recipe.tokens(split) * model.hidden
    # Experts are not split over tensor-parallel ranks: of their layers only attention is.
    blocks = 1 if model.experts else 2
    each = blocks * layers(model, split) * recipe.micro_batches(split)
    if not recipe.sequence_parallel:
        yield Traffic("activations", Collective.ALL_REDUCE, size, recipe.passes * each)
        if split.pipeline > 1:
            # Each rank sends its part to the next stage, which puts them together.
            handed = 2 * recipe.micro_batches(split) * split.virtual
            yield Traffic("activations handed on", Collective.ALL_GATHER, size, handed)
        return
    overlap = Overlap.PRODUCTS if recipe.overlap_tensor else Overlap.NOTHING
    # What is multiplied in 8 bits is made so first. Inputs are gathered once more for the gradients
    # of weights, not kept.
    gathered = size // HALF_BYTES if recipe.precision is Precision.FP8 else size
    yield Traffic(
        "activations", Collective.ALL_GATHER, gathered, (recipe.passes + 1) * each, overlap
    )
    yield Traffic("activations", Collective.REDUCE_SCATTER, size, recipe.passes * each, overlap)


def _context(model: Transformer, split: Parallelism, recipe: Recipe) -> Iterator[Traffic]:
    rows = HALF_BYTES * recipe.tokens(split) * model.head_size // split.tensor
    each = layers(model, split) * recipe.micro_batches(split)
    if recipe.attention is Attention.RING:
        # Keys and values go around; going back their gradients go with them.
        size = 2 * rows * model.kv_heads
        count = (recipe.passes + 1) * each * (split.context - 1)
        yield Traffic("keys and values", Collective.RING, size, count, Overlap.ATTENTION)
        return
    # There are as many heads of keys and values as ranks, or more: fewer would have to be copied.
    queries, others = rows * model.heads, rows * model.kv_heads
    yield Traffic(
        "queries and what they find", Collective.ALL_TO_ALL, queries, 2 * recipe.passes * each
    )
    yield Traffic("keys and values", Collective.ALL_TO_ALL, others, 2 * recipe.passes * each)


def _pipeline(model: Transformer, split: Parallelism, recipe: Recipe) -> Iterator[Traffic]:
    size = HALF_BYTES * recipe.tokens(split) * model.hidden // split.tensor
    count = 2 * recipe.micro_batches(split) * split.virtual
    # Only in an interleaved schedule is there a micro-batch that waits for nothing of these.
    beside = recipe.overlap and split.virtual > 1
    overlap = Overlap.MICRO_BATCH if beside else Overlap.NOTHING
    # Of interleaved stages the last rank's is followed by one of the first's.
    collective = Collective.RING if split.virtual > 1 else Collective.SEND
    yield Traffic("activations and their gradients", collective, size, count, overlap)


def _expert(model: Transformer, split: Parallelism, recipe: Recipe) -> Iterator[Traffic]:
    """Tokens go to their experts and come back, and so do gradients."""
    size = HALF_BYTES * recipe.routed(split) * model.hidden
    each = layers(model, split) * recipe.micro_batches(split)
    overlap = Overlap.MICRO_BATCH if recipe.overlap_experts else Overlap.NOTHING
    count = 2 * recipe.passes * each
    if recipe.forwarded:
        yield Traffic("tokens", Collective.DISPATCH, size, count, overlap, model.routing)
    else:
        yield Traffic("tokens", Collective.ALL_TO_ALL, model.chosen * size, count, overlap)


def layers(model: Transformer, split: Parallelism) -> int:
    """Of the rank that has the most, in all its stages."""
    return -(-model.layers // (split.pipeline * split.virtual)) * split.virtual


def _dense(model: Transformer, split: Parallelism) -> int:
    """Parameters that every data-parallel rank has, of the stage with an embedding."""
    layer = model.attention_parameters + (0 if model.experts else model.feed_forward_parameters)
    stage = layers(model, split) * layer + model.vocabulary * model.hidden
    return stage // split.tensor


def _held(model: Transformer, split: Parallelism) -> int:
    """Parameters of the experts that a rank holds."""
    return layers(model, split) * model.experts * model.feed_forward_parameters // split.expert
