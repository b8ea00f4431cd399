"""What changed in a job from one turn to the next, as the events a person reads in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from railwright_operator.report.events import Story, Subject
from railwright_operator.report.status import (
    AT_BARRIER,
    BINDING,
    CONTAINER_CREATING,
    QUEUED,
    Status,
)
from railwright_scheduler.attempt import record as records
from railwright_scheduler.attempt.causes import Cause
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord

LAST_LINES_TOLD = 3

ROUTINE = frozenset({QUEUED, BINDING, CONTAINER_CREATING, AT_BARRIER})
"""What every job passes through: no event tells it."""


def tell(job: Subject, *, before: JobRecord, after: JobRecord, status: Status) -> Iterator[Story]:
    """The stories of one turn, the cause before what was done about it."""
    cause = records.ending(before, after)
    if cause is not None:
        yield _story(job, cause.code.value, _what_ended(after.ended, cause), warning=True)
    if after.attempt > before.attempt:
        yield _story(job, "Scheduled", _placed(after))
    if after.phase is not before.phase:
        yield from _entered(job, before, after, status)
    elif after.phase in (Phase.QUEUED, Phase.STARTING) and status["reason"] not in ROUTINE:
        yield _stands(job, after, status)


def tell_skipped(job: Subject, *, before: str, after: str) -> Iterator[Story]:
    """The story of checkpoints that turned out unfit, when a status is the first to say it.

    ``before`` and ``after`` are what two statuses say of them.
    """
    if after and after != before:
        yield _story(job, "CheckpointSkipped", after, warning=True)


def tell_pre_run(job: Subject, *, before: Mapping[str, Any], after: Status) -> Iterator[Story]:
    """The story of a pre-run that brought nothing, when a status is the first to say it."""
    end = after.get("preRun")
    if end and end != before.get("preRun"):
        note = f"{end['message']}; the job starts without, by what is derived of its workload"
        yield _story(job, "PreRunGivenUp", note, warning=True)


def _entered(job: Subject, before: JobRecord, after: JobRecord, status: Status) -> Iterator[Story]:
    message = status["message"]
    match after.phase:
        case Phase.QUEUED if status["reason"] != QUEUED:
            yield _stands(job, after, status)
        case Phase.RUNNING:
            yield _story(job, "Running", f"every rank passed the barrier: {message}")
        case Phase.RECOVERING:
            yield _story(job, "Recovering", _plan(after))
        case Phase.SUSPENDED:
            yield _story(job, "Suspended", message)
        case Phase.SUCCEEDED:
            yield _story(job, "Succeeded", message)
        case Phase.FAILED:
            yield _story(job, "Failed", message, warning=True)
        case _:
            return


def _stands(job: Subject, record: JobRecord, status: Status) -> Story:
    """Why it does not go on: once for each reason of an attempt, however its numbers move."""
    topic = f"attempt {record.attempt}"
    return Story(job, status["reason"], status["message"], topic=topic)


def _what_ended(attempt: int, cause: Cause) -> str:
    lines = cause.last_lines.strip().splitlines()[-LAST_LINES_TOLD:]
    quoted = f"; its last lines: {' | '.join(lines)}" if lines else ""
    return f"attempt {attempt}: {cause.message}{quoted}"


def _placed(record: JobRecord) -> str:
    nodes = ", ".join(record.nodes[:8]) + (" …" if len(record.nodes) > 8 else "")
    return f"attempt {record.attempt}: {len(record.nodes)} nodes, by node rank: {nodes}"


def _plan(record: JobRecord) -> str:
    later = f" in {record.backoff_s} s" if record.backoff_s else ""
    if not record.checkpoints:
        return f"a new attempt follows{later}; no checkpoint was committed: it starts over"
    newest = record.checkpoints[0]
    return (
        f"a new attempt follows{later}; it resumes from the newest sound checkpoint up to step "
        f"{newest.step} of attempt {newest.attempt}"
    )


def _story(job: Subject, reason: str, note: str, *, warning: bool = False) -> Story:
    return Story(job, reason, note, warning=warning)
