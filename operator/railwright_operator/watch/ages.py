"""For how long something has been so, on one monotonic clock, as this process saw it.

Nothing of it is stored: after a restart every age begins again, which can delay a time-out and
never brings one forward.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable


class Ages:
    """When each fact was first seen in a row of turns that all saw it."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._now_s = clock()
        self._since: dict[Hashable, float] = {}
        self._seen: set[Hashable] = set()

    def __repr__(self) -> str:
        return f"<Ages facts={len(self._since)}>"

    def of(self, *fact: Hashable) -> float:
        """Seconds since this fact was first seen, as of the turn's beginning; 0.0 when it is new
        in this turn."""
        self._seen.add(fact)
        return self._now_s - self._since.setdefault(fact, self._now_s)

    def begin_cycle(self) -> None:
        """All ages of a turn are taken at one moment: what is first seen together is of one age."""
        self._now_s = self._clock()

    def end_cycle(self) -> None:
        """Forget the facts that were not asked about since the last call."""
        for fact in self._since.keys() - self._seen:
            del self._since[fact]
        self._seen.clear()
