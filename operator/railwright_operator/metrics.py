"""Prometheus series of the operator that no scheduling cycle writes.

Label values come from closed sets (verbs, status codes, kinds, paths): never from what a user or a
pod sends, so the number of series is bounded whatever arrives.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from railwright_kube.metrics import SECONDS_BUCKETS, ApiMetrics, WatchMetrics, begin
from railwright_process.server_metrics import ServerMetrics
from railwright_scheduler.policy.mappings import Unmapped

MAPPED = "Mapped"


class MappingMetrics:
    """Series of the mappings of ranks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.mappings = Counter(
            "railwright_mappings_total",
            "Mappings of the ranks of a gang that were computed, by outcome: Mapped, or why the "
            "gang gets the order of the network.",
            ("outcome",),
            registry=registry,
        )
        begin(self.mappings, (MAPPED, *Unmapped))
        self.seconds = Histogram(
            "railwright_mapping_seconds",
            "Time of one mapping. A gang waits two seconds for its own at most.",
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self.processes_lost = Counter(
            "railwright_mapper_processes_lost_total",
            "Processes of the mapper that ended, or were killed as they failed or hung, and were "
            "replaced.",
            registry=registry,
        )


class Metrics:
    """All series of these parts. Raises ValueError if ``registry`` has them already."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.api = ApiMetrics(registry)
        self.watch = WatchMetrics(registry)
        self.heartbeats = ServerMetrics(registry, "heartbeat", "launchers")
        self.mappings = MappingMetrics(registry)
        self.mislabelled_pods = Gauge(
            "railwright_mislabelled_pods",
            "Pods of live attempts whose labels are of no rank of the attempt. They count for no "
            "rank, and hold what they request; the log names them.",
            registry=registry,
        )
