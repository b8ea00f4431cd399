"""The heartbeat interval: longer in large clusters, so that the cost of messages is bounded.

Sessions state the interval in each response to a heartbeat. A launcher without one keeps the
shortest interval.

The interval delays no change on a launcher: a change is sent at once, and a phase within the
shortest interval. It delays responses: a launcher reads that its attempt was revoked up to 8 s
later. Until then its commits are refused, and its pod is being deleted.
"""

from __future__ import annotations

import functools
import math

from railwright import protocol

BEATS_PER_S = 400
"""At 140 µs a heartbeat these cost 5.6 % of a core."""

INTERVAL_S_MAX = 8
"""Above 2,800 launchers. A dead node is found this much later than in a small cluster, less 2 s."""


def beat_interval_s(launchers: int) -> int:
    """Whole seconds between two heartbeats of a launcher, for this number of launchers."""
    least = math.ceil(protocol.HEARTBEAT_INTERVAL_S)
    return max(least, min(math.ceil(launchers / BEATS_PER_S), INTERVAL_S_MAX))


REGISTERS_PER_S = 2_000
"""At the start barrier, where launchers register every 0.5 s while there are half as many."""


def register_interval_s(waiting: int) -> int | None:
    """Whole seconds between two registrations of a launcher, for this number at start barriers;
    None for the shortest interval."""
    if waiting <= REGISTERS_PER_S * protocol.REGISTER_INTERVAL_S:
        return None
    return min(math.ceil(waiting / REGISTERS_PER_S), INTERVAL_S_MAX)


def late_beat_s(interval_s: float) -> float:
    """How much later its next heartbeat comes than with the shortest interval."""
    return interval_s - protocol.HEARTBEAT_INTERVAL_S


@functools.lru_cache(maxsize=2 * INTERVAL_S_MAX)
def continue_answer(interval_s: int, *, stacks: bool) -> protocol.HeartbeatAnswer:
    """The response to a heartbeat of a live attempt."""
    return protocol.HeartbeatAnswer(protocol.Order.CONTINUE, stacks=stacks, interval_s=interval_s)


class LauncherCount:
    """How many launchers there are, and how many of them wait at start barriers: of each job, and
    in ``total`` and ``waiting`` of all."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[int, int]] = {}
        self.total = self.waiting = 0

    def update(self, job_uid: str, launchers: int, *, waiting: int = 0) -> None:
        """Set the number of launchers of a job."""
        launchers_before, waiting_before = self._of.pop(job_uid, (0, 0))
        self.total += launchers - launchers_before
        self.waiting += waiting - waiting_before
        if launchers:
            self._of[job_uid] = launchers, waiting
