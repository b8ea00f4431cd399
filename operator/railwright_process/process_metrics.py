"""Prometheus series that every process has: its version, its memory, its CPU time."""

from __future__ import annotations

from importlib.metadata import version

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector

DISTRIBUTION = "railwright"


class ProcessMetrics:
    """The series, registered once. Those of the process itself begin with ``process_``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        info = Gauge(
            "railwright_build_info",
            "1, with the version of this process.",
            ("version",),
            registry=registry,
        )
        info.labels(version(DISTRIBUTION)).set(1)
        ProcessCollector(registry=registry)
