"""Prometheus series of the parts that do I/O: the API client, the watches, the heartbeat server.

Label values come from closed sets (verbs, status codes, kinds, paths): never from what a user or a
pod sends, so the number of series is bounded whatever arrives.
"""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
SURVEY_BUCKETS = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)


@dataclass(frozen=True, slots=True)
class ApiMetrics:
    """Series of the client to the API server."""

    requests: Counter
    request_s: Histogram
    retries: Counter


@dataclass(frozen=True, slots=True)
class WatchMetrics:
    """Series of the watches, by kind of object."""

    relists: Counter
    events: Counter
    errors: Counter
    heard_age_s: Gauge
    records: Gauge


@dataclass(frozen=True, slots=True)
class HeartbeatMetrics:
    """Series of the server launchers talk to."""

    requests: Counter
    token_checks: Counter
    evictions: Counter


@dataclass(frozen=True, slots=True)
class SurveyMetrics:
    """Series of what is measured of the network."""

    due: Gauge
    surveys: Counter
    seconds: Histogram
    pairs: Counter
    probes: Counter


@dataclass(frozen=True, slots=True)
class Metrics:
    """All series of these parts, one set a registry."""

    api: ApiMetrics
    watch: WatchMetrics
    heartbeats: HeartbeatMetrics
    surveys: SurveyMetrics
    loop_lag_s: Histogram


def build(registry: CollectorRegistry) -> Metrics:
    """The series, registered; raises ValueError when ``registry`` has them already."""
    return Metrics(
        api=_api(registry),
        watch=_watch(registry),
        heartbeats=_heartbeats(registry),
        surveys=_surveys(registry),
        loop_lag_s=Histogram(
            "railwright_loop_lag_seconds",
            "How late the event loop woke a sleeper: everything waits this long.",
            buckets=SECONDS_BUCKETS,
            registry=registry,
        ),
    )


def _api(registry: CollectorRegistry) -> ApiMetrics:
    return ApiMetrics(
        requests=Counter(
            "railwright_api_requests_total",
            "Requests to the API server; code is the HTTP status, or why there was none.",
            ("verb", "code"),
            registry=registry,
        ),
        request_s=Histogram(
            "railwright_api_request_seconds",
            "Time to the answer of one request, retries not added up.",
            ("verb",),
            buckets=SECONDS_BUCKETS,
            registry=registry,
        ),
        retries=Counter(
            "railwright_api_retries_total",
            "Requests sent again because the server asked to wait or the token had expired.",
            ("verb", "code"),
            registry=registry,
        ),
    )


def _watch(registry: CollectorRegistry) -> WatchMetrics:
    return WatchMetrics(
        relists=Counter(
            "railwright_watch_relists_total",
            "Full lists made by a watch, the first included.",
            ("kind",),
            registry=registry,
        ),
        events=Counter(
            "railwright_watch_events_total",
            "Events read from a watch, bookmarks included.",
            ("kind", "type"),
            registry=registry,
        ),
        errors=Counter(
            "railwright_watch_errors_total",
            "Lists and watches that ended badly, by cause.",
            ("kind", "cause"),
            registry=registry,
        ),
        heard_age_s=Gauge(
            "railwright_watch_heard_age_seconds",
            "Time since the API server last sent anything on this watch.",
            ("kind",),
            registry=registry,
        ),
        records=Gauge(
            "railwright_watch_records",
            "Objects held by this watch.",
            ("kind",),
            registry=registry,
        ),
    )


def _heartbeats(registry: CollectorRegistry) -> HeartbeatMetrics:
    return HeartbeatMetrics(
        requests=Counter(
            "railwright_heartbeat_requests_total",
            "Messages from launchers by path and HTTP status.",
            ("path", "code"),
            registry=registry,
        ),
        token_checks=Counter(
            "railwright_token_checks_total",
            "Tokens verified or refused, by outcome; good ones that are remembered do not count.",
            ("outcome",),
            registry=registry,
        ),
        evictions=Counter(
            "railwright_heartbeat_evictions_total",
            "Connections closed to make room: newcomers without a token, or too many of one pod.",
            registry=registry,
        ),
    )


def _surveys(registry: CollectorRegistry) -> SurveyMetrics:
    return SurveyMetrics(
        due=Gauge(
            "railwright_survey_due_nodes",
            "Nodes that are to be measured and that no survey has.",
            registry=registry,
        ),
        surveys=Counter(
            "railwright_surveys_total",
            "Surveys of the network by probes; those that placed no node failed.",
            ("outcome",),
            registry=registry,
        ),
        seconds=Histogram(
            "railwright_survey_seconds",
            "Time that a survey took.",
            buckets=SURVEY_BUCKETS,
            registry=registry,
        ),
        pairs=Counter(
            "railwright_survey_pairs_total",
            "Different pairs of nodes that surveys measured.",
            registry=registry,
        ),
        probes=Counter(
            "railwright_probes_total",
            "Errands that agents were sent on, by outcome.",
            ("outcome",),
            registry=registry,
        ),
    )
