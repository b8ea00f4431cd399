"""Ranks that hang, attempts that save for long, ranks that crash, in the runs with these enabled.

In other runs no rank reports steps.

A rank that hangs stalls its attempt: none of its pods ends by itself any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from railwright_scheduler.attempt.hang import CHECKPOINTING_S
from railwright_scheduler.attempt.ledger import AttemptKey
from railwright_scheduler.model.evidence import Activity, ObservedSteps
from railwright_scheduler.simulator.seeded_random import SeededRandom

HANG_PERMILLE = 60
SAVE_PERMILLE = 100
CRASH_PERMILLE = 500
SAVE_ENDS_PERMILLE = 30
SAVE_S_MAX = int(CHECKPOINTING_S) - 100
"""Time passes in jumps of up to 40 s, and a save must end before its limit."""

STEP_S = 55
"""The longest step, unannounced."""


class Hangs:
    """Which attempts hang or save, and since when, drawn from a random source of its own; with
    ``crashes`` instead which ones crash.

    While it ``lasts`` no job comes to its end, or hardly any would run for long enough to hang.
    """

    def __init__(self, rng: SeededRandom | None = None, *, crashes: bool = False) -> None:
        self._random = rng
        self._crashes = crashes
        self.since_s: dict[AttemptKey, int] = {}
        self._saving_s: dict[AttemptKey, int] = {}
        self.lasts = rng is not None

    def stops(self, key: AttemptKey) -> bool:
        """Whether no pod of this attempt comes to its end now."""
        return self.lasts or key in self.since_s or key in self._saving_s

    def pass_time(self, training: Sequence[AttemptKey], *, now_s: int) -> str:
        """One of the attempts that train may begin to hang or to save, and saves end."""
        for key, since_s in list(self._saving_s.items()):
            if now_s - since_s > SAVE_S_MAX or self._happens(SAVE_ENDS_PERMILLE):
                del self._saving_s[key]
        still = self.since_s.keys() | self._saving_s.keys()
        going = [key for key in training if key not in still]
        if not going or self._random is None or not self.lasts or self._crashes:
            return ""
        key = self._random.pick(going)
        if self._happens(SAVE_PERMILLE):
            self._saving_s[key] = now_s
            return f"{key} saves"
        if self._happens(HANG_PERMILLE):
            self.since_s[key] = now_s
            return f"{key} hangs"
        return ""

    def crashing(self, training: Sequence[AttemptKey]) -> Sequence[AttemptKey]:
        """The attempt of which a rank crashes now, if one does."""
        if self._random is None or not (training and self.lasts and self._crashes):
            return ()
        return (self._random.pick(training),) if self._happens(CRASH_PERMILLE) else ()

    def end(self) -> None:
        """From now on none begins to hang or to save; those that save are done."""
        self._saving_s.clear()
        self.lasts = False

    def steps(self, key: AttemptKey, *, now_s: int, requested: bool) -> ObservedSteps | None:
        """The report of a launcher of this attempt about its ranks."""
        if self._random is None or self._crashes:
            return None
        saves = key in self._saving_s
        since_s = self.since_s.get(key, self._saving_s.get(key, now_s - now_s % STEP_S))
        return ObservedSteps(
            reporting=1,
            still_s=now_s - since_s,
            timed=100,
            p99_s=1,
            lag_p99_s=1,
            activity=Activity.CHECKPOINTING if saves else Activity.TRAINING,
            stacks=() if requested else None,
        )

    def _happens(self, permille: int) -> bool:
        return self._random is not None and self._random.happens(permille)
