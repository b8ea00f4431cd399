"""``railwright logs``: what a rank printed, across the attempts of its job."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from railwright_api import names
from railwright_cli.api_objects import Job, Role
from railwright_cli.api_server import NOT_FOUND
from railwright_cli.errors import ApiError, UsageError
from railwright_cli.jobs import Context, JobName, JobReference, Namespace, reference
from railwright_cli.pods import Pod, first_rank, place_of_rank, pods_of

SILENCE_S = 15
"""A log that is silent for so long is opened again: its node may be dead."""

PAUSE_S_FIRST, PAUSE_S_LONGEST = 0.5, 5.0
NOT_STARTED = 400
"""The response to a request for the log of a container that has not started."""

OF_A_RANK = re.compile(rb"\[rank (\d+)\] ")


def logs(
    name: JobName,
    follow: Annotated[
        bool,
        typer.Option("-f", "--follow", help="go on until the job ends, across its attempts"),
    ] = False,
    role: Annotated[str, typer.Option(help="a role; default: the first one")] = "",
    rank: Annotated[
        int | None, typer.Option(min=0, help="RANK in the group of the role; default: the lowest")
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
    """Print the log of a rank.

    With --follow the exit code is that of the job: 0 if it succeeded, 1 if it failed. Pods of
    attempts that ended early are deleted: of those, the last lines of the first rank that failed
    are printed instead.
    """
    if previous and (follow or all_attempts):
        raise UsageError("--previous is of one attempt: use it without --follow, --all-attempts")
    its = reference(name, namespace, context)
    job = its.read()
    number = first_rank(job, role) if rank is None else rank
    source = _Source(its, *place_of_rank(job, role, number), number if rank is not None else None)
    if follow:
        raise typer.Exit(source.follow(job, from_start=all_attempts))
    if not source.print_ended(job, previous=previous, all_attempts=all_attempts):
        _print_termination(job)


@dataclass(frozen=True, slots=True)
class _Source:
    """The pods of one index of a role. ``rank`` is set if only the lines of one rank are shown."""

    its: JobReference
    role: Role
    index: int
    rank: int | None

    def print_ended(self, job: Job, *, previous: bool, all_attempts: bool) -> bool:
        """Print what there is now of one attempt, or of all. Returns whether it
        printed a line."""
        pods = self._pods(job)
        if previous:
            pods = [each for each in pods if each.attempt < job.status.attempt]
        is_read = False
        for pod in pods if all_attempts else pods[-1:]:
            self._announce(pod)
            for line in self._lines(pod):
                self._print(line)
                is_read = True
        return is_read

    def follow(self, job: Job, *, from_start: bool) -> int:
        """Print the log of each attempt until the job ends. Returns the exit code."""
        done = 0 if from_start else max(0, job.status.attempt - 1)
        pauses = _pauses()
        while True:
            pod = next((each for each in self._pods(job) if each.attempt > done), None)
            if pod is not None and self._follow_pod(pod):
                done, pauses = pod.attempt, _pauses()
            elif job.is_finished:
                return self._end(job)
            else:
                time.sleep(next(pauses))
            found = self.its.server.find(self.its.path, Job)
            if found is None or found.metadata.uid != job.metadata.uid:
                typer.echo("railwright: the job was deleted", err=True)
                return 1
            job = found

    def _follow_pod(self, pod: Pod) -> bool:
        """Print the log of a pod up to its end, or the end of the pod. Returns False if the
        container has not started."""
        last, is_announced, pauses = "", False, _pauses()
        while True:
            try:
                for stamp, line in self._stamped(pod, last, is_followed=True):
                    if not is_announced:
                        self._announce(pod)
                        is_announced, pauses = True, _pauses()
                    last = stamp
                    self._print(line)
            except ApiError as error:
                if error.code == NOT_STARTED and not is_announced:
                    return False
                if not error.is_temporary and error.code not in (NOT_STARTED, NOT_FOUND):
                    raise
            if self._is_over(pod):
                return True
            time.sleep(next(pauses))

    def _is_over(self, pod: Pod) -> bool:
        """Whether its log ended. That of a dead node never does: the next attempt counts then."""
        now = self.its.server.find(pod.path, Pod)
        if now is None or now.metadata.uid != pod.metadata.uid or now.is_ended:
            return True
        job = self.its.server.find(self.its.path, Job)
        return job is None or job.status.attempt > pod.attempt

    def _end(self, job: Job) -> int:
        if job.status.phase == "Succeeded":
            return 0
        typer.echo(f"railwright: the job failed: {job.status.message}", err=True)
        return 1

    def _pods(self, job: Job) -> list[Pod]:
        prefix = f"{job.metadata.name}-{self.role.name}-{self.index}-"
        return [
            pod
            for pod in pods_of(self.its, job)
            if pod.metadata.name == f"{prefix}{pod.attempt}"
            and pod.metadata.labels.get(names.LABEL_ROLE) == self.role.name
        ]

    def _lines(self, pod: Pod) -> Iterator[bytes]:
        """The lines until now. The log of a dead node cannot be read: those of others can."""
        try:
            for _, line in self._stamped(pod, "", is_followed=False):
                yield line
        except ApiError as error:
            typer.echo(f"railwright: {error}", err=True)

    def _stamped(self, pod: Pod, after: str, *, is_followed: bool) -> Iterator[tuple[str, bytes]]:
        """The lines after that time, each with its own."""
        query = {"container": pod.spec.containers[0].name, "timestamps": "true"}
        if is_followed:
            query["follow"] = "true"
        if after:
            query["sinceTime"] = after
        for each in self.its.server.lines(f"{pod.path}/log", query, silence_s=SILENCE_S):
            stamp, _, line = each.partition(b" ")
            if not after or stamp.decode() > after:
                yield stamp.decode(), line

    def _print(self, line: bytes) -> None:
        found = OF_A_RANK.match(line)
        if self.rank is None or found is None or int(found[1]) == self.rank:
            typer.echo(line)

    def _announce(self, pod: Pod) -> None:
        message = f"attempt {pod.attempt}, pod {pod.metadata.name}, node {pod.spec.node_name}"
        typer.echo(f"railwright: {message}", err=True)


def _pauses() -> Iterator[float]:
    pause_s = PAUSE_S_FIRST
    while True:
        yield pause_s
        pause_s = min(2 * pause_s, PAUSE_S_LONGEST)


def _print_termination(job: Job) -> None:
    """Print how the last attempt ended, in place of the log of a pod that is gone."""
    ended = job.status.last_termination
    if ended is None:
        typer.echo(f"railwright: there is no pod yet: the job is {job.status.phase}", err=True)
        return
    typer.echo(f"railwright: attempt {ended.attempt} ended: {ended.cause}", err=True)
    if ended.last_lines:
        rank = "the rank" if ended.rank is None else f"rank {ended.rank}"
        typer.echo(f"railwright: the last lines of {rank} that failed first:", err=True)
        typer.echo(ended.last_lines.rstrip("\n"))
