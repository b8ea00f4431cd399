"""Prometheus series that every process has: version, memory, CPU time, the lag of its event loop,
whether it leads, and requests for its series."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from railwright_kube.metrics import SECONDS_BUCKETS, begin
from railwright_process.metrics_server import STATUSES

DISTRIBUTION = "railwright"
LAG_INTERVAL_S = 0.1


class ProcessMetrics:
    """The series, registered once. Those of the process itself begin with ``process_``.

    ``deployment`` is the one whose Lease it holds if it leads; ``is_leader`` is called at each
    scrape."""

    def __init__(
        self, registry: CollectorRegistry, *, deployment: str, is_leader: Callable[[], bool]
    ) -> None:
        info = Gauge(
            "railwright_build_info",
            "1, with the version of this process.",
            ("version",),
            registry=registry,
        )
        info.labels(version(DISTRIBUTION)).set(1)
        leader = Gauge(
            "railwright_leader",
            "1 while this process holds the Lease of its Deployment, 0 in a standby.",
            ("deployment",),
            registry=registry,
        )
        leader.labels(deployment).set_function(is_leader)
        self._loop_lag_s = Histogram(
            "railwright_loop_lag_seconds",
            "Delay of a timer of the event loop: every task waits this long.",
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self.requests = Counter(
            "railwright_metrics_requests_total",
            "Requests for these series, by the status that their token was given.",
            ("code",),
            registry=registry,
        )
        begin(self.requests, map(str, map(int, STATUSES)))
        ProcessCollector(registry=registry)

    async def measure_lag(self, clock: Callable[[], float]) -> None:
        """Measure the lag of the event loop until cancelled. ``clock`` is monotonic seconds."""
        while True:
            due_s = clock() + LAG_INTERVAL_S
            await asyncio.sleep(LAG_INTERVAL_S)
            self._loop_lag_s.observe(max(0.0, clock() - due_s))
