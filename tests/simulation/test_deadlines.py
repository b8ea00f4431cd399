"""Jobs with a deadline among all other faults, with leaders whose clocks are wrong (I25)."""

from __future__ import annotations

from simulator.run import run

SEEDS = 10


def test_jobs_with_deadlines_come_to_rest() -> None:
    outcomes = [run(seed, "deadlines") for seed in range(SEEDS)]
    assert sum(outcome.causes.get("DeadlineExceeded", 0) for outcome in outcomes) > SEEDS // 2
    assert sum(outcome.phases.get("Succeeded", 0) for outcome in outcomes) > 1
    assert sum(outcome.events.get("suspend", 0) for outcome in outcomes) > SEEDS
