"""Prometheus series of a server for messages of pods."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter


class ServerMetrics:
    """The series of one server, with names that begin with this word, for messages
    of these ``senders``. Label values come from closed
    sets (paths, status codes): never from what a pod sends."""

    def __init__(self, registry: CollectorRegistry, word: str, senders: str) -> None:
        counter = partial(Counter, registry=registry)
        self.requests = counter(
            f"railwright_{word}_requests_total",
            f"Messages of {senders}, by path and HTTP status.",
            ("path", "code"),
        )
        self.token_checks = counter(
            "railwright_token_checks_total",
            "Token verifications by outcome; cached good tokens do not count.",
            ("outcome",),
        )
        self.evictions = counter(
            f"railwright_{word}_evictions_total",
            f"Connections of {senders} closed at a limit, too many of one pod or unverified, or no "
            "longer read, too many in a TLS handshake.",
        )
        self.tls_failures = counter(
            f"railwright_{word}_tls_failures_total",
            f"Connections of {senders} that ended with an error of TLS.",
        )
