"""The kernels of a layer's experts on one rank, forward and backward.

Each token chooses its experts (Shazeer et al., 2017) and none is dropped. A rank copies its tokens
once for each expert they go to, sends the copies off, puts what arrives in the order of its own
experts, multiplies, and the same way back (Gale et al., 2023). Experts are taken to be equally
busy, as a balanced router makes them.
"""

from __future__ import annotations

from railwright_scheduler.cost.kernels import HALF_BYTES, Layer, Pass, Product
from railwright_scheduler.workload import Parallelism, Recipe, Transformer

SCORE_BYTES = 12
"""A token's for each expert: a score of 32 bits, made a probability and a mask."""


def feed_forward(model: Transformer, split: Parallelism, recipe: Recipe) -> Layer:
    """From the norm to the residual sum, exchanges with other ranks apart."""
    tokens, experts = recipe.routed(split), model.experts // split.expert
    copies = tokens * model.chosen
    router = Product(tokens, model.experts, model.hidden)
    wide = (2 if model.gated else 1) * model.feed_forward
    products = (
        router,
        Product(copies // experts, wide, model.hidden, experts),
        Product(copies // experts, model.hidden, model.feed_forward, experts),
    )
    stream, rows = HALF_BYTES * tokens * model.hidden, HALF_BYTES * copies * model.hidden
    inner = HALF_BYTES * copies * model.feed_forward
    # Copied, put in order, put back, summed; going back the same kernels turned around.
    moved = (SCORE_BYTES * tokens * model.experts, stream + rows, 2 * rows, 2 * rows, rows + stream)
    forward = [*moved, (3 if model.gated else 2) * inner]
    backward = [*moved, (5 if model.gated else 3) * inner]
    backward.append(3 * HALF_BYTES * experts * model.feed_forward_parameters)
    if model.biased:
        # An expert's bias is a kernel of its own: products of many experts at once add none.
        biased = HALF_BYTES * copies * wide
        forward += [2 * biased, 2 * rows]
        backward += [biased, rows]
    return Layer(
        Pass(products, 0.0, tuple(forward)),
        Pass(
            tuple(each for product in products for each in product.gradients), 0.0, tuple(backward)
        ),
    )
