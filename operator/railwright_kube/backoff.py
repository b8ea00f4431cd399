"""Exponential back-off with jitter and a cap, so that many clients do not retry at once.

The jitter covers the upper half of each step. A delay is never less than half of its step, as
immediate retries would overload the server, and never more than the cap.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Generic, NamedTuple, TypeVar


class Backoff(NamedTuple):
    """The first step and the longest, in seconds."""

    base_s: float
    cap_s: float

    def delay_s(self, attempt: int, rng: Random) -> float:
        """Seconds to wait after failure number ``attempt`` (0 is the first)."""
        assert attempt >= 0, f"attempt is {attempt}, expected 0 or more"
        step_s = min(self.cap_s, self.base_s * 2.0 ** min(attempt, 32))
        return step_s * (0.5 + rng.random() / 2)


K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class _Pause:
    failures: int
    until_s: float


class Pauses(Generic[K]):
    """The failures in a row of each key, and when it may be tried again.

    ``clock`` is monotonic seconds.
    """

    def __init__(self, backoff: Backoff, *, clock: Callable[[], float], rng: Random) -> None:
        self._backoff = backoff
        self._clock = clock
        self._rng = rng
        self._held: dict[K, _Pause] = {}

    def over(self, key: K) -> bool:
        """Whether this key may be tried now."""
        held = self._held.get(key)
        return held is None or self._clock() >= held.until_s

    def failed(self, key: K) -> None:
        """Record one more failure in a row."""
        failures = self._held[key].failures + 1 if key in self._held else 0
        wait_s = self._backoff.delay_s(failures, self._rng)
        self._held[key] = _Pause(failures, self._clock() + wait_s)

    def held(self) -> Mapping[K, tuple[int, float]]:
        """The failures of each key after the first in a row, and the seconds left of its pause."""
        now_s = self._clock()
        return {key: (pause.failures, pause.until_s - now_s) for key, pause in self._held.items()}

    def restore(self, key: K, failures: int, left_s: float) -> None:
        """Take over a pause of an earlier process, as ``held`` returned it."""
        self._held[key] = _Pause(failures, self._clock() + min(left_s, self._backoff.cap_s))

    def succeeded(self, key: K) -> None:
        """Forget the failures of this key."""
        self._held.pop(key, None)

    def forget_unless(self, is_kept: Callable[[K], bool]) -> None:
        """Forget all keys but those for which ``is_kept`` holds."""
        self._held = {key: pause for key, pause in self._held.items() if is_kept(key)}
