"""Prometheus series of the API client and of the informers.

Label values come from closed sets (verbs, status codes, kinds), so the number of series is bounded.
"""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

SECONDS_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class ApiMetrics:
    """Series of the client to the API server."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        self.requests = counter(
            "railwright_api_requests_total",
            "Requests to the API server; code is the HTTP status, or the failure without one.",
            ("verb", "code"),
        )
        self.request_s = Histogram(
            "railwright_api_request_seconds",
            "Time to the response of one request, without retries.",
            ("verb",),
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
        self.retries = counter(
            "railwright_api_retries_total",
            "Requests sent again because the server throttled them or the token had expired.",
            ("verb", "code"),
        )


class WatchMetrics:
    """Series of the watches, by kind of object."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.relists = counter(
            "railwright_watch_relists_total",
            "Full lists made by a watch, the first included.",
            ("kind",),
        )
        self.events = counter(
            "railwright_watch_events_total",
            "Events read from a watch, bookmarks included.",
            ("kind", "type"),
        )
        self.errors = counter(
            "railwright_watch_errors_total",
            "Lists and watches that failed, by cause.",
            ("kind", "cause"),
        )
        self.receive_age_s = gauge(
            "railwright_watch_receive_age_seconds",
            "Time since the API server last sent anything on this watch.",
            ("kind",),
        )
        self.records = gauge("railwright_watch_records", "Objects held by this watch.", ("kind",))
