"""How long a launcher pauses between two tries to reach the operator.

A new leader meets the launchers of the whole cluster at once. If each of them tried every 2 s,
16,384 would ask for more than it can answer, time out, and ask again.
"""

from __future__ import annotations

import random

from railwright import wire

JITTER = 0.25
"""The share of a pause that is random: launchers that failed together come apart."""

DOUBLED_MAX = 10


def backoff_s(failures: int, *, first_s: float, most_s: float) -> float:
    """After so many failures in a row. ``first_s`` after none or one, then doubled up to
    ``most_s``, and never longer."""
    doubled = first_s * 2.0 ** min(max(failures - 1, 0), DOUBLED_MAX)
    return min(doubled, most_s) * random.uniform(1 - JITTER, 1)  # noqa: S311  # spreads retries


def heartbeat_s(failures: int, interval_s: float) -> float:
    """Until the next heartbeat. ``interval_s`` is what the operator stated last: it expects one
    within that time, however many were not answered."""
    if not failures:
        return interval_s
    return backoff_s(failures, first_s=wire.BEAT_INTERVAL_S, most_s=interval_s)
