"""Small models that more than one test works out by hand."""

from __future__ import annotations

from railwright_scheduler.workload import Transformer

MIXTURE = Transformer(
    layers=16,
    hidden=1024,
    heads=16,
    kv_heads=16,
    head_size=64,
    feed_forward=512,
    vocabulary=32_000,
    gated=True,
    experts=64,
    chosen=8,
)
