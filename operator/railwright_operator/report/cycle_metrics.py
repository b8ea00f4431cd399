"""Prometheus series of the cycle: turns, the queue and the attempts, from closed sets of labels."""

from __future__ import annotations

import collections

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from railwright_operator.report import bounds
from railwright_scheduler import explain
from railwright_scheduler.attempt.breaker import Breaker
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.turn import Turn

TURN_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


class CycleMetrics:
    """The series, registered once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.turn_s = Histogram(
            "railwright_turn_seconds",
            "Time to observe and plan one turn.",
            buckets=TURN_BUCKETS,
            registry=registry,
        )
        self.turns_failed = Counter(
            "railwright_turns_failed_total",
            "Turns that ended early, by kind of error.",
            ("error",),
            registry=registry,
        )
        self.ledger_writes = Counter(
            "railwright_ledger_writes_total", "Writes of the ledger.", registry=registry
        )
        self.events_dropped = Counter(
            "railwright_events_dropped_total", "Events on jobs not posted.", registry=registry
        )
        self.attempts_ended = Counter(
            "railwright_attempts_ended_total",
            "Attempts that were revoked, by cause.",
            ("cause",),
            registry=registry,
        )
        self.job_faults = Counter(
            "railwright_job_faults_total",
            "Exceptions in the handling of one job, by stage.",
            ("stage",),
            registry=registry,
        )
        self._jobs = Gauge("railwright_jobs", "Jobs, by phase.", ("phase",), registry=registry)
        self._waiting = Gauge(
            "railwright_jobs_waiting", "Waiting jobs, by reason.", ("reason",), registry=registry
        )
        self._in_flight = Gauge(
            "railwright_attempts_in_flight", "Entries of the ledger.", registry=registry
        )
        self._silent_nodes = Gauge(
            "railwright_silent_nodes",
            "Nodes of running attempts whose launcher and kubelet are silent.",
            registry=registry,
        )
        self._breaker_open = Gauge(
            "railwright_breaker_open",
            "1 while most nodes are silent, or were in the last seconds: silence ends no attempt.",
            registry=registry,
        )
        self.violations = Counter(
            "railwright_invariant_violations_total",
            "What fresh lists show to be otherwise than it must be, by invariant.",
            ("invariant",),
            registry=registry,
        )
        self._double_booked = Gauge(
            "railwright_double_booked_nodes",
            "Nodes of which pods of several attempts hold more than there is (an invariant).",
            registry=registry,
        )

    def observe(self, plan: Turn) -> None:
        """Take the gauges from a finished turn."""
        phases = collections.Counter(record.phase for record in plan.records.values())
        for phase in Phase:
            self._jobs.labels(phase.value).set(phases[phase])
        reasons = collections.Counter(map(explain.code, plan.waits.values()))
        for reason in explain.Code:
            self._waiting.labels(reason.value).set(reasons[reason.value])
        self._in_flight.set(len(plan.ledger.entries))
        self._double_booked.set(len({booking.node for booking in plan.double_bookings}))

    def judged(self, breaker: Breaker) -> None:
        """Silence was judged in a cycle."""
        self._silent_nodes.set(breaker.silent)
        self._breaker_open.set(breaker.is_open)

    def ended(self, code: CauseCode) -> None:
        """An attempt's end was recorded on its job."""
        self.attempts_ended.labels(code.value if code.is_known else bounds.UNNAMED).inc()
