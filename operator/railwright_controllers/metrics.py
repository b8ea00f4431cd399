"""Prometheus series of the controllers. Label values come from closed sets."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from railwright_kube.metrics import ApiMetrics, Sample, ScrapedMetrics, WatchMetrics, begin
from railwright_process.server_metrics import ServerMetrics

SURVEY_BUCKETS = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)

OUTCOMES = DONE, FAILED = "done", "failed"

NODES_MAX = 5_000
"""Nodes with a series of their GPUs."""

RECENT_S = 300.0
"""How long a reported utilization is shown. Agents report it about every minute."""


GPU_GAUGES = {
    "node_gpu_utilization_ratio": (
        "Share of time in which a GPU runs a kernel, mean over the GPUs of a node and ten seconds "
        "of the last minute. Only nodes whose agent can read it, and reported it in the last five "
        f"minutes, have it, at most {NODES_MAX}.",
        "node_name",
    )
}


class SurveyMetrics:
    """Series of the surveys of the network."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self.due = Gauge(
            "railwright_survey_due_nodes",
            "Nodes to be measured that no survey contains.",
            registry=registry,
        )
        self.polling = Gauge(
            "railwright_survey_polling_nodes",
            "Nodes to be measured whose agents poll for probe tasks.",
            registry=registry,
        )
        self.surveys = counter(
            "railwright_surveys_total",
            "Surveys of the network by probes; a survey that placed no node failed.",
            ("outcome",),
        )
        self.seconds = Histogram(
            "railwright_survey_seconds",
            "Time that a survey took.",
            buckets=SURVEY_BUCKETS,
            registry=registry,
        )
        self.pairs = counter(
            "railwright_survey_pairs_total", "Different pairs of nodes that surveys measured."
        )
        self.probes = counter(
            "railwright_probes_total", "Probe tasks of agents, by outcome.", ("outcome",)
        )
        begin(self.surveys, OUTCOMES)
        begin(self.probes, OUTCOMES)


class GpuUtilization(ScrapedMetrics):
    """Collects the series of GPUs, as agents report them."""

    gauges = GPU_GAUGES

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._nodes: dict[str, tuple[float, float]] = {}
        registry.register(self)

    def record(self, node: str, gpus: Sequence[float]) -> None:
        """Take in the utilization of each GPU of a node."""
        now_s = self._clock()
        self._nodes.pop(node, None)
        self._nodes[node] = now_s, statistics.fmean(gpus)
        while self._nodes[oldest := next(iter(self._nodes))][0] < now_s - RECENT_S:
            del self._nodes[oldest]

    def samples(self) -> Iterator[Sample]:
        """The current values. May be called in another thread than the event loop's."""
        oldest_s = self._clock() - RECENT_S
        recent = [
            (node, share)
            for node, (reported_s, share) in list(self._nodes.items())
            if reported_s >= oldest_s
        ]
        # By name, so that each scrape has the same nodes.
        for node, share in sorted(recent)[:NODES_MAX]:
            yield "node_gpu_utilization_ratio", share, (node,)


class ControllerMetrics:
    """All series. Raises ValueError if ``registry`` has them already."""

    def __init__(
        self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.gpus = GpuUtilization(registry, clock)
        self.api = ApiMetrics(registry)
        self.watch = WatchMetrics(registry)
        self.agents = ServerMetrics(registry, "agent", "node agents")
        self.surveys = SurveyMetrics(registry)
