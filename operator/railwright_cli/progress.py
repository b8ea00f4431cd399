"""The progress of what takes longer than two seconds, with the time that remains, on stderr.

Nothing is printed if stderr is no terminal. Of lists with a selector the API server does not say
how much remains.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

QUIET_S = 2.0

Show = Callable[[int, int | None], None]


@contextmanager
def shown_progress(what: str) -> Iterator[Show]:
    """Show how much is done, and of how much if that is known, when called with both."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    columns = (
        TextColumn("reading {task.description}: {task.completed}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("remain"),
    )
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(what, total=None)
    timer = threading.Timer(QUIET_S, progress.start)
    timer.start()

    def show(done: int, total: int | None) -> None:
        progress.update(task, completed=done, total=total)

    try:
        yield show
    finally:
        timer.cancel()
        timer.join()
        progress.stop()
