"""TrainingJobs as commands read them: one by its name, or all that are not finished, in the order
of the queue."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer

from railwright_api import names, routes
from railwright_cli.api_objects import JobView, PlacementView, PriorityClassView
from railwright_cli.api_server import NAME, PRIORITY_CLASSES, ApiServer
from railwright_cli.errors import AccessDeniedError, CommandError, RequestError, UsageError
from railwright_scheduler.model.reasons import BY_CODE

UNSCHEDULABLE = frozenset(code for code, each in BY_CODE.items() if each.unschedulable)
"""Reasons of jobs that keep no nodes from those behind them: they have no position."""

WITH_POSITION = 1
UNFINISHED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}


def job_names(ctx: typer.Context) -> list[str]:
    """The names of the jobs of the namespace, for the completion of a shell; none if they cannot
    be read."""
    try:
        server = ApiServer(ctx.params.get("context") or "", ctx.params.get("namespace") or "")
        found = server.items(routes.kind(names.TRAINING_JOBS, server.namespace), JobView)
    except CommandError:
        return []
    return [each.metadata.name for each in found]


JobName = Annotated[
    str,
    typer.Argument(metavar="JOB", help="NAME or NAMESPACE/NAME", autocompletion=job_names),
]
Namespace = Annotated[
    str,
    typer.Option("-n", "--namespace", help="the namespace; default: that of the context"),
]
Context = Annotated[
    str, typer.Option("--context", help="the context of the kubeconfig; default: the current one")
]


@dataclass(frozen=True, slots=True)
class Queued:
    """A job in the queue. ``position`` counts from 1; None if the job does not wait, or if it is
    unknown, as is the priority then, or if the job cannot get nodes as it is."""

    job: JobView
    priority: int | None
    position: int | None


@dataclass(frozen=True, slots=True)
class JobReference:
    """A job by its name, on an API server."""

    server: ApiServer
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """Its path."""
        return routes.one(names.TRAINING_JOBS, self.name, namespace=self.namespace)

    def read(self) -> JobView:
        """The job. Raises UsageError with the nearest name if there is none."""
        job = self.server.find(self.path, JobView)
        if job is None:
            raise UsageError(self._not_found())
        return job

    def find_placement(self, attempt: int) -> PlacementView | None:
        """The Placement of an attempt; None if there is none."""
        name = names.placement_name(self.name, attempt)
        path = routes.one(names.PLACEMENTS, name, namespace=self.namespace)
        return self.server.find(path, PlacementView)

    def _not_found(self) -> str:
        message = f"there is no job {self.name!r} in namespace {self.namespace}"
        try:
            path = routes.kind(names.TRAINING_JOBS, self.namespace)
            found = self.server.items(path, JobView)
        except RequestError:
            return message
        nearest = difflib.get_close_matches(self.name, [each.metadata.name for each in found], n=1)
        return f"{message}; the nearest is {nearest[0]!r}" if nearest else message


def reference(job: str, namespace: str, context: str) -> JobReference:
    """The job that an argument names. Raises UsageError."""
    (found,) = references([job], namespace, context)
    return found


def references(jobs: Iterable[str], namespace: str, context: str) -> list[JobReference]:
    """The jobs that arguments name, each once. Raises UsageError."""
    parts = [_parts(job, namespace) for job in jobs]
    server = ApiServer(context, namespace)
    named = dict.fromkeys((place or server.namespace, name) for place, name in parts)
    return [JobReference(server, place, name) for place, name in named]


def _parts(job: str, namespace: str) -> tuple[str, str]:
    """The namespace, which may be empty, and the name. Raises UsageError."""
    place, slash, name = job.rpartition("/")
    if not NAME.fullmatch(name) or (slash and not NAME.fullmatch(place)):
        raise UsageError(f"{job!r} is neither NAME nor NAMESPACE/NAME of a job")
    if place and namespace and place != namespace:
        raise UsageError(f"{job} is in namespace {place}, and --namespace is {namespace}")
    return place, name


def queue_order(server: ApiServer) -> list[Queued]:
    """All jobs that are not finished: those that hold nodes, the oldest first, then those that
    wait, the next one first, then those that cannot get nodes. The scheduler decides by priority,
    then by age, then by UID. Without the right to list PriorityClasses, which is noted on stderr,
    priorities and positions are unknown.

    Raises RequestError if the user may not list the jobs of all namespaces.
    """
    jobs = server.items(routes.kind(names.TRAINING_JOBS), JobView, UNFINISHED)
    try:
        return ordered(jobs, server.items(PRIORITY_CLASSES, PriorityClassView))
    except AccessDeniedError as error:
        note_unknown(error)
        return [replace(each, priority=None, position=None) for each in ordered(jobs, ())]


def note_unknown(error: RequestError) -> None:
    """Say on stderr why positions are unknown."""
    typer.echo(f"railwright: positions are unknown: {error}", err=True)


def ordered(jobs: Iterable[JobView], classes: Sequence[PriorityClassView]) -> list[Queued]:
    """Jobs in the order of the queue."""

    def priority(job: JobView) -> int:
        return priority_of(job.spec.priority_class_name, classes)

    def place(job: JobView) -> tuple[int, int, str, str]:
        made = job.metadata.creation_timestamp
        order = _order(job)
        rank = -priority(job) if order == WITH_POSITION else 0
        return order, rank, made.isoformat() if made else "", job.metadata.uid

    found, position = [], 0
    for job in sorted(jobs, key=place):
        has_position = _order(job) == WITH_POSITION
        position += has_position
        found.append(Queued(job, priority(job), position if has_position else None))
    return found


def priority_of(name: str | None, classes: Iterable[PriorityClassView]) -> int:
    """The value of a class, or without a name that of the cluster's default class, as in the
    operator."""
    if not name:
        return min((each.value for each in classes if each.global_default), default=0)
    return next((each.value for each in classes if each.metadata.name == name), 0)


def _order(job: JobView) -> int:
    """Jobs that hold nodes, then those that wait, then those that cannot get nodes as they are,
    then suspended ones and those that are being deleted."""
    if job.status.phase == "Suspended" or job.is_being_deleted:
        return WITH_POSITION + 2
    if not job.is_waiting:
        return WITH_POSITION - 1
    return WITH_POSITION + (job.status.reason in UNSCHEDULABLE)
