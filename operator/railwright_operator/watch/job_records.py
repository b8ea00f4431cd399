"""Convert the status of a TrainingJob to its record. The cache of jobs calls this."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright_conversion import checkpoints, times
from railwright_operator.watch import causes
from railwright_scheduler.attempt.causes import Cause
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord, PreRunRecord

Raw = Mapping[str, Any]

ATTEMPT_MAX = 999_999
"""Two months with an attempt every five seconds. Names of pods have space for these digits."""


class StatusError(ValueError):
    """A status that the operator does not write."""

    def __init__(self, what: str) -> None:
        super().__init__(f"its status was not written by the operator: {what}")


def record_of(raw: Raw) -> JobRecord:
    """The record in a job's status; a job without one is new. The nodes of a live attempt are in
    its Placement.

    Raises ValueError for a status that the operator does not write.
    """
    status = raw.get("status") or {}
    last_termination = status.get("lastTermination")
    points, pre_run = status.get("checkpoints", ()), status.get("preRun")
    started = status.get("startedAt")
    record = JobRecord(
        phase=_phase(status),
        attempt=status.get("attempt", 0),
        ended=status.get("endedAttempt", 0),
        spec_hash=status.get("specHash", ""),
        moves=status.get("moves", 0),
        restarts=status.get("restarts", 0),
        failures=status.get("failures", 0),
        failure_times_s=tuple(map(times.parse, status.get("failureTimes", ()))),
        start_failures=status.get("startFailures", 0),
        hangs=status.get("hangs", 0),
        last_termination=None if last_termination is None else _cause(last_termination),
        checkpoints=tuple(map(checkpoints.parse, points)),
        pre_run=pre_run
        and PreRunRecord(pre_run["specHash"], pre_run["attempts"], pre_run.get("message", "")),
        started_s=None if started is None else times.parse(started),
    )
    _check(record)
    return record


def _phase(status: Raw) -> Phase:
    """The phase. A phase of a later version is mapped to one of this version.

    A live attempt counts as starting until its launchers report that it runs, a finished job as
    failed, and any other as queued. Raises ValueError for a value that is not a string.
    """
    value = status.get("phase", Phase.QUEUED.value)
    if not isinstance(value, str):
        raise StatusError(f"phase is {value!r}, expected a string")
    if value in list(Phase):
        return Phase(value)
    if status.get("attempt", 0) > status.get("endedAttempt", 0):
        return Phase.STARTING
    return Phase.FAILED if status.get("finishedAt") else Phase.QUEUED


def _check(record: JobRecord) -> None:
    """Refuse a record that contradicts itself."""
    live = record.phase in (Phase.PROFILING, Phase.STARTING, Phase.RUNNING)
    if record.attempt != record.ended + live:
        expected = "the one after endedAttempt" if live else "endedAttempt"
        raise StatusError(
            f"phase {record.phase} with attempt {record.attempt} and endedAttempt {record.ended}, "
            f"expected attempt to be {expected}"
        )
    if record.attempt > ATTEMPT_MAX:
        raise StatusError(f"attempt is {record.attempt}, expected at most {ATTEMPT_MAX}")


def _cause(last_termination: Raw) -> Cause:
    return causes.parse({**last_termination, "code": last_termination["cause"]})
