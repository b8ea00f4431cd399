"""Prometheus series of the controllers. Label values come from closed sets."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from railwright_kube.metrics import ApiMetrics, WatchMetrics
from railwright_process.server_metrics import ServerMetrics

SURVEY_BUCKETS = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)


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


class ControllerMetrics:
    """All series. Raises ValueError if ``registry`` has them already."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.api = ApiMetrics(registry)
        self.watch = WatchMetrics(registry)
        self.agents = ServerMetrics(registry, "agent", "node agents")
        self.surveys = SurveyMetrics(registry)
