"""The kernels of a layer's experts on one rank, forward and backward.

Each token chooses its experts (Shazeer et al., 2017) and none is dropped. A rank copies its tokens
once for each expert they go to, sends the copies off, puts what arrives in the order of its own
experts, multiplies, and the same way back (Gale et al., 2023). Experts are taken to be equally
busy, as a balanced router makes them.
"""

from __future__ import annotations

import math

from railwright_scheduler.cost.kernels import HALF_BYTES, Layer, Pass, Product
from railwright_scheduler.workload import Parallelism, Recipe, Transformer

STREAMS = 4
"""Products of so many experts go on at once (NVIDIA/TransformerEngine, transformer_engine/common/
util/multi_stream.cpp)."""

SCORE_BYTES = 12
"""A token's for each expert: a score of 32 bits, made a probability and a mask."""


def feed_forward(model: Transformer, split: Parallelism, recipe: Recipe) -> Layer:
    """From the norm to the residual sum, exchanges with other ranks apart."""
    tokens, experts = recipe.routed(split), model.experts // split.expert
    copies = tokens * model.chosen
    router = Product(tokens, model.experts, model.hidden)
    wide = (2 if model.gated else 1) * model.feed_forward
    together = math.gcd(experts, STREAMS)
    rows, times = copies // experts, experts // together
    products = (
        router,
        Product(rows, wide, model.hidden, together, times),
        Product(rows, model.hidden, model.feed_forward, together, times),
    )
    stream, sent = HALF_BYTES * tokens * model.hidden, HALF_BYTES * copies * model.hidden
    inner = HALF_BYTES * copies * model.feed_forward
    # Copied, put in order, put back, summed; going back the same kernels turned around.
    moved = (SCORE_BYTES * tokens * model.experts, stream + sent, 2 * sent, 2 * sent, sent + stream)
    forward = [*moved, (3 if model.gated else 2) * inner]
    backward = [*moved, (5 if model.gated else 3) * inner]
    backward.append(3 * HALF_BYTES * experts * model.feed_forward_parameters)
    if model.biased:
        # An expert's bias is a kernel of its own: products of many experts at once add none.
        biased = HALF_BYTES * copies * wide
        forward += [2 * biased, 2 * sent]
        backward += [biased, sent]
    return Layer(
        Pass(products, 0.0, tuple(forward)),
        Pass(
            tuple(each for product in products for each in product.gradients), 0.0, tuple(backward)
        ),
    )
