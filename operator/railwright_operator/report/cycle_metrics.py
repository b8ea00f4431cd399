"""Prometheus series of the scheduling cycle, the queue and the attempts; labels are closed sets."""

from __future__ import annotations

import collections
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from railwright_conversion import bounds
from railwright_scheduler.attempt.breaker import Breaker
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.model import reasons
from railwright_scheduler.plan import Plan

CYCLE_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)


class CycleMetrics:
    """The series, registered once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        self.cycle_s = Histogram(
            "railwright_cycle_seconds",
            "Time to build the state and plan in one scheduling cycle.",
            buckets=CYCLE_BUCKETS,
            registry=registry,
        )
        self.cycles_failed = counter(
            "railwright_cycles_failed_total",
            "Scheduling cycles that ended early, by kind of error.",
            ("error",),
        )
        self.ledger_writes = counter("railwright_ledger_writes_total", "Writes of the ledger.")
        self.events_dropped = counter(
            "railwright_events_dropped_total", "Events on jobs not posted."
        )
        self.attempts_ended = counter(
            "railwright_attempts_ended_total", "Attempts that were revoked, by cause.", ("cause",)
        )
        self.job_faults = counter(
            "railwright_job_faults_total",
            "Exceptions in the handling of one job, by stage.",
            ("stage",),
        )
        self._jobs = gauge("railwright_jobs", "Jobs, by phase.", ("phase",))
        self._waiting = gauge("railwright_jobs_waiting", "Waiting jobs, by reason.", ("reason",))
        self._in_flight = gauge("railwright_attempts_in_flight", "Entries of the ledger.")
        self._silent_nodes = gauge(
            "railwright_silent_nodes",
            "Nodes of running attempts whose launcher and kubelet are silent.",
        )
        self._breaker_open = gauge(
            "railwright_breaker_open",
            "1 while most nodes are silent, or were in the last seconds: silence ends no attempt.",
        )
        self.violations = counter(
            "railwright_invariant_violations_total",
            "Violations of invariants that fresh lists show, by invariant.",
            ("invariant",),
        )
        self._double_booked = gauge(
            "railwright_double_booked_nodes",
            "Nodes of which pods of several attempts hold more than there is (an invariant).",
        )

    def record(self, plan: Plan) -> None:
        """Set the gauges from a finished cycle."""
        phases = collections.Counter(record.phase for record in plan.records.values())
        for phase in Phase:
            self._jobs.labels(phase.value).set(phases[phase])
        waits = collections.Counter(map(reasons.code, plan.waits.values()))
        for code in reasons.CODES:
            self._waiting.labels(code).set(waits[code])
        self._in_flight.set(len(plan.ledger.entries))
        self._double_booked.set(len({booking.node for booking in plan.double_bookings}))

    def record_breaker(self, breaker: Breaker) -> None:
        """Set the gauges of silent nodes."""
        self._silent_nodes.set(breaker.silent)
        self._breaker_open.set(breaker.is_open)

    def record_end(self, code: CauseCode) -> None:
        """Count the end of an attempt, once it is recorded on its job."""
        self.attempts_ended.labels(code.value if code.is_known else bounds.UNNAMED).inc()
