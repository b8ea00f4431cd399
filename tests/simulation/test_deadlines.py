"""Jobs with a deadline among all other faults, with leaders whose clocks are wrong (I25)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from railwright_scheduler import cancellation
from railwright_scheduler.attempt import record
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.commit_plan import CommitPlan
from railwright_scheduler.simulator.run import run
from simulation.mutants import Mutant, Original, constant, hunt

STEPS = 500


def keeps_start(original: Original) -> Original:
    def derive(now: JobRecord, **named: Any) -> JobRecord:
        derived: JobRecord = original(now, **named)
        return replace(derived, started_s=now.started_s)

    return derive


def is_hasty(original: Original) -> Original:
    return lambda seen, *, now_s: original(seen, now_s=now_s + 1)


MUTANTS = (
    Mutant("a job waits past its deadline", CommitPlan, "fail_idle", constant(None)),
    Mutant("no deadline is seen", cancellation, "exceeds_deadline", constant(None)),
    Mutant("a deadline is a second shorter", cancellation, "exceeds_deadline", is_hasty),
    Mutant("a start in the future stays", record, "correct_start", lambda _: lambda now, **_: now),
    Mutant("a suspended job's time goes on", record, "derive_waiting", keeps_start),
)


def test_jobs_with_deadlines_come_to_rest() -> None:
    outcomes = [run(seed, steps=STEPS, deadlines=True) for seed in range(100)]
    assert sum(outcome.overran for outcome in outcomes) > 10
    assert sum(outcome.succeeded for outcome in outcomes) > 5


@pytest.mark.parametrize("beside", ["pre_runs", "hangs", "cuts"])
def test_other_runs_with_deadlines_come_to_rest(beside: str) -> None:
    outcomes = [run(seed, steps=STEPS, deadlines=True, **{beside: True}) for seed in range(40)]
    assert sum(outcome.overran for outcome in outcomes) > 2


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_of_deadlines_breaks_an_invariant(mutant: Mutant) -> None:
    caught = hunt(replace(mutant, beside="deadlines"), range(400))
    assert caught is not None
    assert "I25" in caught.message
