"""The kernels of a transformer's layer on one rank, forward and backward.

Matrix products are those of the architecture (Vaswani et al., 2017), split over tensor-parallel
ranks as Megatron does (Shoeybi et al., 2019). Beside them each line of traffic is a kernel that
reads and writes that much: norms, residual sums with their dropout, activations, scores where they
are written to memory at all, and in the backward pass also what is summed up: gradients of biases,
of residuals, of weights.
"""

from __future__ import annotations

import math

from railwright_scheduler.cost.kernels import HALF_BYTES, LayerWork, Pass, Product, Stream
from railwright_scheduler.model.workload import (
    Parallelism,
    Precision,
    Recipe,
    Recompute,
    Transformer,
)

MASK_BYTES = 1

CAST_BYTES = 6
"""A value's that is multiplied in 8 bits, scaled by the largest of its tensor: read in 16 bits for
that, read again, written as it is and transposed."""

STREAMS = 4
"""Products of so many experts go on at once (NVIDIA/TransformerEngine, transformer_engine/common/
util/multi_stream.cpp)."""

SCORE_BYTES = 12
"""A token's for each expert: a score of 32 bits, made a probability and a mask."""


def layer(model: Transformer, split: Parallelism, recipe: Recipe) -> LayerWork:
    """The computation of one rank for one micro-batch in one layer."""
    size = HALF_BYTES * recipe.tokens(split) * model.hidden
    stream = Stream(size, size / split.tensor if recipe.sequence_parallel else size)
    whole = _attention(model, split, recipe, stream) + _between(stream)
    if model.experts:
        whole += _moe_feed_forward(model, split, recipe)
    else:
        whole += _feed_forward(model, split, recipe, stream)
    return _with_casts(whole) if recipe.precision is Precision.FP8 else whole


