"""The operator with faults planted by the names of jobs: ``python -m worlds.planted_operator``.

The decision about a job named ``raises…`` raises, that about one named ``hangs…`` never ends, and
the assessment of a running job named ``unassessed…`` raises.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from railwright_operator.__main__ import main
from railwright_scheduler import turn
from railwright_scheduler.line import Line


class PlantedError(Exception):
    """What planted faults raise."""


def _decides(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def evaluate(line: Line, job: Any, *arguments: Any) -> Any:
        if job.name.startswith("raises"):
            raise PlantedError(f"planted for {job.name}")
        while job.name.startswith("hangs"):
            pass
        return original(line, job, *arguments)

    return evaluate


def _assesses(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def assess(seen: Any, *arguments: Any, **named: Any) -> Any:
        if seen.record.live and seen.job.name.startswith("unassessed"):
            raise PlantedError(f"planted for {seen.job.name}")
        return original(seen, *arguments, **named)

    return assess


if __name__ == "__main__":
    Line.evaluate = _decides(Line.evaluate)  # type: ignore[method-assign]
    turn._judge = _assesses(turn._judge)
    sys.exit(main())
