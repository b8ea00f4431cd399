"""How long to wait before trying again, so that many clients do not come back at once.

Capped exponential growth with jitter over the upper half: never less than half the step (a storm
of immediate retries would be the fault itself), never more than the cap.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from random import Random
from typing import Generic, TypeVar


def delay_s(attempt: int, *, base_s: float, cap_s: float, rng: Random) -> float:
    """Seconds to wait after failure number ``attempt`` (0 is the first)."""
    assert attempt >= 0, f"attempt is {attempt}, expected 0 or more"
    step_s = min(cap_s, base_s * 2.0 ** min(attempt, 32))
    return step_s * (0.5 + rng.random() / 2)


K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class _Pause:
    failures: int
    until_s: float


class Pauses(Generic[K]):
    """Who failed how often in a row, and is not to try again before when.

    ``clock`` is monotonic seconds; whoever no longer wants anything is forgotten.
    """

    def __init__(
        self, *, base_s: float, cap_s: float, clock: Callable[[], float], rng: Random
    ) -> None:
        self._base_s = base_s
        self._cap_s = cap_s
        self._clock = clock
        self._rng = rng
        self._held: dict[K, _Pause] = {}

    def __repr__(self) -> str:
        return f"<Pauses {len(self._held)}>"

    def over(self, key: K) -> bool:
        """Whether it may try (again)."""
        held = self._held.get(key)
        return held is None or self._clock() >= held.until_s

    def failed(self, key: K) -> None:
        """One more time in a row."""
        failures = self._held[key].failures + 1 if key in self._held else 0
        wait_s = delay_s(failures, base_s=self._base_s, cap_s=self._cap_s, rng=self._rng)
        self._held[key] = _Pause(failures, self._clock() + wait_s)

    def succeeded(self, key: K) -> None:
        """The row of failures is over."""
        self._held.pop(key, None)

    def forget_unless(self, wanted: Callable[[K], bool]) -> None:
        """Keep only those for which this holds."""
        self._held = {key: pause for key, pause in self._held.items() if wanted(key)}
