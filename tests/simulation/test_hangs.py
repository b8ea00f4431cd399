"""Ranks hang or crash among all other faults: what ends attempts, and what ends jobs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.simulator.run import run
from simulation.mutants import Mutant, hunt

STEPS = 500


def test_hanging_attempts_are_ended_and_no_others() -> None:
    outcomes = [run(seed, steps=STEPS, hangs=True) for seed in range(60)]
    assert sum(outcome.hangs for outcome in outcomes) > 30
    assert sum(outcome.succeeded for outcome in outcomes) > 30


def test_crashing_jobs_fail_by_their_policy() -> None:
    """Invariant I24."""
    outcomes = [run(seed, steps=STEPS, crashes=True) for seed in range(80)]
    assert sum(outcome.failed for outcome in outcomes) > 30
    assert sum(outcome.succeeded for outcome in outcomes) > 10


@pytest.mark.parametrize("recent", [lambda _, times_s, now_s: times_s, lambda *_: ()])
def test_wrong_window_of_failures_is_found(recent: Callable[..., tuple[int, ...]]) -> None:
    """No failure expires, or each at once."""
    mutant = Mutant("window", FailurePolicy, "recent", lambda _: recent, beside="crashes")
    assert hunt(mutant, range(20)) is not None
