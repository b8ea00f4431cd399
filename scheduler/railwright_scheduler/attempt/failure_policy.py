"""Decide from the times of a job's failures whether it has used up those that its policy allows.

The times are in seconds since 1970, as the wall clock of the leader had them that noticed the
failure. Clocks of leaders differ and are set back, so no failure is earlier than the one before it.
A clock that is ahead thus lets older failures leave the window once, and no other clock does that
again before its own time has come; a clock that is behind keeps them in the window for longer. With
neither does a job fail with fewer failures than its policy allows.
"""

from __future__ import annotations

from dataclasses import dataclass

SPANS = ((3600, "h"), (60, "min"), (1, "s"))

BACKOFF_LIMIT_MAX = 100
"""A status keeps the times of so many failures, and of the one that was too many."""


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """``spec.failurePolicy``: with more than ``backoff_limit`` failures in ``window_s`` seconds the
    job fails."""

    backoff_limit: int
    window_s: int

    def with_failure(self, times_s: tuple[int, ...], now_s: int) -> tuple[int, ...]:
        """The failures of the window that ends with one more now; ``times_s`` are those before."""
        failures = (*self.recent(times_s, now_s), max((now_s, *times_s)))
        return failures[-BACKOFF_LIMIT_MAX - 1 :]

    def recent(self, times_s: tuple[int, ...], now_s: int) -> tuple[int, ...]:
        """Those of these failures, oldest first, that are in the window which ends now."""
        end_s = max((now_s, *times_s))
        return tuple(at_s for at_s in times_s if end_s - at_s < self.window_s)

    def is_exceeded(self, times_s: tuple[int, ...]) -> bool:
        """Whether these failures of one window are more than the job may have."""
        return len(times_s) > self.backoff_limit

    def usage(self, times_s: tuple[int, ...], now_s: int) -> str:
        """How many of the allowed failures are used now, in words."""
        used, limit = len(self.recent(times_s, now_s)), self.backoff_limit
        length_s, unit = next((s, unit) for s, unit in SPANS if self.window_s % s == 0)
        span = f"{self.window_s // length_s} {unit}"
        return f"{used} of {limit} allowed failures used in the last {span}"
