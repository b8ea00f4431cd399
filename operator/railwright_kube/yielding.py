"""Cooperative yielding: long work lets other tasks of the event loop run in between.

A heartbeat waits as long as the longest slice of each running task, and longer on a busy core. So
a slice is short, and measured in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SLICE_S = 0.005


class TimeSlice:
    """The time that one task has run since it last let others run."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` is monotonic, in seconds; the first slice begins now."""
        self._clock = clock
        self._end_s = clock() + SLICE_S

    @property
    def is_over(self) -> bool:
        """Whether it is time to yield."""
        return self._clock() >= self._end_s

    async def yield_to_others(self) -> None:
        """Let other tasks run, and begin a new slice."""
        await asyncio.sleep(0)
        self._end_s = self._clock() + SLICE_S
