"""The lag of the event loop, and a clock that stops while the loop is blocked.

Messages that arrive while the loop is blocked or the process is paused wait in a socket. This time
must not count as silence of their launchers, so silence is measured on ``ListeningClock``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from prometheus_client import Histogram

INTERVAL_S = 0.1

ADVANCE_S_MAX = 0.5
"""The largest step of the clock between two ticks of the loop."""


class ListeningClock:
    """Seconds in which the event loop could receive messages."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ticked_s = clock()
        self._listened_s = 0.0

    def __repr__(self) -> str:
        return f"<ListeningClock {self():.1f} s>"

    def __call__(self) -> float:
        """The time on this clock; it never goes back."""
        return self._listened_s + min(self._clock() - self._ticked_s, ADVANCE_S_MAX)

    def tick(self) -> None:
        """Advance the clock: the loop runs."""
        self._listened_s, self._ticked_s = self(), self._clock()


async def measure(lag_s: Histogram, clock: Callable[[], float], listening: ListeningClock) -> None:
    """Measure until cancelled, and advance the listening clock. ``clock`` is monotonic."""
    while True:
        due_s = clock() + INTERVAL_S
        await asyncio.sleep(INTERVAL_S)
        listening.tick()
        lag_s.observe(max(0.0, clock() - due_s))
