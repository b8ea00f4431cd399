"""How late the event loop is: the one number that says whether something blocks it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from railwright_operator.metrics import Metrics

INTERVAL_S = 0.05


async def observe(metrics: Metrics, clock: Callable[[], float]) -> None:
    """Measure until cancelled. ``clock`` is monotonic, in seconds."""
    while True:
        due_s = clock() + INTERVAL_S
        await asyncio.sleep(INTERVAL_S)
        metrics.loop_lag_s.observe(max(0.0, clock() - due_s))
