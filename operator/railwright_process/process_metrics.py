"""Prometheus series that every process has: version, memory, CPU time, and whether it leads."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector

DISTRIBUTION = "railwright"


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
        ProcessCollector(registry=registry)
