"""The pauses between a launcher's messages to the operator, and their time-outs.

A new leader receives messages of all launchers of the cluster at once. With a retry every 2 s, the
messages of 16,384 launchers would exceed its capacity, time out, and be sent again.
"""

from __future__ import annotations

import random

from railwright import protocol

JITTER = 0.25
"""The random share of a pause, so that launchers do not retry together."""

TIMEOUT_S = 3.0
"""The time-out of a first try, and of every message while the operator responds."""

DOUBLED_MAX = 10


def backoff_s(failures: int, *, first_s: float, most_s: float) -> float:
    """The pause after this number of failures in a row: ``first_s`` after none or one, then doubled
    up to ``most_s``."""
    doubled = first_s * 2.0 ** min(max(failures - 1, 0), DOUBLED_MAX)
    return min(doubled, most_s) * random.uniform(1 - JITTER, 1)  # noqa: S311  # spreads retries


def patience_s(failures: int, interval_s: float) -> float:
    """The time-out of a heartbeat.

    After a failure it is as long as the pause: a new leader on a busy machine may need more than
    ``TIMEOUT_S`` for all launchers, and a launcher that times out loses its place in the queue.
    """
    return max(TIMEOUT_S, interval_s) if failures else TIMEOUT_S


def heartbeat_s(failures: int, interval_s: float, *, waited_s: float = 0.0) -> float:
    """Until the next heartbeat. ``interval_s`` is what the operator stated last: it expects one
    within that time, however many were not answered. ``waited_s`` is how long the last one waited
    in vain; beyond ``TIMEOUT_S`` it counts as part of the pause."""
    if not failures:
        return interval_s
    pause_s = backoff_s(failures, first_s=protocol.HEARTBEAT_INTERVAL_S, most_s=interval_s)
    return max(0.0, pause_s - max(0.0, waited_s - TIMEOUT_S))
