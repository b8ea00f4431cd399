"""``railwright logs``: what a rank printed, across the attempts of its job."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, ParamSpec, TypeVar

import typer

from railwright_api import names
from railwright_cli.api_objects import JobView, PodView
from railwright_cli.arguments import seconds
from railwright_cli.errors import EXIT_NEGATIVE, EXIT_NOT_DONE, RequestError, UsageError
from railwright_cli.jobs import Context, JobName, JobReference, Namespace, reference
from railwright_cli.pod_log import WHOLE, PodLog, Window
from railwright_cli.pods import place_of_rank, pod_path, pods_of, pods_path, roles_of_attempt
from railwright_cli.tables import printable

Given = ParamSpec("Given")
Read = TypeVar("Read")

PAUSE_S_FIRST, PAUSE_S_LONGEST = 0.5, 5.0
LINES_MAX = 2**31 - 1
NOT_STARTED = 400
"""The response to a request for the log of a container that has not started."""

Tail = Annotated[
    int | None,
    typer.Option(
        min=0, max=LINES_MAX, help="the last lines, of all ranks of the pod; default: all lines"
    ),
]
Since = Annotated[
    int | None,
    typer.Option(
        parser=seconds, metavar="DURATION", help="lines not older than this, such as 90s or 1h"
    ),
]


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
    tail: Tail = None,
    since: Since = None,
    namespace: Namespace = "",
    context: Context = "",
) -> None:
    """Print the log of a rank, or of a pod.

    Roles of one group count their ranks together. With --follow the exit code is that of the job:
    0 if it succeeded, 1 if it failed.

    When an attempt ends early, its pods that have ended stay with their logs until the job is
    deleted. Those that still run are deleted with their logs, often also that of the rank that
    failed, whose launcher reports it before the pod ends. In place of a deleted pod the last lines
    of the first rank that failed are printed, of the last attempt that did not succeed: the status
    has them. Of attempts before that one nothing else remains.
    """
    if previous and (follow or all_attempts):
        raise UsageError("--previous is of one attempt: use it without --follow, --all-attempts")
    its = reference(name, namespace, context)
    job = its.read()
    newest = job.status.attempt
    if previous and newest < 2:
        raise UsageError(f"there is no attempt before attempt {newest}")
    source = _Source(its, role, rank, newest, Window(tail, since))
    source.check_rank(job)
    if follow:
        raise typer.Exit(source.follow(job, done=0 if all_attempts else max(0, newest - 1)))
    if all_attempts:
        ended = job.status.last_termination
        shown = {newest, ended.attempt if ended else newest}
        attempts = sorted({pod.attempt for pod in pods_of(its, job)} | shown)
    else:
        attempts = [newest - 1 if previous else newest]
    if not source.print_until_now(job, attempts):
        raise typer.Exit(EXIT_NOT_DONE)


@dataclass(slots=True)
class _Source:
    """The pod of each attempt that runs a rank, or the first pod of a role if that is None. Logs
    of attempts up to ``windowed`` are printed from the window on, those of later ones whole."""

    its: JobReference
    role: str
    rank: int | None
    windowed: int
    window: Window

    def check_rank(self, job: JobView) -> None:
        """Raise UsageError if neither the job nor its newest attempt has the rank."""
        try:
            place_of_rank(job.spec.roles, self.role, self.rank)
        except UsageError:
            roles = roles_of_attempt(self.its, job, job.status.attempt)
            place_of_rank(roles, self.role, self.rank)

    def print_until_now(self, job: JobView, attempts: list[int]) -> bool:
        """Print what there is of these attempts. Returns whether all of it could be read."""
        is_read = True
        for attempt in attempts:
            if (log := self._log(job, attempt)) is None:
                _print_termination(job, attempt)
                continue
            try:
                log.print_further(is_followed=False)
            except RequestError as error:
                # The log of a dead node cannot be read: those of others can.
                typer.echo(f"railwright: {log.pod.metadata.name}: {error}", err=True)
                ended = job.status.last_termination
                if ended is not None and ended.attempt == attempt:
                    _print_termination(job, attempt)
                is_read = False
        return is_read

    def follow(self, job: JobView, *, done: int) -> int:
        """Print the log of each attempt after ``done`` until the job ends. Returns the exit code.

        How an attempt ended is printed if its log was not read to its end.
        """
        uid, pauses, whole, shown = job.metadata.uid, _pauses(), done, ""
        while True:
            log = _patiently(self._next_log, job, done)
            ended = job.status.last_termination
            # As long as there is a pod of that attempt, its log is read first.
            is_past = ended is not None and (log is None or log.pod.attempt > ended.attempt)
            if ended is not None and is_past and whole < ended.attempt:
                _print_termination(job, ended.attempt)
                whole = done = max(done, ended.attempt)
            if log is not None and (is_whole := self._follow_pod(log, uid)) is not None:
                done, pauses = log.pod.attempt, _pauses()
                whole = done if is_whole else whole
            elif job.is_finished:
                if whole < job.status.attempt:
                    attempt = job.status.attempt
                    typer.echo(f"railwright: attempt {attempt} has no log any more", err=True)
                return self._end(job)
            else:
                # A container that starts from now on has no line from before the command.
                self.windowed = done
                parts = dict.fromkeys((job.status.phase, job.status.reason))
                state = ", ".join(filter(None, parts))
                if state != shown:
                    typer.echo(f"railwright: waiting: the job is {state}", err=True)
                    shown = state
                time.sleep(next(pauses))
            found = self._job(uid)
            if found is None:
                typer.echo("railwright: the job was deleted", err=True)
                return EXIT_NEGATIVE
            job = found

    def _follow_pod(self, log: PodLog, uid: str) -> bool | None:
        """Print the log of a pod. Returns whether it was read to its end; None if the container
        has not started but still can."""
        was_over, pauses = False, _pauses()
        while True:
            count, is_broken = log.count, _breaks(log)
            now = _patiently(self.its.server.find, pod_path(log.pod), PodView)
            if now is None or now.metadata.uid != log.pod.metadata.uid:
                return is_broken is False
            if now.is_ended and is_broken is False:
                return True
            # A log that broke off is opened once more after its attempt is over, and one that has
            # not begun after its pod ended. That of a dead node can never be read to its end.
            if is_broken is not False and was_over and log.count == count:
                return False
            was_over = self._is_over(log.pod, uid) or (is_broken is None and now.is_ended)
            if is_broken is None and not was_over:
                return None
            pauses = pauses if log.count == count else _pauses()
            time.sleep(next(pauses))

    def _is_over(self, pod: PodView, uid: str) -> bool:
        job = self._job(uid)
        return job is None or job.is_finished or job.status.ended_attempt >= pod.attempt

    def _job(self, uid: str) -> JobView | None:
        """The job as it is now; None if it was deleted, also if there is another of its name."""
        found = _patiently(self.its.server.find, self.its.path, JobView)
        return found if found is not None and found.metadata.uid == uid else None

    def _end(self, job: JobView) -> int:
        if job.status.phase == "Succeeded":
            return 0
        why = f": {printable(job.status.message)}" if job.status.message else ""
        typer.echo(f"railwright: the job failed{why}", err=True)
        return EXIT_NEGATIVE

    def _next_log(self, job: JobView, done: int) -> PodLog | None:
        """The log of the first attempt after ``done`` that has one."""
        attempts = sorted({pod.attempt for pod in pods_of(self.its, job) if pod.attempt > done})
        return next(filter(None, (self._log(job, attempt) for attempt in attempts)), None)

    def _log(self, job: JobView, attempt: int) -> PodLog | None:
        """The log of the pod that runs the rank in an attempt. A pre-run may not have the rank."""
        roles = roles_of_attempt(self.its, job, attempt)
        try:
            role, index = place_of_rank(roles, self.role, self.rank)
        except UsageError:
            return None
        name = names.pod_name(job.metadata.name, role.name, index, attempt)
        found = self.its.server.find(f"{pods_path(self.its.namespace)}/{name}", PodView)
        if found is None or found.metadata.labels.get(names.LABEL_JOB_UID) != job.metadata.uid:
            return None
        rank = self.rank if role.processes_per_replica > 1 else None
        window = self.window if attempt <= self.windowed else WHOLE
        return PodLog(self.its.server, found, rank, window)


def _breaks(log: PodLog) -> bool | None:
    """Print what follows in a log, until it ends or breaks off. Returns whether it broke off; None
    if the container has not started."""
    try:
        log.print_further(is_followed=True)
    except RequestError as error:
        if error.code == NOT_STARTED and not log.count:
            return None
        if not error.is_temporary and error.code != NOT_STARTED:
            raise
        return True
    return False


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
        reason = "there is no attempt yet"
        if attempt:
            reason = f"attempt {attempt} has no pod of that rank, or not any more"
        typer.echo(f"railwright: {reason}: the job is {job.status.phase}", err=True)
        return
    typer.echo(f"railwright: attempt {attempt} ended: {ended.cause}: {ended.message}", err=True)
    if ended.last_lines:
        rank = "the rank" if ended.rank is None else f"rank {ended.rank}"
        typer.echo(f"railwright: the last lines of {rank} that failed first:", err=True)
        typer.echo(ended.last_lines.rstrip("\n"))
