"""Groups save and resume among all other faults, with ranks that go on after their revocation."""

from __future__ import annotations

from simulator.run import run

SEEDS = 8


def test_groups_resume_from_what_they_saved_while_live() -> None:
    """Invariant I26."""
    outcomes = [run(seed, "checkpoints") for seed in range(SEEDS)]
    resumed = sum(outcome.events.get("group resumed", 0) for outcome in outcomes)
    assert resumed > SEEDS
    assert sum(outcome.events.get("checkpoint torn", 0) for outcome in outcomes) > 1
    assert sum(outcome.events.get("late commit", 0) for outcome in outcomes) > SEEDS // 2
