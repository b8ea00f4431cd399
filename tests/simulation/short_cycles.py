"""Scheduling cycles that evaluate two waiting jobs: few wait at once in a simulated cluster."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

from railwright_scheduler import decide
from railwright_scheduler.policy.queue_window import QueueWindow


@contextmanager
def short_cycles(*, enabled: bool = True) -> Iterator[None]:
    """One job at the front, and one where the last cycle stopped."""
    scope = decide.__globals__
    original = scope["QueueWindow"]
    if enabled:
        scope["QueueWindow"] = functools.partial(QueueWindow, limit=1)
    try:
        yield
    finally:
        scope["QueueWindow"] = original
