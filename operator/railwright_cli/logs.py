"""``railwright logs``: what a rank printed, across the attempts of its job."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, ParamSpec, TypeVar

import typer

from railwright_api import names
from railwright_cli.api_objects import JobView
from railwright_cli.api_server import NOT_FOUND
from railwright_cli.errors import RequestError, UsageError
from railwright_cli.jobs import Context, JobName, JobReference, Namespace, reference
from railwright_cli.pods import PodView, place_of_rank, pods_of, pods_path, roles_of_attempt

Given = ParamSpec("Given")
Read = TypeVar("Read")

SILENCE_S = 15
"""A log that is silent for so long is opened again: its node may be dead."""

PAUSE_S_FIRST, PAUSE_S_LONGEST = 0.5, 5.0
NOT_STARTED = 400
"""The response to a request for the log of a container that has not started."""

OF_A_RANK = re.compile(rb"\[rank (\d+)\] ")
TIMESTAMP = re.compile(rb"\d{4}-\d\d-\d\dT[0-9:.]+(?:Z|[+-][0-9:]+)")


def logs(
    name: JobName,
    follow: Annotated[
        bool,
        typer.Option("-f", "--follow", help="go on until the job ends, across its attempts"),
    ] = False,
    role: Annotated[str, typer.Option(help="a role; default: the first one")] = "",
    rank: Annotated[
        int | None,
        typer.Option(min=0, help="a RANK; default: all ranks of the role's first pod"),
    ] = None,
    previous: Annotated[
        bool, typer.Option("--previous", help="of the attempt before the newest one")
    ] = False,
    all_attempts: Annotated[
        bool, typer.Option("--all-attempts", help="of all attempts whose pods exist")
    ] = False,
    namespace: Namespace = "",
    context: Context = "",
) -> None:
    """Print the log of a rank, or of a pod.

    Roles of one group count their ranks together. With --follow the exit code is that of the job:
    0 if it succeeded, 1 if it failed. Pods of attempts that ended early are deleted: of those, the
    last lines of the first rank that failed are printed instead.
    """
    if previous and (follow or all_attempts):
        raise UsageError("--previous is of one attempt: use it without --follow, --all-attempts")
    its = reference(name, namespace, context)
    job = its.read()
    newest = job.status.attempt
    place_of_rank(roles_of_attempt(its, job, newest), role, rank)
    source = _Source(its, role, rank)
    if follow:
        raise typer.Exit(
            source.follow(job, done=0 if all_attempts else max(0, job.status.attempt - 1))
        )
    newest = job.status.attempt
    if all_attempts:
        attempts = sorted({pod.attempt for pod in pods_of(its, job)} | {newest})
    else:
        attempts = [newest - 1 if previous else newest]
    if not source.print_until_now(job, attempts):
        raise typer.Exit(2)


@dataclass(frozen=True, slots=True)
class _Source:
    """The pod of each attempt that runs a rank, or the first pod of a role if that is None."""

    its: JobReference
    role: str
    rank: int | None

    def print_until_now(self, job: JobView, attempts: list[int]) -> bool:
        """Print what there is of these attempts. Returns whether all of it could be read."""
        is_read = True
        for attempt in attempts:
            if (pod := self._pod(job, attempt)) is None:
                _print_termination(job, attempt)
                continue
            self._announce(pod)
            try:
                for _, line in self._stamped(pod, b"", is_followed=False):
                    self._print(line)
            except RequestError as error:
                # The log of a dead node cannot be read: those of others can.
                typer.echo(f"railwright: {error}", err=True)
                is_read = False
        return is_read

    def follow(self, job: JobView, *, done: int) -> int:
        """Print the log of each attempt after ``done`` until the job ends. Returns the exit
        code."""
        uid, pauses = job.metadata.uid, _pauses()
        while True:
            pod = _patiently(self._next_pod, job, done)
            if pod is not None and self._follow_pod(pod, uid):
                done, pauses = pod.attempt, _pauses()
            elif job.status.ended_attempt > done:
                done = job.status.ended_attempt
                _print_termination(job, done)
            elif job.is_finished:
                return self._end(job)
            else:
                time.sleep(next(pauses))
            found = self._job(uid)
            if found is None:
                typer.echo("railwright: the job was deleted", err=True)
                return 1
            job = found

    def _follow_pod(self, pod: PodView, uid: str) -> bool:
        """Print the log of a pod up to its end. Returns False if the container has not started."""
        last, is_announced, pauses = b"", False, _pauses()
        while True:
            is_broken = False
            try:
                for stamp, line in self._stamped(pod, last, is_followed=True):
                    if not is_announced:
                        self._announce(pod)
                    is_announced, pauses, last = True, _pauses(), stamp or last
                    self._print(line)
            except RequestError as error:
                if error.code == NOT_STARTED and not is_announced:
                    return False
                if not error.is_temporary and error.code not in (NOT_STARTED, NOT_FOUND):
                    raise
                is_broken = True
            if self._is_over(pod, uid, is_broken=is_broken):
                return True
            time.sleep(next(pauses))

    def _is_over(self, pod: PodView, uid: str, *, is_broken: bool) -> bool:
        """Whether the log of a pod has ended. After a stream that broke, it is read again; that of
        a dead node cannot be, and is over when its attempt is."""
        now = _patiently(self.its.server.find, pod.path, PodView)
        if now is None or now.metadata.uid != pod.metadata.uid:
            return True
        if now.is_ended and not is_broken:
            return True
        job = self._job(uid)
        is_over = job is None or job.is_finished or job.status.ended_attempt >= pod.attempt
        if is_over and is_broken:
            message = f"the rest of the log of {pod.metadata.name} cannot be read"
            typer.echo(f"railwright: {message}", err=True)
        return is_over and is_broken

    def _job(self, uid: str) -> JobView | None:
        """The job as it is now; None if it was deleted, also if there is another of its name."""
        found = _patiently(self.its.server.find, self.its.path, JobView)
        return found if found is not None and found.metadata.uid == uid else None

    def _end(self, job: JobView) -> int:
        if job.status.phase == "Succeeded":
            return 0
        typer.echo(f"railwright: the job failed: {job.status.message}", err=True)
        return 1

    def _next_pod(self, job: JobView, done: int) -> PodView | None:
        """The pod of the first attempt after ``done`` that has one."""
        attempts = sorted({pod.attempt for pod in pods_of(self.its, job) if pod.attempt > done})
        return next(filter(None, (self._pod(job, attempt) for attempt in attempts)), None)

    def _pod(self, job: JobView, attempt: int) -> PodView | None:
        """The pod of an attempt that runs the rank. A pre-run may not have that rank."""
        try:
            role, index = place_of_rank(
                roles_of_attempt(self.its, job, attempt), self.role, self.rank
            )
        except UsageError:
            return None
        name = names.pod_name(job.metadata.name, role.name, index, attempt)
        found = self.its.server.find(f"{pods_path(self.its.namespace)}/{name}", PodView)
        is_its = (
            found is not None and found.metadata.labels.get(names.LABEL_JOB_UID) == job.metadata.uid
        )
        return found if is_its else None

    def _stamped(
        self, pod: PodView, after: bytes, *, is_followed: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        """The lines after that time, each with its own. A line of the kubelet itself has none."""
        query = {"container": pod.spec.containers[0].name, "timestamps": "true"}
        if is_followed:
            query["follow"] = "true"
        if after:
            query["sinceTime"] = after.decode()
        for each in self.its.server.lines(f"{pod.path}/log", query, silence_s=SILENCE_S):
            stamp, _, line = each.partition(b" ")
            if not TIMESTAMP.fullmatch(stamp):
                yield b"", each
            elif not after or stamp > after:
                yield stamp, line

    def _print(self, line: bytes) -> None:
        found = OF_A_RANK.match(line)
        if self.rank is None or found is None or int(found[1]) == self.rank:
            typer.echo(line)

    def _announce(self, pod: PodView) -> None:
        message = f"attempt {pod.attempt}, pod {pod.metadata.name}, node {pod.spec.node_name}"
        typer.echo(f"railwright: {message}", err=True)


def _patiently(read: Callable[Given, Read], *given: Given.args, **more: Given.kwargs) -> Read:
    """What is read, as soon as the API server answers."""
    pauses = _pauses()
    while True:
        try:
            return read(*given, **more)
        except RequestError as error:
            if not error.is_temporary:
                raise
            typer.echo(f"railwright: trying again: {error}", err=True)
        time.sleep(next(pauses))


def _pauses() -> Iterator[float]:
    pause_s = PAUSE_S_FIRST
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, PAUSE_S_LONGEST)


def _print_termination(job: JobView, attempt: int) -> None:
    """Print how an attempt ended, in place of the log of a pod that is gone."""
    ended = job.status.last_termination
    if ended is None or ended.attempt != attempt:
        reason = f"attempt {attempt} has no pod" if attempt > 0 else "there is no attempt yet"
        typer.echo(f"railwright: {reason}: the job is {job.status.phase}", err=True)
        return
    typer.echo(f"railwright: attempt {attempt} ended: {ended.cause}: {ended.message}", err=True)
    if ended.last_lines:
        rank = "the rank" if ended.rank is None else f"rank {ended.rank}"
        typer.echo(f"railwright: the last lines of {rank} that failed first:", err=True)
        typer.echo(ended.last_lines.rstrip("\n"))
