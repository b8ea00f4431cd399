"""Wait for another thread so that Ctrl-C ends the wait."""

from __future__ import annotations

from multiprocessing.pool import AsyncResult
from typing import TypeVar

Result = TypeVar("Result")

ONE_WAIT_S = 0.2


def wait(other: AsyncResult[Result]) -> Result:
    """The result of a ThreadPool. A signal just before a wait does not end it, and Python raises
    KeyboardInterrupt only after it: so each is short."""
    while not other.ready():
        other.wait(ONE_WAIT_S)
    return other.get()
