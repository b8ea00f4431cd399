"""Ages of facts, on one monotonic clock, as this process observed them.

Ages are not stored: after a restart all begin again, which can delay a time-out and never advances
one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class Ages:
    """For each fact, the first cycle of an unbroken row of cycles with the fact."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._now_s = clock()
        self._since: dict[Hashable, float] = {}
        self._seen: set[Hashable] = set()

    def __repr__(self) -> str:
        return f"<Ages facts={len(self._since)}>"

    def of(self, *fact: Hashable) -> float:
        """Seconds since this fact was first observed, at the begin of this cycle; 0.0 for a new
        fact."""
        self._seen.add(fact)
        return self._now_s - self._since.setdefault(fact, self._now_s)

    def begin_cycle(self) -> None:
        """Take the time for all ages of a cycle: facts that begin together have the same age."""
        self._now_s = self._clock()

    def end_cycle(self) -> None:
        """Forget the facts that this cycle did not read."""
        for fact in self._since.keys() - self._seen:
            del self._since[fact]
        self._seen.clear()
