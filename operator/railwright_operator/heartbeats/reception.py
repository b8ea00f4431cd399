"""A clock that stands still while the operator cannot receive messages.

Silence of a launcher counts on this clock, and so does the time that a gang may take to its start
barrier. So nothing that the operator missed by its own fault (a blocked event loop, a full accept
queue, a message that it refused for load, keys that it has not read) ends an attempt.
"""

from __future__ import annotations

import math
from collections.abc import Callable

TICK_S = 0.25
"""How often the server reports that it listens. A longer gap counts as ``GAP_S``."""

GAP_S = 4 * TICK_S
MISSED_S = 6.0
"""After a message was missed its sender tries again within this time: a timeout of 3 s, an
interval of 2 s, and the time on the way."""

MISSES_S = 30.0
"""Between two misses that stop the clock. Strangers can fill the accept queue, and a clock that
stands still for good finds no dead node: they delay that by a fifth of the time at most."""


class ReceptionClock:
    """Seconds in which launchers could have been heard. ``clock`` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at_s = 0.0
        self._ticked_s = clock()
        self._missed_s = -math.inf
        self._deaf_until_s = 0.0

    def __call__(self) -> float:
        """Now, on this clock."""
        now_s = self._clock()
        if now_s < self._deaf_until_s:
            return self._at_s
        return self._at_s + min(now_s - self._ticked_s, GAP_S)

    def tick(self) -> None:
        """The server listens, and has come round to what arrived."""
        self._at_s = self()
        self._ticked_s = self._clock()

    def miss(self) -> None:
        """A message was missed, or may have been: stop the clock once in ``MISSES_S``."""
        if self._clock() < self._missed_s + MISSES_S:
            return
        self._at_s = self()
        self._ticked_s = self._missed_s = self._clock()
        self._deaf_until_s = self._ticked_s + MISSED_S
