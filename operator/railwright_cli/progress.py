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


@contextmanager
def shown_progress(what: str) -> Iterator[Show]:
    """Show what is done in the block; also how much of it, once that is called."""
    if not sys.stderr.isatty():
        yield lambda done, total, at_most=False: False
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("elapsed"),
        _RemainingColumn(),
    )
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(what, total=None, bound="")
    timer = threading.Timer(QUIET_S, progress.start)
    timer.start()

    def show(done: int, total: int | None, *, at_most: bool = False) -> bool:
        bound = "at most " if at_most else ""
        counted = f"{what}: {done}"
        progress.update(task, description=counted, completed=done, total=total, bound=bound)
        return progress.live.is_started

    try:
        yield show
    finally:
        timer.cancel()
        timer.join()
        progress.stop()


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


class _RemainingColumn(ProgressColumn):
    """The time that remains at the mean speed until now; nothing if that is unknown."""

    def render(self, task: Task) -> Text:
        if not task.completed or not task.remaining or task.remaining < 0:
            return Text("")
        left_s = (task.elapsed or 0.0) * task.remaining / task.completed
        return Text(f"{task.fields['bound']}{duration(left_s)} remain")
