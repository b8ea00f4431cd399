"""``railwright why``: why a job waits, does not start, restarted or failed, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from multiprocessing.pool import ThreadPool
from typing import Any

import msgspec
import typer

from railwright_cli import interruptible, tables
from railwright_cli.amounts import count
from railwright_cli.api_objects import JobView, LastTermination
from railwright_cli.errors import AccessDeniedError
from railwright_cli.jobs import (
    UNSCHEDULABLE,
    Context,
    JobName,
    JobReference,
    Namespace,
    Queued,
    note_unknown,
    queue_order,
    reference,
)
from railwright_cli.tables import OutputOption, Row, age, printable, show_document
from railwright_scheduler.model.reasons import BY_CODE

WHAT_TO_DO = {
    "Queued": "Wait: a few seconds, or the back-off in the message.",
    **{code: reason.advice for code, reason in BY_CODE.items()},
}
"""What a user can do about each reason for which a job waits."""

AHEAD_SHOWN = 5
LINES_SHOWN = 10
OF_THE_PHASE = ("Scheduled", "Running", "Suspended", "Complete", "Failed")
"""Conditions that change when the phase does."""


def why(
    name: JobName, namespace: Namespace = "", context: Context = "", output: OutputOption = "table"
) -> None:
    """Explain the state of a job: the cause first, then what to do about it.

    For a job that waits, the jobs ahead of it are listed, and its devices: how many it requests,
    and of those on nodes that it may use how many are free, available (its pods could have
    them now: one on each node with space for it), in use, and unusable (on nodes that are down,
    cordoned or tainted, or failed). For one that restarted or failed, the first rank that failed
    and its last lines.
    """
    its = reference(name, namespace, context)
    job = its.read()
    queued: list[Queued] = []
    devices: list[Row] = []
    if job.is_waiting:
        with ThreadPool(1) as beside:
            read = beside.apply_async(_devices, (its,))
            try:
                queued = queue_order(its.server)
            except AccessDeniedError as error:
                note_unknown(error)
            # It may have started since it was read.
            job = next((each.job for each in queued if _is_same(each.job, job)), job)
            devices = interruptible.wait(read) if job.is_waiting else []
    if output in ("json", "yaml"):
        show_document(_document(job, queued) | {"devices": devices}, output)
        return
    for line in lines(job, queued, datetime.now(UTC), devices):
        typer.echo(line)


def _is_same(job: JobView, other: JobView) -> bool:
    return job.metadata.uid == other.metadata.uid


def _devices(its: JobReference) -> list[Row]:
    """What the job requests of devices, and what there is of them."""
    # It imports numpy, for which a job that does not wait needs not wait.
    from railwright_cli import devices

    try:
        return devices.read_device_rows(its.server, its.path)
    except AccessDeniedError as error:
        typer.echo(f"railwright: what is free is unknown: {error}", err=True)
        return []


def lines(
    job: JobView, queued: list[Queued], now: datetime, devices: Sequence[Row] = ()
) -> Iterator[str]:
    """What is printed of a job, among the jobs of the queue and with its devices if it waits."""
    status = job.status
    yield _state(job, now)
    if status.message:
        yield f"  {printable(status.message)}"
    if advice := _advice(job):
        yield f"  What to do: {advice}"
    if found := _not_healthy(job):
        yield f"  Not healthy: {found}"
    if job.is_waiting:
        yield ""
        yield from _queue_lines(job, queued, now)
        if devices:
            yield ""
            yield from tables.lines([*devices[0]], devices)
    if (ended := status.last_termination) is not None and status.phase != "Succeeded":
        yield ""
        yield from _termination_lines(ended, now)


def _state(job: JobView, now: datetime) -> str:
    status = job.status
    if (since := job.metadata.deletion_timestamp) is not None:
        passed = age(since, now)
        return f"{job.metadata.namespace}/{job.metadata.name} is being deleted, for {passed}"
    # A condition keeps its time when only its reason changes: the latest change of any counts.
    changed = [
        each.last_transition_time
        for each in status.conditions
        if each.last_transition_time and each.type in OF_THE_PHASE
    ]
    since = max(changed, default=job.metadata.creation_timestamp)
    reason = f": {status.reason}" if status.reason not in (None, status.phase) else ""
    passed = f", for {age(since, now)}" if since else ""
    return f"{job.metadata.namespace}/{job.metadata.name} is {status.phase}{reason}{passed}"


def _not_healthy(job: JobView) -> str | None:
    """What is wrong with a job beside the reason of its phase."""
    healthy = job.condition("Healthy")
    if healthy is None or healthy.status != "False" or healthy.reason == job.status.reason:
        return None
    return f"{healthy.reason}: {printable(healthy.message)}"


def _advice(job: JobView) -> str | None:
    status = job.status
    if job.is_finished or job.is_being_deleted:
        return None
    if advice := WHAT_TO_DO.get(status.reason or ""):
        return advice
    if (status.observed_generation or 0) < job.metadata.generation:
        return "The operator has not handled the job as it is now. If that lasts: railwright doctor"
    if status.phase == "Suspended":
        return f"railwright resume {job.metadata.namespace}/{job.metadata.name}"
    return None


def _queue_lines(job: JobView, queued: list[Queued], now: datetime) -> Iterator[str]:
    own = next((each for each in queued if _is_same(each.job, job)), None)
    if own is None or own.position is None:
        is_refused = queued and job.status.reason in UNSCHEDULABLE
        because = "it cannot get nodes as it is" if is_refused else "positions are unknown"
        yield f"Queue: {job.spec.queue}, without a position: {because}"
        return
    waiting = [each for each in queued if each.position is not None]
    yield (
        f"Queue: position {own.position} of {len(waiting)}, in queue {job.spec.queue}, "
        f"priority {own.priority}"
    )
    for each in waiting[: min(own.position - 1, AHEAD_SHOWN)]:
        yield f"  {_described(each, now)}"
    if own.position - 1 > AHEAD_SHOWN:
        yield f"  and {own.position - 1 - AHEAD_SHOWN} more: railwright queue -A"


def _described(queued: Queued, now: datetime) -> str:
    job = queued.job
    made = job.metadata.creation_timestamp
    waited = f", {age(made, now)} old" if made else ""
    nodes = count(job.replicas, "node")
    return (
        f"{queued.position}. {job.metadata.namespace}/{job.metadata.name}: {nodes}, "
        f"priority {queued.priority}{waited}, {job.status.reason or job.status.phase}"
    )


def _termination_lines(ended: LastTermination, now: datetime) -> Iterator[str]:
    when = f", {age(ended.time, now)} ago" if ended.time else ""
    yield f"Attempt {ended.attempt} ended{when}: {ended.cause}: {printable(ended.message)}"
    place = [f"rank {ended.rank}"] if ended.rank is not None else []
    place += [f"on node {ended.node}"] if ended.node else []
    place += [f"exit code {ended.exit_code}"] if ended.exit_code is not None else []
    place += [f"signal {ended.signal}"] if ended.signal else []
    if place:
        yield f"  First failure: {', '.join(place)}"
    for line in (ended.last_lines or "").splitlines()[-LINES_SHOWN:]:
        yield f"  | {printable(line)}"


def _document(job: JobView, queued: list[Queued]) -> dict[str, Any]:
    status = job.status
    waiting = [each for each in queued if each.position is not None]
    own = next((each for each in waiting if _is_same(each.job, job)), None)
    position = own.position if own else None
    ahead = waiting[: position - 1] if position else []
    return {
        "namespace": job.metadata.namespace,
        "name": job.metadata.name,
        "phase": status.phase,
        "reason": status.reason,
        "message": status.message,
        "whatToDo": _advice(job),
        "notHealthy": _not_healthy(job),
        "priority": own.priority if own else None,
        "position": position,
        "waiting": len(waiting) if position else None,
        "ahead": [f"{each.job.metadata.namespace}/{each.job.metadata.name}" for each in ahead],
        "lastTermination": msgspec.to_builtins(status.last_termination, builtin_types=(datetime,)),
    }
