"""The events of a job: what changed in its record and status from one scheduling cycle to the next.

The reporter calls this for each status that it has written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from railwright_operator.report.events import JobEvent
from railwright_operator.report.status import (
    AT_BARRIER,
    BINDING,
    CONTAINER_CREATING,
    QUEUED,
    Status,
    skipped_checkpoints,
)
from railwright_scheduler.attempt import record as records
from railwright_scheduler.attempt import resume_points
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.model import text
from railwright_scheduler.model.reasons import MappingPending

LAST_LINES_QUOTED = 3

STARTING = frozenset({Phase.PROFILING, Phase.STARTING})

WANTED = frozenset({CauseCode.PROFILED, CauseCode.SUSPENDED})
"""Causes that are no failure. Their events are no warnings."""

ROUTINE = frozenset({QUEUED, MappingPending.__name__, BINDING, CONTAINER_CREATING, AT_BARRIER})
"""Reasons of every job, for seconds. They have no event."""


def changes(
    job: Mapping[str, Any],
    *,
    records_changed: tuple[JobRecord, JobRecord],
    status_changed: tuple[Mapping[str, Any], Status],
    training_group: str,
) -> Iterator[JobEvent]:
    """The events of one cycle, each cause before its effects; ``job`` is the job's metadata."""
    (before, after), (old, status) = records_changed, status_changed
    cause = records.ending(before, after)
    if cause is not None:
        note, is_wanted = _end(after.ended, cause), cause.code in WANTED
        yield JobEvent(job, cause.code.value, note, warning=not is_wanted, is_end=True)
    if _is_placed(before, after):
        yield JobEvent(job, "Scheduled", _placement(after))
    phase, reason, message = after.phase, status["reason"], status["message"]
    notes = {
        Phase.RUNNING: f"every rank passed the barrier: {message}",
        Phase.RECOVERING: _recovery(after, training_group),
        Phase.SUSPENDED: message,
        Phase.SUCCEEDED: message,
        Phase.FAILED: message,
    }
    is_same = phase is before.phase or _suspends(cause, phase)
    # A queued job without a reason to wait shows how its last attempt ended, which had an event.
    silent = ROUTINE | {each.code.value for each in (after.last_termination,) if each}
    if phase in notes and not is_same:
        yield JobEvent(job, phase.value, notes[phase], warning=phase is Phase.FAILED)
    elif (phase is Phase.QUEUED or (phase in STARTING and is_same)) and reason not in silent:
        # Once for each reason of an attempt, however the numbers in the message change.
        yield JobEvent(job, reason, message, topic=f"attempt {after.attempt}")
    yield from _warnings(job, before, after, skipped_checkpoints(old), skipped_checkpoints(status))


def _warnings(
    job: Mapping[str, Any], before: JobRecord, after: JobRecord, held: str, skipped: str
) -> Iterator[JobEvent]:
    """A pre-run that is given up, and checkpoints that were skipped."""
    given_up = after.pre_run.given_up if after.pre_run is not None else ""
    if given_up and after.pre_run != before.pre_run:
        note = f"{given_up}; the job starts with traffic derived from its workload"
        yield JobEvent(job, "PreRunGivenUp", note, warning=True)
    if skipped and skipped != held:
        yield JobEvent(job, "CheckpointSkipped", skipped, warning=True)


def _suspends(cause: Cause | None, phase: Phase) -> bool:
    """Whether the event of the attempt's end says all that the one of the phase would."""
    return phase is Phase.SUSPENDED and cause is not None and cause.code is CauseCode.SUSPENDED


def _end(attempt: int, cause: Cause) -> str:
    lines = cause.last_lines.strip().splitlines()[-LAST_LINES_QUOTED:]
    quoted = f"; its last lines: {' | '.join(lines)}" if lines else ""
    return f"attempt {attempt}: {cause.message}{quoted}"


def _is_placed(before: JobRecord, after: JobRecord) -> bool:
    """Whether an attempt got its nodes, and has them still."""
    return after.attempt > before.attempt and after.nodes != ()


def _placement(record: JobRecord) -> str:
    nodes = ", ".join(record.nodes[:8]) + (" …" if len(record.nodes) > 8 else "")
    count = text.count(len(set(record.nodes)), "node")
    return f"attempt {record.attempt}: {count}, by node rank: {nodes}"


def _recovery(record: JobRecord, training_group: str) -> str:
    later = f" in {record.backoff_s} s" if record.backoff_s else ""
    newest = resume_points.newest(record.checkpoints, training_group)
    if newest is None:
        return f"a new attempt follows{later}; no checkpoint was committed: it starts over"
    return (
        f"a new attempt follows{later}; it resumes from the newest sound checkpoint up to step "
        f"{newest.step} of attempt {newest.attempt}"
    )
