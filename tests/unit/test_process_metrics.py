"""The lag of the event loop, which both processes measure."""

from __future__ import annotations

import asyncio
import time

from prometheus_client import CollectorRegistry

from fixtures.shell import until
from railwright_process.process_metrics import LAG_INTERVAL_S, ProcessMetrics

BLOCKED_S = 0.3
COUNT, SUM = "railwright_loop_lag_seconds_count", "railwright_loop_lag_seconds_sum"


async def test_blocked_event_loop_is_measured() -> None:
    registry = CollectorRegistry()
    process = ProcessMetrics(registry, deployment="railwright-controllers", is_leader=bool)
    measuring = asyncio.create_task(process.measure_lag(time.monotonic))
    await asyncio.sleep(0)
    until_s = time.monotonic() + LAG_INTERVAL_S + BLOCKED_S
    while time.monotonic() < until_s:
        pass
    await until(lambda: (registry.get_sample_value(COUNT) or 0) > 0, "a measurement")
    measuring.cancel()
    assert (registry.get_sample_value(SUM) or 0) >= BLOCKED_S
