"""Ranks hang among all other faults: each such attempt is ended, and none that makes steps is."""

from __future__ import annotations

from railwright_scheduler.simulator.run import run

STEPS = 500


def test_hanging_attempts_are_ended_and_no_others() -> None:
    outcomes = [run(seed, steps=STEPS, hangs=True) for seed in range(60)]
    assert sum(outcome.hangs for outcome in outcomes) > 30
    assert sum(outcome.succeeded for outcome in outcomes) > 30
