"""How often launchers send heartbeats: less often in large clusters, so that their cost is bounded.

Sessions state the interval in each answer to a heartbeat. Launchers that read no interval keep
``wire.BEAT_INTERVAL_S``, and so do all of them up to ``BEATS_PER_S`` times as many launchers.
"""

from __future__ import annotations

import functools
import math

from railwright import wire

BEATS_PER_S = 400
"""At 213 µs a heartbeat these cost 8.5 % of a core."""

INTERVAL_S_MAX = 8
"""Above 2,800 launchers. A dead node is found so much later than in a small cluster, less 2 s."""


def beat_interval_s(launchers: int) -> int:
    """Whole seconds between two heartbeats of a launcher, when there are so many."""
    least = math.ceil(wire.BEAT_INTERVAL_S)
    return max(least, min(math.ceil(launchers / BEATS_PER_S), INTERVAL_S_MAX))


def late_beat_s(interval_s: float) -> float:
    """How much later its next heartbeat comes than with the shortest interval."""
    return interval_s - wire.BEAT_INTERVAL_S


@functools.lru_cache(maxsize=2 * INTERVAL_S_MAX)
def continue_answer(interval_s: int, *, stacks: bool) -> wire.BeatAnswer:
    """The answer to a heartbeat of an attempt that goes on."""
    return wire.BeatAnswer(wire.Order.CONTINUE, stacks=stacks, interval_s=interval_s)


class LauncherCount:
    """How many launchers there are, by job."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}
        self._total = 0

    def __repr__(self) -> str:
        return f"<LauncherCount {self._total}>"

    def update(self, job_uid: str, launchers: int) -> None:
        """A job has so many from now on."""
        self._total += launchers - self._of.pop(job_uid, 0)
        if launchers:
            self._of[job_uid] = launchers

    def interval_s(self) -> int:
        """For the launchers of all jobs."""
        return beat_interval_s(self._total)
