"""Prometheus series of the scheduling cycle, the queue and the ledger; labels are closed sets."""

from __future__ import annotations

import collections
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from railwright_kube import errors
from railwright_kube.metrics import begin
from railwright_operator.faults import STATUS
from railwright_scheduler.attempt.breaker import Breaker
from railwright_scheduler.attempt.ledger import AttemptKey, EntryState
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.isolation import Stage
from railwright_scheduler.model import reasons
from railwright_scheduler.plan import Plan

CYCLE_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 1.0, 3.0)
BIND_BUCKETS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)

ADMITTED = "Admitted"
UNEXPECTED = "unexpected"
"""The kind of an error that is no failed request."""

VERIFIED = ("I2", "I3", "I17")
"""The invariants that ``Verification`` compares with fresh lists."""


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
        self.cycle_cpu_s = Histogram(
            "railwright_cycle_cpu_seconds",
            "CPU time to build the state and plan in one scheduling cycle, without that of other "
            "tasks and processes.",
            buckets=CYCLE_BUCKETS,
            registry=registry,
        )
        self.cycles_failed = counter(
            "railwright_cycles_failed_total",
            "Scheduling cycles that ended early, by kind of error: that of a failed request, or "
            f"{UNEXPECTED}, whose traceback is in the log.",
            ("error",),
        )
        self.ledger_writes = counter("railwright_ledger_writes_total", "Writes of the ledger.")
        self.events_dropped = counter(
            "railwright_events_dropped_total", "Events on jobs not posted."
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
            "1 while most nodes are silent, or were in the last 30 s: silence ends no attempt.",
        )
        self.violations = counter(
            "railwright_invariant_violations_total",
            "Violations of invariants that a comparison of the caches with fresh lists shows, by "
            "invariant.",
            ("invariant",),
        )
        self._double_booked = gauge(
            "railwright_double_booked_nodes",
            "Nodes whose pods, of several attempts, hold more than the node has.",
        )

        self._construct_decisions(registry)
        begin(self.cycles_failed, (UNEXPECTED, *errors.NAMES))
        begin(self.job_faults, (*Stage, STATUS))
        begin(self.violations, VERIFIED)
        self._waits: dict[str, str] | None = None
        self._committing: dict[AttemptKey, float | None] = {}

    def _construct_decisions(self, registry: CollectorRegistry) -> None:
        """The series that compare a cycle with the one before."""
        self._decisions = Counter(
            "railwright_decisions_total",
            "Changed decisions about jobs, by outcome: Admitted, or the reason why the job waits.",
            ("outcome",),
            registry=registry,
        )
        begin(self._decisions, (ADMITTED, *reasons.CODES))
        self._bind_s = Histogram(
            "railwright_gang_bind_seconds",
            "Time from the entry of an attempt in the ledger until all of its pods were bound and "
            "the job's status had that.",
            buckets=BIND_BUCKETS,
            registry=registry,
        )

    def count_failure(self, error: Exception) -> None:
        """Count a cycle that ended early."""
        is_request = isinstance(error, errors.RequestFailed)
        self.cycles_failed.labels(type(error).__name__ if is_request else UNEXPECTED).inc()

    def record(self, plan: Plan, now_s: float) -> None:
        """Take in a finished cycle; ``now_s`` is monotonic."""
        is_first = self._waits is None
        self._record_decisions(plan)
        # A gang that a new leader finds began before.
        self._record_commits(plan, now_s, begun_s=None if is_first else now_s)
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

    def _record_decisions(self, plan: Plan) -> None:
        """Count the jobs whose reason to wait changed, and those that were admitted. What a new
        leader finds in its first cycle was decided before."""
        waits = {uid: reasons.code(reason) for uid, reason in plan.waits.items()}
        committing = {
            entry.key for entry in plan.ledger.entries if entry.state is EntryState.COMMITTING
        }
        if self._waits is not None:
            for uid, code in waits.items():
                if self._waits.get(uid) != code:
                    self._decisions.labels(code).inc()
            self._decisions.labels(ADMITTED).inc(len(committing - self._committing.keys()))
        self._waits = waits

    def _record_commits(self, plan: Plan, now_s: float, *, begun_s: float | None) -> None:
        """Measure how long gangs took to be bound. A gang that is rolled back is no longer live
        when its entry leaves the ledger."""
        states = {entry.key: entry.state for entry in plan.ledger.entries}
        for (uid, attempt), since_s in self._committing.items():
            record = plan.records.get(uid)
            if (uid, attempt) in states or record is None or since_s is None:
                continue
            if record.attempt >= attempt > record.ended or record.phase is Phase.SUCCEEDED:
                self._bind_s.observe(now_s - since_s)
        self._committing = {
            key: self._committing.get(key, begun_s)
            for key, state in states.items()
            if state is EntryState.COMMITTING
        }
