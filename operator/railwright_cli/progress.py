"""The progress of what takes longer than two seconds, with the time that remains, on stderr.

Nothing is printed if stderr is no terminal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

QUIET_S = 2.0

Show = Callable[[int, int], None]


@contextmanager
def shown_progress(what: str) -> Iterator[Show]:
    """Show how much is done, and of how much, when called with both."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    columns = (
        TextColumn("reading {task.description}: {task.completed} of {task.total}"),
        BarColumn(),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(what, total=None)
    started_s = time.monotonic()

    def show(done: int, total: int) -> None:
        progress.update(task, completed=done, total=total)
        if time.monotonic() - started_s > QUIET_S:
            progress.start()

    try:
        yield show
    finally:
        progress.stop()
