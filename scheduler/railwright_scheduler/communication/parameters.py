"""The number of parameters of a rank, in the pipeline stage with the most.

Matrices are split over tensor-parallel ranks, with the biases of split outputs; norms, routers and
other biases are on each rank (Shoeybi et al., 2019). The first stage embeds tokens, the last one
computes their logits; a single stage does both.
"""

from __future__ import annotations

from railwright_scheduler.model.workload import Parallelism, Transformer


def held(model: Transformer, split: Parallelism) -> tuple[int, int]:
    """Of all but experts, and of experts."""
    return layers(model, split) * _layer(model, split) + outside(model, split), _experts(
        model, split
    )


def layers(model: Transformer, split: Parallelism) -> int:
    """Of the rank that has the most, in all its stages: one layer more or less in some of them is
    shared evenly too."""
    return -(-model.layers // split.pipeline)


def outside(model: Transformer, split: Parallelism) -> int:
    """Of these, those that are in no layer."""
    table = model.vocabulary * model.hidden // split.tensor
    places, norm = model.positions * model.hidden, _norm(model)
    if split.pipeline > 1:
        return table + max(places, norm)
    return (1 if model.tied else 2) * table + places + norm


def _layer(model: Transformer, split: Parallelism) -> int:
    """Of a layer, experts apart: what is split, and what is not."""
    shared, whole = model.attention_parameters, 2 * _norm(model)
    if model.biased:
        shared += (model.heads + 2 * model.kv_heads) * model.head_size
        whole += model.hidden
    if model.experts:
        whole += model.hidden * model.experts
    else:
        shared += model.feed_forward_parameters
        if model.biased:
            shared += _inner(model)
            whole += model.hidden
    return shared // split.tensor + whole


def _experts(model: Transformer, split: Parallelism) -> int:
    each = model.feed_forward_parameters
    if model.biased:
        each += _inner(model) + model.hidden
    return layers(model, split) * model.experts * each // split.expert


def _inner(model: Transformer) -> int:
    """Values inside a feed-forward layer, before they are gated."""
    return (2 if model.gated else 1) * model.feed_forward


def _norm(model: Transformer) -> int:
    """Scales, and with vectors added also shifts."""
    return (2 if model.biased else 1) * model.hidden