def _attention(model: Transformer, split: Parallelism, recipe: Recipe, stream: Stream) -> LayerWork:
    tokens = recipe.tokens(split)
    heads = recipe.micro_batch * model.heads // split.tensor
    joined = (model.heads + 2 * model.kv_heads) * model.head_size
    products, back = _split(
        Product(tokens, joined // split.tensor, model.hidden),
        Product(tokens, model.hidden, model.heads * model.head_size // split.tensor),
        _pieces(split, recipe),
    )
    rearranged = 2 * HALF_BYTES * tokens * model.heads * model.head_size / split.tensor
    inputs = HALF_BYTES * tokens * joined / split.tensor
    forward, backward = [rearranged, rearranged], [rearranged, rearranged, 2 * inputs]
    backward.append(3 * HALF_BYTES * model.attention_parameters / split.tensor)
    if model.biased:
        backward += [inputs, stream.whole]
    again = recipe.recompute is Recompute.ATTENTION
    operations = 0.0
    if recipe.fused_attention:
        # Of a causal mask's scores half are computed; the backward pass computes them once more.
        operations = 2 * heads * recipe.sequence**2 * model.head_size / split.context
    else:
        rows = recipe.sequence // split.context
        inner = Product(rows, recipe.sequence, model.head_size, heads)
        outer = Product(rows, model.head_size, recipe.sequence, heads)
        products += [inner, outer]
        back += [*inner.gradients, *outer.gradients, *[inner, outer] * again]
        # The softmax of scores that are in memory, and its dropout.
        scores = HALF_BYTES * heads * rows * recipe.sequence
        dropped = 2 * scores + MASK_BYTES * scores / HALF_BYTES
        forward += [2 * scores, dropped]
        backward += [3 * scores, dropped, *[2 * scores, dropped] * again]
    return LayerWork(
        Pass(tuple(products), operations, tuple(forward)),
        Pass(tuple(back), (2.5 + again) * operations, tuple(backward)),
    )


def _feed_forward(
    model: Transformer, split: Parallelism, recipe: Recipe, stream: Stream
) -> LayerWork:
    tokens, inner = recipe.tokens(split), model.feed_forward // split.tensor
    products, back = _split(
        Product(tokens, (2 if model.gated else 1) * inner, model.hidden),
        Product(tokens, model.hidden, inner),
        _pieces(split, recipe),
    )
    activated = HALF_BYTES * tokens * model.feed_forward / split.tensor
    backward = [
        (5 if model.gated else 3) * activated,
        3 * HALF_BYTES * model.feed_forward_parameters / split.tensor,
    ]
    if model.biased:
        backward += [activated, stream.whole]
    return LayerWork(
        Pass(tuple(products), 0.0, ((3 if model.gated else 2) * activated,)),
        Pass(tuple(back), 0.0, tuple(backward)),
    )


def _moe_feed_forward(model: Transformer, split: Parallelism, recipe: Recipe) -> LayerWork:
    """Of a mixture of experts, from the norm to the residual sum, exchanges with other ranks apart.

    Each token chooses its experts (Shazeer et al., 2017) and none is dropped. A rank copies its
    tokens once for each expert they go to, sends the copies off, puts what arrives in the order of
    its own experts, multiplies, and the same way back (Gale et al., 2023). Experts are taken to be
    equally busy, as a balanced router makes them.
    """
    tokens, experts = recipe.routed(split), model.experts // split.expert
    routed = tokens * model.chosen
    router = Product(tokens, model.experts, model.hidden)
    wide = (2 if model.gated else 1) * model.feed_forward
    together = math.gcd(experts, STREAMS)
    rows, times = routed // experts, experts // together
    products = (
        router,
        Product(rows, wide, model.hidden, together, times),
        Product(rows, model.hidden, model.feed_forward, together, times),
    )
    stream, sent = HALF_BYTES * tokens * model.hidden, HALF_BYTES * routed * model.hidden
    inner = HALF_BYTES * routed * model.feed_forward
    # Copied, put in order, put back, summed; going back the same kernels turned around.
    moved = (SCORE_BYTES * tokens * model.experts, stream + sent, 2 * sent, 2 * sent, sent + stream)
    forward = [*moved, (3 if model.gated else 2) * inner]
    backward = [*moved, (5 if model.gated else 3) * inner]
    backward.append(3 * HALF_BYTES * experts * model.feed_forward_parameters)
    if model.biased:
        # An expert's bias is a kernel of its own: products of many experts at once add none.
        biased = HALF_BYTES * routed * wide
        forward += [2 * biased, 2 * sent]
        backward += [biased, sent]
    return LayerWork(
        Pass(products, 0.0, tuple(forward)),
        Pass(
            tuple(each for product in products for each in product.gradients), 0.0, tuple(backward)
        ),
    )


def _pieces(split: Parallelism, recipe: Recipe) -> int:
    return split.tensor if recipe.overlap_tensor and recipe.sequence_parallel else 1


def _split(first: Product, second: Product, pieces: int) -> tuple[list[Product], list[Product]]:
    """Going forward and back, two products that tensor-parallel ranks share.

    Beside what they send, products go on in pieces, of what has come already or for what can be
    sent already (Wang et al., ASPLOS 2023); but for those going back that need nothing of others,
    beside which all is sent at once.
    """
    first_left, first_right = first.gradients
    second_left, second_right = second.gradients
    forward = [first.pieces(pieces), second.pieces(pieces)]
    return forward, [first_left, first_right, second_left.pieces(pieces), second_right]


def _between(stream: Stream) -> LayerWork:
    """Two norms and two residual sums, after attention and after what feeds forward."""
    kept = MASK_BYTES * stream.between / HALF_BYTES
    forward = (2 * stream.between, 3 * stream.between + kept)
    backward = (3 * stream.between, 2 * stream.between + kept, 3 * stream.between)
    return LayerWork(Pass((), 0.0, 2 * forward), Pass((), 0.0, 2 * backward))


def _with_casts(layer: LayerWork) -> LayerWork:
    """Inputs of products and, going back, gradients of their results are made 8 bits wide."""
    products = layer.forward.products
    ahead = tuple((CAST_BYTES * each.batch * each.m * each.k, each.times) for each in products)
    behind = tuple((CAST_BYTES * each.batch * each.m * each.n, each.times) for each in products)
    return layer + LayerWork(Pass((), 0.0, (), ahead), Pass((), 0.0, (), behind))
