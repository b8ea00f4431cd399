"""How long a launcher pauses between two tries to reach the operator.

A new leader meets the launchers of the whole cluster at once. If each of them tried every 2 s,
16,384 would ask for more than it can answer, time out, and ask again.
"""

from __future__ import annotations

import random

from railwright import protocol

JITTER = 0.25
"""The share of a pause that is random: launchers that failed together come apart."""

TIMEOUT_S = 3.0
"""The wait for the first try's answer, and for any from an operator that answers."""

DOUBLED_MAX = 10


def backoff_s(failures: int, *, first_s: float, most_s: float) -> float:
    """After so many failures in a row. ``first_s`` after none or one, then doubled up to
    ``most_s``, and never longer."""
    doubled = first_s * 2.0 ** min(max(failures - 1, 0), DOUBLED_MAX)
    return min(doubled, most_s) * random.uniform(1 - JITTER, 1)  # noqa: S311  # spreads retries


def patience_s(failures: int, interval_s: float) -> float:
    """How long to wait for the answer to a heartbeat.

    After a failure it is as long as the pause would be: a new leader on a busy machine may need
    more than ``TIMEOUT_S`` for all launchers, and who gives up loses its place among them.
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
