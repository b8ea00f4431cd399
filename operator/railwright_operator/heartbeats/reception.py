"""Two clocks: one stops while the event loop is blocked, one while messages cannot be received.

The silence of a launcher counts on the reception clock, and so does the time that a gang may take
to its start barrier. So no message that the operator lost by its own fault (a blocked event loop, a
full accept queue, a message refused for load, keys not read yet) ends an attempt.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from railwright_process.server import TICK_S

GAP_S = 4 * TICK_S
"""A longer gap between two ticks of the server counts as this."""

MISSED_S = 6.0
"""The sender of a lost message retries within this time: a timeout of 3 s, an interval of 2 s, and
the time on the way."""

MISSES_S = 30.0
"""Between two losses that stop the clock. Any pod can fill the accept queue, and a stopped clock
finds no dead node: this bounds the delay to a fifth of the time."""


ADVANCE_INTERVAL_S = 0.1

ADVANCE_S_MAX = 0.5
"""The largest step of the listening clock between two ticks of the loop."""


async def advance(listening: ReceptionClock) -> None:
    """Advance the listening clock until cancelled, unless the event loop is blocked."""
    while True:
        await asyncio.sleep(ADVANCE_INTERVAL_S)
        listening.tick()


class ReceptionClock:
    """Seconds in which messages could be received: those that arrive while the event loop is
    blocked or the process is paused wait in a socket. ``clock`` is monotonic seconds; a longer gap
    than ``gap_s`` between two ticks counts as that."""

    def __init__(self, clock: Callable[[], float], *, gap_s: float = GAP_S) -> None:
        self._clock = clock
        self._gap_s = gap_s
        self._at_s = 0.0
        self._ticked_s = clock()
        self._missed_s = -math.inf
        self._deaf_until_s = -math.inf

    def __call__(self) -> float:
        """The time on this clock; it never goes back."""
        now_s = self._clock()
        if now_s < self._deaf_until_s:
            return self._at_s
        return self._at_s + min(now_s - self._ticked_s, self._gap_s)

    def tick(self, is_queue_full: bool = False) -> None:
        """The server has accepted and read what arrived; of a full queue messages may be lost."""
        self._at_s = self()
        self._ticked_s = self._clock()
        if is_queue_full:
            self.miss()

    def miss(self) -> None:
        """Stop the clock for a message that may be lost, once in ``MISSES_S``."""
        if self._clock() < self._missed_s + MISSES_S:
            return
        self._at_s = self()
        self._ticked_s = self._missed_s = self._clock()
        self._deaf_until_s = self._ticked_s + MISSED_S
