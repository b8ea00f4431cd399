"""Long work in slices: whoever else waits for the event loop gets it in between.

A heartbeat and the renewal of what we hold wait as long as the longest slice of each who is at
work, times what other processes leave of a core; so a slice is short, and measured in time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

SLICE_S = 0.005


class TimeSlice:
    """What one piece of work has had of the event loop since others last could go on."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock`` is monotonic, in seconds; the first slice begins now."""
        self._clock = clock
        self._end_s = clock() + SLICE_S

    def __repr__(self) -> str:
        return f"<TimeSlice {self._end_s - self._clock():.3f} s left>"

    @property
    def over(self) -> bool:
        """Whether it is time for ``others``."""
        return self._clock() >= self._end_s

    async def others(self) -> None:
        """Let everybody else go on, and begin a new slice."""
        await asyncio.sleep(0)
        self._end_s = self._clock() + SLICE_S
