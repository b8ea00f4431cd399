"""Ranks hang or crash among all other faults: what ends attempts, and what ends jobs."""

from __future__ import annotations

from simulator.run import run

HANG_SEEDS, CRASH_SEEDS = 6, 9


def test_hanging_attempts_are_ended_and_no_others() -> None:
    """Invariant I21; some of these jobs have a deadline beside."""
    outcomes = [run(seed, "hangs") for seed in range(HANG_SEEDS)]
    assert sum(outcome.causes.get("Hung", 0) for outcome in outcomes) > HANG_SEEDS // 2
    assert sum(outcome.events.get("save", 0) for outcome in outcomes) > HANG_SEEDS
    assert sum(outcome.phases.get("Succeeded", 0) for outcome in outcomes) > HANG_SEEDS // 2


def test_crashing_jobs_fail_by_their_policy() -> None:
    """Invariant I24."""
    outcomes = [run(seed, "crashes") for seed in range(CRASH_SEEDS)]
    assert sum(outcome.causes.get("RankFailed", 0) for outcome in outcomes) > CRASH_SEEDS
    assert sum(outcome.phases.get("Failed", 0) for outcome in outcomes) > CRASH_SEEDS // 3
    assert sum(outcome.phases.get("Succeeded", 0) for outcome in outcomes) > 1
