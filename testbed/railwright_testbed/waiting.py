"""Wait for a condition until a deadline, with the last observed state in the error."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from railwright_testbed.errors import TestbedError

_PAUSE_S_FIRST = 0.02
_PAUSE_S_LONGEST = 0.25
_LOG_LINES_SHOWN = 15

Found = TypeVar("Found")


def until(
    condition: Callable[[], Found | None],
    what: str,
    *,
    deadline_s: float,
    evidence: Callable[[], str] = str,
    pause_s_longest: float = _PAUSE_S_LONGEST,
) -> Found:
    """Poll `condition` until it returns a true value, or the deadline passes."""
    end_s = time.monotonic() + deadline_s
    pause_s = _PAUSE_S_FIRST
    while True:
        answer = condition()
        if answer:
            return answer
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            message = f"waited {deadline_s:g} s for: {what}"
            raise TestbedError("\n".join(part for part in (message, evidence()) if part))
        time.sleep(min(pause_s, left_s))
        pause_s = min(pause_s * 1.5, pause_s_longest)


def last_lines(log: Path) -> str:
    """The end of a component's log, for an error message."""
    if not log.exists():
        return f"(no log at {log})"
    lines = log.read_text(errors="replace").splitlines()
    shown = [line[:400] for line in lines[-_LOG_LINES_SHOWN:]]
    return "\n".join([f"last lines of {log}:", *shown])
