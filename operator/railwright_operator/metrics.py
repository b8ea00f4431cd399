"""Prometheus series of the operator that no scheduling cycle writes.

Label values come from closed sets (verbs, status codes, kinds, paths): never from what a user or a
pod sends, so the number of series is bounded whatever arrives.
"""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from railwright_kube.metrics import SECONDS_BUCKETS, ApiMetrics, WatchMetrics

SURVEY_BUCKETS = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)


class HeartbeatMetrics:
    """Series of the server that launchers send heartbeats to."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self.requests = counter(
            "railwright_heartbeat_requests_total",
            "Messages from launchers by path and HTTP status.",
            ("path", "code"),
        )
        self.token_checks = counter(
            "railwright_token_checks_total",
            "Token verifications by outcome; cached good tokens do not count.",
            ("outcome",),
        )
        self.evictions = counter(
            "railwright_heartbeat_evictions_total",
            "Connections closed at a limit: too many without a verified token, or of one pod.",
        )


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


class MappingMetrics:
    """Series of the mappings of ranks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.mappings = Counter(
            "railwright_mappings_total",
            "Mappings of the ranks of a gang that were computed, by outcome.",
            ("outcome",),
            registry=registry,
        )
        self.seconds = Histogram(
            "railwright_mapping_seconds",
            "Time that a mapping took.",
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self.processes_lost = Counter(
            "railwright_mapper_processes_lost_total",
            "Processes of the mapper that ended, or were killed as they failed or hung.",
            registry=registry,
        )


class Metrics:
    """All series of these parts. Raises ValueError if ``registry`` has them already."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.api = ApiMetrics(registry)
        self.watch = WatchMetrics(registry)
        self.heartbeats = HeartbeatMetrics(registry)
        self.surveys = SurveyMetrics(registry)
        self.mappings = MappingMetrics(registry)
        self.loop_lag_s = Histogram(
            "railwright_loop_lag_seconds",
            "Delay of a timer of the event loop: every task waits this long.",
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self.mislabelled_pods = Gauge(
            "railwright_mislabelled_pods",
            "Pods of live attempts whose labels are of no rank of the attempt.",
            registry=registry,
        )
