"""The progress of what takes longer than two seconds, on stderr, with the time that remains where
there is a number to estimate it from.

Nothing is printed if stderr is no terminal. Results are printed after it, not within.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from railwright_cli.tables import duration

Counted = TypeVar("Counted")

QUIET_S = 2.0
UPDATED_EVERY = 100
"""Objects of which the count is not shown. An update takes as long as the work on some of them."""


class Show(Protocol):
    """Show how much is done, and of how much, at most, if that is known. Returns whether the
    progress is on the screen."""

    def __call__(self, done: int, total: int | None, *, at_most: bool = False) -> bool: ...


class _Display:
    """The screen that all threads show their progress on, while any has some."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown: set[TaskID] = set()
        self._progress: Progress
        self._timer: threading.Timer

    def add(self, what: str) -> tuple[Progress, TaskID]:
        """Show one more, from ``QUIET_S`` after the first one on."""
        with self._lock:
            if not self._shown:
                self._progress = Progress(*_columns(), console=Console(stderr=True), transient=True)
                self._timer = threading.Timer(QUIET_S, self._progress.start)
                self._timer.start()
            task = self._progress.add_task(what, total=None, bound="")
            self._shown.add(task)
            return self._progress, task

    def remove(self, task: TaskID) -> None:
        """Show it no more."""
        with self._lock:
            self._shown.remove(task)
            if self._shown:
                self._progress.remove_task(task)
                return
            self._timer.cancel()
            self._timer.join()
            self._progress.stop()


_display = _Display()


@contextmanager
def shown_progress(what: str) -> Iterator[Show]:
    """Show what is done in the block; also how much of it, once that is called."""
    if not sys.stderr.isatty():
        yield lambda done, total, at_most=False: False
        return
    progress, task = _display.add(what)

    def show(done: int, total: int | None, *, at_most: bool = False) -> bool:
        bound = "at most " if at_most else ""
        counted = f"{what}: {done}"
        progress.update(task, description=counted, completed=done, total=total, bound=bound)
        return progress.live.is_started

    try:
        yield show
    finally:
        _display.remove(task)


@contextmanager
def counted_progress(what: str, items: Collection[Counted]) -> Iterator[Iterator[Counted]]:
    """Show in the block how many of these were taken of what it gets."""
    with shown_progress(what) as show:
        yield _counted(show, items)


def _counted(show: Show, items: Collection[Counted]) -> Iterator[Counted]:
    for done, each in enumerate(items):
        if done % UPDATED_EVERY == 0:
            show(done, len(items))
        yield each


def _columns() -> tuple[ProgressColumn, ...]:
    return (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("elapsed"),
        _RemainingColumn(),
    )


class _RemainingColumn(ProgressColumn):
    """The time that remains at the mean speed until now; nothing if that is unknown."""

    def render(self, task: Task) -> Text:
        if not task.completed or not task.remaining or task.remaining < 0:
            return Text("")
        left_s = (task.elapsed or 0.0) * task.remaining / task.completed
        return Text(f"{task.fields['bound']}{duration(left_s)} remain")
