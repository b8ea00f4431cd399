"""Ranks hang among all other faults: each such attempt is ended, and none that makes steps is."""

from __future__ import annotations

import pytest

from railwright_scheduler.attempt import hang
from railwright_scheduler.simulator.run import Outcome, RunError, run

STEPS = 500


def ran(seeds: range) -> list[Outcome]:
    return [run(seed, steps=STEPS, hangs=True) for seed in seeds]


def test_hanging_attempts_are_ended_and_no_others() -> None:
    outcomes = ran(range(60))
    assert sum(outcome.hangs for outcome in outcomes) > 30
    assert sum(outcome.succeeded for outcome in outcomes) > 30


def test_hang_that_nobody_looks_for_never_comes_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang, "judge", lambda launchers, watch: None)
    with pytest.raises(RunError, match="I5"):
        ran(range(10))


def test_announced_save_is_needed_to_be_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hang, "PHASE_LIMITS_S", dict.fromkeys(hang.PHASE_LIMITS_S, hang.STILL_S))
    with pytest.raises(RunError, match="I21"):
        ran(range(20))
