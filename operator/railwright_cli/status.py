"""``railwright status``: how far a job is, where it runs, and what is wrong with it."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from railwright_api import names, routes
from railwright_cli.amounts import count
from railwright_cli.api_objects import JobProgress, JobView
from railwright_cli.errors import EXIT_NEGATIVE, AccessDeniedError, RequestError, UsageError
from railwright_cli.jobs import Context, JobName, JobReference, Namespace, reference
from railwright_cli.screens import suspendable
from railwright_cli.tables import OutputOption, age, duration, lines, printable, show_document

BAR_CELLS = 24
NODES_SHOWN = 8
REDRAWS_PER_S = 2
WATCH_S = 60
PAUSE_S = 2.0

SIZE = ("COLUMNS", "LINES")

CONDITIONS = ("type", "status", "reason", "since", "message")


def status(
    name: JobName,
    is_watched: Annotated[
        bool, typer.Option("-w", "--watch", help="go on until the job ends")
    ] = False,
    namespace: Namespace = "",
    context: Context = "",
    output: OutputOption = "table",
) -> None:
    """Show the progress of a job, its nodes and its conditions.

    The time that remains is shown of a job whose workload has a globalBatch and
    whose script reports samples per second, and with --watch of each that reports its steps.

    With --watch the view is drawn again when something changes; without a terminal, each change is
    a line. The exit code is then that of the job: 0 if it succeeded, 1 if it failed.
    """
    its = reference(name, namespace, context)
    view = StatusView(its.read())
    if is_watched and output in ("json", "yaml"):
        raise UsageError("--watch prints for people: use it without --output")
    if is_watched:
        raise typer.Exit(_watch(its, view))
    view.nodes, view.nodes_problem = _nodes(its, view.job)
    if output in ("json", "yaml"):
        if view.nodes_problem:
            typer.echo(f"railwright: nodes are unknown: {view.nodes_problem}", err=True)
        show_document(view.document(), output)
        return
    for line in view.lines():
        typer.echo(line)


@dataclass(slots=True)
class StatusView:
    """A job as it is shown. ``nodes`` are those of its live attempt; ``nodes_problem`` is why they
    are unknown. ``reported`` are the attempt and step that were seen last; ``origin`` is the first
    step of that attempt that was seen to begin, and when: the remaining time follows from it, and
    before that from the reported samples per second."""

    job: JobView
    nodes: tuple[str, ...] = ()
    nodes_problem: str = ""
    reported: tuple[int, int] | None = None
    origin: tuple[int, float] | None = None
    seconds_a_step: float | None = None

    def update(self, job: JobView, now_s: float) -> None:
        """Show the job as it is now. ``now_s`` is monotonic. The progress of the last attempt stays
        in the status while the next one starts, so only that of a job that runs counts. The first
        step that is seen may have begun long before."""
        progress, attempt = job.status.progress, job.status.attempt
        if progress is None or not job.status.phase == job.status.reason == "Running":
            self.reported = self.origin = self.seconds_a_step = None
        elif (
            self.reported is None or attempt != self.reported[0] or progress.step < self.reported[1]
        ):
            self.reported, self.origin, self.seconds_a_step = (attempt, progress.step), None, None
        elif progress.step > self.reported[1]:
            self.reported = attempt, progress.step
            step, since_s = self.origin = self.origin or (progress.step, now_s)
            if progress.step > step:
                self.seconds_a_step = (now_s - since_s) / (progress.step - step)
        self.job = job

    def line(self) -> str:
        """The state of the job on one line."""
        status = self.job.status
        parts = [status.phase]
        if status.reason not in (None, status.phase):
            parts.append(f"{status.reason}: {printable(status.message or '')}")
        if status.progress is not None and not self.job.is_finished:
            parts.append(self._progress(status.progress))
        return ", ".join(parts)

    def lines(self) -> Iterator[str]:
        """The whole view."""
        job, status, now = self.job, self.job.status, datetime.now(UTC)
        made = job.metadata.creation_timestamp
        head = [f"{job.metadata.namespace}/{job.metadata.name}: {status.phase}"]
        head += [f"attempt {status.attempt}"] if status.attempt else []
        head += [count(status.restarts, "restart")] if status.restarts else []
        head += [f"{age(made, now)} old"] if made else []
        head += ["being deleted"] if job.is_being_deleted else []
        yield ", ".join(head)
        if status.message:
            yield f"  {printable(status.message)}"
        if status.progress is not None:
            yield f"  {self._bar(status.progress)}{self._progress(status.progress)}"
        if (newest := job.newest_checkpoint) is not None:
            yield f"  checkpoint: step {newest.step} of attempt {newest.attempt}"
        if self.nodes:
            shown = " ".join(self.nodes[:NODES_SHOWN])
            more = f" and {len(self.nodes) - NODES_SHOWN} more" * (len(self.nodes) > NODES_SHOWN)
            racks = f" in {count(status.racks, 'rack')}" if status.racks else ""
            yield f"  {count(len(self.nodes), 'node')}{racks}: {shown}{more}"
        if self.nodes_problem:
            yield f"  nodes are unknown: {printable(self.nodes_problem)}"
        yield ""
        yield from lines(CONDITIONS, self._conditions())

    def document(self) -> dict[str, Any]:
        """The same for programs."""
        job, status = self.job, self.job.status
        progress, newest = status.progress, job.newest_checkpoint
        return {
            "namespace": job.metadata.namespace,
            "name": job.metadata.name,
            "queue": job.spec.queue,
            "phase": status.phase,
            "reason": status.reason,
            "message": status.message,
            "attempt": status.attempt,
            "restarts": status.restarts,
            "nodes": list(self.nodes),
            "racks": status.racks,
            "step": progress and progress.step,
            "totalSteps": progress and progress.total_steps,
            "percent": progress and progress.percent,
            "loss": progress and progress.loss,
            "samplesPerSecond": progress and progress.samples_per_second,
            "remainingSeconds": progress and self._remaining_s(progress),
            "checkpointAttempt": newest and newest.attempt,
            "checkpointStep": newest and newest.step,
            "conditions": self._conditions(),
            "created": job.metadata.creation_timestamp,
            "started": status.started_at,
            "finished": status.finished_at,
        }

    def _conditions(self) -> list[dict[str, Any]]:
        return [
            {
                "type": each.type,
                "status": each.status,
                "reason": each.reason,
                "since": each.last_transition_time,
                "message": each.message,
            }
            for each in self.job.status.conditions
        ]

    def _bar(self, progress: JobProgress) -> str:
        if not progress.total_steps:
            return ""
        filled = min(BAR_CELLS, BAR_CELLS * progress.step // progress.total_steps)
        return f"{'█' * filled}{'░' * (BAR_CELLS - filled)}  "

    def _progress(self, progress: JobProgress) -> str:
        total = progress.total_steps
        parts = [f"step {progress.step}" + (f" of {total}" if total else "")]
        parts += [progress.percent] if progress.percent else []
        for name, amount in (("loss", progress.loss), ("samples/s", progress.samples_per_second)):
            parts += [f"{name} {float(amount):.5g}"] if amount else []
        if (left_s := self._remaining_s(progress)) is not None:
            parts.append(f"about {duration(left_s)} remain")
        return ", ".join(parts)

    def _remaining_s(self, progress: JobProgress) -> float | None:
        """The time that remains of a job that runs; None if it is unknown."""
        step_s = self.seconds_a_step or self.job.seconds_a_step
        if not progress.total_steps or step_s is None or self.job.status.phase != "Running":
            return None
        left_s = max(0, progress.total_steps - progress.step) * step_s
        return left_s if math.isfinite(left_s) else None


def _watch(its: JobReference, view: StatusView) -> int:
    """Show the job until it ends. Returns the exit code."""
    # Of the size that exported variables claim, a terminal may have less.
    environment = {name: text for name, text in os.environ.items() if name not in SIZE}
    console = Console(highlight=False, markup=False, emoji=False, _environ=environment)
    is_drawn = console.is_terminal and not console.is_dumb_terminal
    is_there = _draw(its, view, console) if is_drawn else _print(its, view)
    if not is_there:
        typer.echo("railwright: the job was deleted", err=True)
        return EXIT_NEGATIVE
    return 0 if view.job.status.phase == "Succeeded" else EXIT_NEGATIVE


def _draw(its: JobReference, view: StatusView, console: Console) -> bool:
    """Draw the job until it ends; returns whether it is still there. This is done on the terminal's
    second screen, which is drawn whole whatever its size has become. What is shown last stays on
    the first one."""
    with suspendable(Live(console=console, screen=True, refresh_per_second=REDRAWS_PER_S)) as live:

        def draw(problem: str = "") -> None:
            # First, where also a small terminal shows it.
            noted = [f"{datetime.now(UTC):%H:%M:%S} {problem}"] if problem else []
            live.update(Text("\n".join([*noted, *view.lines()])))

        is_there = _follow(its, view, draw)
    if is_there:
        typer.echo("\n".join(view.lines()))
    return is_there


def _print(its: JobReference, view: StatusView) -> bool:
    """Print a line when the job has changed; returns whether it is still there."""
    shown = ""

    def show(problem: str = "") -> None:
        nonlocal shown
        if problem:
            typer.echo(f"railwright: {problem}", err=True)
        elif (line := view.line()) != shown:
            typer.echo(f"{datetime.now(UTC):%H:%M:%S} {line}")
            shown = line

    return _follow(its, view, show)


def _follow(its: JobReference, view: StatusView, show: Callable[[str], None]) -> bool:
    """Show each state of the job, or why none is known, until it is finished. Returns whether it is
    still there."""
    path = routes.kind(names.TRAINING_JOBS, its.namespace)
    while True:
        began_s = time.monotonic()
        try:
            # A watch of an object that is not there any more reports nothing.
            job = its.server.find(its.path, JobView)
            for each in _with_changes(job, its, path):
                if each is None or each.metadata.uid != view.job.metadata.uid:
                    return False
                view.update(each, time.monotonic())
                view.nodes, view.nodes_problem = _nodes(its, each)
                show("")
                if each.is_finished:
                    return True
        except RequestError as error:
            if not error.is_temporary:
                raise
            show(f"trying again: {error}")
        time.sleep(max(0.0, PAUSE_S - (time.monotonic() - began_s)))


def _with_changes(job: JobView | None, its: JobReference, path: str) -> Iterator[JobView | None]:
    yield job
    yield from its.server.changes(path, its.name, JobView, silence_s=WATCH_S)


def _nodes(its: JobReference, job: JobView) -> tuple[tuple[str, ...], str]:
    """The nodes of the live attempt, and why they are unknown, if they are."""
    if job.status.nodes is None:
        return (), ""
    try:
        found = its.find_placement(job.status.attempt)
    except AccessDeniedError as error:
        return (), str(error)
    # Pods of several roles may share a node.
    return (tuple(dict.fromkeys(found.spec.nodes)) if found is not None else ()), ""
