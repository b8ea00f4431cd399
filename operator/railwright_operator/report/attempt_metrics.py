"""Prometheus series of the attempts of jobs: their waits, starts, ends and recoveries.

The reporter calls this for each change of a record that it has written to a job's status. Labels
are closed sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram

from railwright_conversion import bounds, times
from railwright_kube.metrics import begin
from railwright_operator.heartbeats.views import SessionView
from railwright_operator.report.status import StatusInput
from railwright_scheduler.attempt import record as records
from railwright_scheduler.attempt.causes import NEVER_RAN, Cause, CauseCode
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord

WAIT_BUCKETS = (1, 3, 10, 30, 60, 300, 900, 3600, 14400, 86400)
START_BUCKETS = (1, 3, 5, 10, 20, 30, 60, 120, 300, 900, 3600)

NO_FAILURE = records.STOPPED | NEVER_RAN | {CauseCode.PROFILED}
"""Causes after which a job does not recover: a user or a finished pre-run ended the attempt, or its
gang was never bound."""

WAITING = (Phase.QUEUED, Phase.SUSPENDED)
"""Phases in which a job has no nodes and has failed nowhere. One that is resumed can get nodes in
the same cycle."""


class AttemptMetrics:
    """The series, registered once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        histogram = partial(Histogram, registry=registry)
        self._ended = Counter(
            "railwright_attempts_ended_total",
            "Attempts that were revoked, by cause.",
            ("cause",),
            registry=registry,
        )
        self._wait_s = histogram(
            "railwright_queue_wait_seconds",
            "Time that a job waited in the phase Queued until it got nodes. The time in which it "
            "was suspended, and the time in the phase Recovering, do not count.",
            buckets=WAIT_BUCKETS,
        )
        self._start_s = histogram(
            "railwright_start_seconds",
            "Time from the choice of nodes until every rank passed the start barrier.",
            buckets=START_BUCKETS,
        )
        self._detection_s = histogram(
            "railwright_detection_seconds",
            "Time from the last heartbeat of a lost node, the report of a failed rank, or the last "
            "step of a hung one, until the operator ended the attempt, by cause.",
            ("cause",),
            buckets=START_BUCKETS,
        )
        self._recovery_s = histogram(
            "railwright_recovery_seconds",
            "Time from the end of an attempt until every rank of the next one passed the start "
            "barrier, by the cause of the end. The wait for nodes counts; jobs that were suspended "
            "meanwhile do not.",
            ("cause",),
            buckets=START_BUCKETS,
        )
        begin(self._ended, (*CauseCode, bounds.UNNAMED))
        failures = [code for code in CauseCode if code not in NO_FAILURE]
        begin(self._detection_s, (*failures, bounds.UNNAMED))
        begin(self._recovery_s, (*failures, bounds.UNNAMED))

    def record(
        self, before: JobRecord, given: StatusInput, *, submitted_s: int, received_s: float
    ) -> dict[str, float]:
        """Take in a record that was written. ``submitted_s`` is the Unix time at which the job was
        created, ``received_s`` the time on the clock of heartbeats. Returns how long the detection
        or the recovery took that ended with it, as ``JobMetrics`` has them."""
        after, now_s, took = given.record, times.parse(given.now), dict[str, float]()
        cause = records.ending(before, after)
        if cause is not None:
            self._ended.labels(cause_label(cause)).inc()
            sign_s = last_sign_s(given.session, cause)
            if sign_s is not None:
                # The write of the status took the time since the end.
                written_s = max(0, now_s - cause.time_s) if cause.time_s else 0
                detected_s = max(0.0, received_s - written_s - sign_s)
                self._detection_s.labels(cause_label(cause)).observe(detected_s)
                took["last_detection_seconds"] = detected_s
        if after.live and after.attempt > before.attempt and before.phase in WAITING:
            waited_s = now_s - queued_since_s(given.before, submitted_s)
            self._wait_s.observe(max(0, waited_s) if before.phase is Phase.QUEUED else 0)
        if after.phase is Phase.RUNNING and before.phase is Phase.STARTING:
            took |= self._record_start(given, now_s)
        return took

    def _record_start(self, given: StatusInput, now_s: int) -> dict[str, float]:
        placed_s = _since_s(given.before, "Scheduled", "True")
        if placed_s is not None:
            self._start_s.observe(max(0, now_s - placed_s))
        ended = given.record.last_termination
        if ended is None or not ended.time_s or ended.code in NO_FAILURE:
            return {}
        resumed_s = _since_s(given.before, "Suspended", "False")
        if resumed_s is not None and resumed_s > ended.time_s:
            return {}
        recovered_s = max(0, now_s - ended.time_s)
        self._recovery_s.labels(cause_label(ended)).observe(recovered_s)
        return {"last_recovery_seconds": recovered_s}


def last_sign_s(session: SessionView | None, cause: Cause) -> float | None:
    """The time on the clock of heartbeats of the last sign before a failure; None if there is
    none."""
    if session is None:
        return None
    if cause.code is CauseCode.NODE_LOST:
        lost = frozenset(cause.nodes)
        signs = [rank.received_at_s for rank in session.ranks if rank.node in lost]
    elif cause.code is CauseCode.HUNG:
        signs = [
            rank.received_at_s - (rank.steps.lag_s or rank.steps.still_s)
            for rank in session.ranks
            if rank.steps is not None and rank.received_at_s is not None
            if rank.running and session.layout.trains(rank.node_rank)
        ]
    else:
        signs = [rank.failed_at_s for rank in session.ranks]
    return min((sign for sign in signs if sign is not None), default=None)


QUEUED = (("Scheduled", "False"), ("Suspended", "False"), ("Healthy", "True"))
"""Conditions that a job got when it began to wait."""


def queued_since_s(status: Mapping[str, Any], submitted_s: int) -> int:
    """Since when a queued job has waited: it was created, lost its nodes, was resumed, or is no
    longer Recovering, in which phase it is not Healthy."""
    since = queued_since(status, "")
    return max(submitted_s, times.parse(since) if since else 0)


def queued_since(status: Mapping[str, Any], created: str) -> str:
    """The same as the API has it. Its times have one format, and are in order as texts: of many
    jobs they need not be parsed."""
    return max(created, *(_since(status, *each) or "" for each in QUEUED))


def _since_s(status: Mapping[str, Any], condition: str, value: str) -> int | None:
    found = _since(status, condition, value)
    return None if found is None else times.parse(found)


def _since(status: Mapping[str, Any], condition: str, value: str) -> str | None:
    """Since when a condition has this value; None if it has another one."""
    for each in status.get("conditions", []):
        if each["type"] == condition and each["status"] == value:
            return str(each["lastTransitionTime"])
    return None


def cause_label(cause: Cause) -> str:
    """The code of a cause as a label: those of later versions have one together."""
    return cause.code.value if cause.code.is_known else bounds.UNNAMED
