"""Prometheus series of the API client and of the informers, and the base of those that are computed
at each scrape.

Label values come from closed sets (verbs, status codes, kinds), so the number of series is bounded.
"""

from __future__ import annotations

import abc
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from railwright_kube import errors

SECONDS_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
LAG_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
EXPECTED_MAX = 64
"""Own writes of a kind whose event is measured at a time: enough for a quantile."""

VERBS = ("get", "review", "create", "replace", "patch", "delete")
CODES = ("none", *map(str, (200, 201, 202, 400, 401, 403, 404, 409, 410, 422, 429, 500, 503, 504)))
"""What API servers answer with, and the code of a request without an answer. Series of other codes,
such as those of proxies, begin with their first request."""

EVENTS = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "OTHER")
WATCH_ERRORS = ("unexpected", "gone", "error event", "rewound", "unreadable", "too large")
"""The causes beside those of failed requests (``errors.NAMES``)."""


def begin(metric: Counter | Histogram, *labels: Iterable[str]) -> None:
    """Begin the series of all combinations of these label values: one that begins with its first
    event has no increase for that."""
    for values in itertools.product(*labels):
        metric.labels(*values)


Sample = tuple[str, float, tuple[str, ...]]
"""The series without the prefix ``railwright_``, its value, and its labels."""


class ScrapedMetrics(Collector):
    """Series that are computed at each scrape. ``gauges`` and ``counters`` are their names without
    the prefix; of each what it is, and its labels."""

    gauges: Mapping[str, tuple[str, ...]] = {}
    counters: Mapping[str, tuple[str, ...]] = {}

    @abc.abstractmethod
    def samples(self) -> Iterator[Sample]:
        """The current values. May be called in another thread than the event loop's."""

    def describe(self) -> Iterable[Metric]:
        """The names of the series, which the registry checks for duplicates."""
        return self._families().values()

    def collect(self) -> Iterable[Metric]:
        """The series."""
        families = self._families()
        for name, value, labels in self.samples():
            families[name].add_metric(labels, value)
        return families.values()

    def _families(self) -> dict[str, GaugeMetricFamily | CounterMetricFamily]:
        kinds = (GaugeMetricFamily, self.gauges), (CounterMetricFamily, self.counters)
        return {
            name: kind(f"railwright_{name}", text, labels=labels)
            for kind, series in kinds
            for name, (text, *labels) in series.items()
        }


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
        begin(self.requests, (*VERBS, "watch"), CODES)
        begin(self.request_s, VERBS)
        begin(self.retries, VERBS, ("401", "429"))
        begin(self.retries, ("get", "review"), ("503", "504"))


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
        self.lag_s = Histogram(
            "railwright_watch_lag_seconds",
            "Time from the response to a write of this process until the watch has its version. "
            "A write whose event came before its response is not counted.",
            ("kind",),
            buckets=LAG_BUCKETS,
            registry=registry,
        )
        self.records = gauge("railwright_watch_records", "Objects held by this watch.", ("kind",))

    def begin(self, kind: str) -> None:
        """Begin the series of the watch of this kind."""
        begin(self.relists, (kind,))
        begin(self.events, (kind,), EVENTS)
        begin(self.errors, (kind,), (*WATCH_ERRORS, *errors.NAMES))
        begin(self.lag_s, (kind,))


class WatchLag:
    """How late the events of one watch are, by the versions of this process's own writes. It
    remembers ``EXPECTED_MAX`` of them at most, the oldest. ``clock`` is monotonic seconds."""

    def __init__(self, metrics: WatchMetrics, kind: str, clock: Callable[[], float]) -> None:
        self._metrics, self._kind, self._clock = metrics, kind, clock
        self._version: int | None = None
        self._expected: deque[tuple[int, float]] = deque()

    def expect(self, version: int) -> None:
        """A response has this version. It counts if the watch has not reached it yet."""
        newest = self._expected[-1][0] if self._expected else self._version
        if newest is not None and version > newest and len(self._expected) < EXPECTED_MAX:
            self._expected.append((version, self._clock()))

    def reached(self, version: int) -> None:
        """The watch has everything up to this version."""
        self._version = version
        while self._expected and self._expected[0][0] <= version:
            _, since_s = self._expected.popleft()
            self._metrics.lag_s.labels(self._kind).observe(self._clock() - since_s)
