"""How often launchers send messages: less often in large clusters, so that their cost is bounded.

Sessions state the interval in each answer to a heartbeat. Launchers that read no interval keep
the shortest, and so do all of them up to ``BEATS_PER_S`` times as many launchers.

The interval delays no news of a launcher: what changed is sent at once, and a phase within
the shortest interval. It delays what an answer says: a launcher reads that its attempt was revoked
up to 8 s later. Until then its commits are refused, and its pod is being deleted.
"""

from __future__ import annotations

import functools
import math

from railwright import protocol

BEATS_PER_S = 400
"""At 140 µs a heartbeat these cost 5.6 % of a core."""

INTERVAL_S_MAX = 8
"""Above 2,800 launchers. A dead node is found so much later than in a small cluster, less 2 s."""


def beat_interval_s(launchers: int) -> int:
    """Whole seconds between two heartbeats of a launcher, when there are so many."""
    least = math.ceil(protocol.HEARTBEAT_INTERVAL_S)
    return max(least, min(math.ceil(launchers / BEATS_PER_S), INTERVAL_S_MAX))


REGISTERS_PER_S = 2_000
"""At the start barrier, from where launchers ask each 0.5 s while there are half as many."""


def register_interval_s(waiting: int) -> int | None:
    """Whole seconds between two registrations of a launcher, when so many wait at start barriers;
    None for the shortest interval."""
    if waiting <= REGISTERS_PER_S * protocol.REGISTER_INTERVAL_S:
        return None
    return min(math.ceil(waiting / REGISTERS_PER_S), INTERVAL_S_MAX)


def late_beat_s(interval_s: float) -> float:
    """How much later its next heartbeat comes than with the shortest interval."""
    return interval_s - protocol.HEARTBEAT_INTERVAL_S


@functools.lru_cache(maxsize=2 * INTERVAL_S_MAX)
def continue_answer(interval_s: int, *, stacks: bool) -> protocol.HeartbeatAnswer:
    """The answer to a heartbeat of an attempt that goes on."""
    return protocol.HeartbeatAnswer(protocol.Order.CONTINUE, stacks=stacks, interval_s=interval_s)


class LauncherCount:
    """How many launchers there are, and how many of them wait at start barriers, by job."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, int]] = {}
        self._total = self._waiting = 0

    def update(self, job_uid: str, launchers: int, *, waiting: int = 0) -> None:
        """A job has so many from now on."""
        launchers_before, waiting_before = self._of.pop(job_uid, (0, 0))
        self._total += launchers - launchers_before
        self._waiting += waiting - waiting_before
        if launchers:
            self._of[job_uid] = launchers, waiting

    def beat_interval_s(self) -> int:
        """For the launchers of all jobs."""
        return beat_interval_s(self._total)

    def register_interval_s(self) -> int | None:
        """For those that wait."""
        return register_interval_s(self._waiting)
