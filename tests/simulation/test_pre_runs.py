"""Jobs have pre-runs among all other faults: each ends, and its job comes to rest."""

from __future__ import annotations

from collections import Counter

import pytest

from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.simulator.run import run

STEPS = 500


def test_pre_runs_end_and_their_jobs_come_to_rest() -> None:
    """They record or not, lose their nodes, are suspended, and are taken over by other leaders."""
    outcomes = [run(seed, steps=STEPS, pre_runs=True) for seed in range(120)]
    ends = sum((Counter(outcome.pre_runs) for outcome in outcomes), Counter[str]())
    assert ends[CauseCode.PROFILED] > 15
    assert ends[CauseCode.NOT_PROFILED] > 10
    assert {CauseCode.NODE_LOST, CauseCode.SUSPENDED, CauseCode.COMMIT_REFUSED} <= ends.keys()
    assert sum(outcome.succeeded for outcome in outcomes) > 60


@pytest.mark.parametrize("beside", ["links", "hangs", "cuts"])
def test_pre_runs_beside_other_troubles_hold_every_invariant(beside: str) -> None:
    options = {beside: True}
    ended = (run(seed, steps=STEPS, pre_runs=True, **options).pre_runs for seed in range(30))
    assert sum(map(len, ended)) > 3
