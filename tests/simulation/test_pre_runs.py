"""Jobs have pre-runs among all other faults: each ends, and its job comes to rest."""

from __future__ import annotations

from collections import Counter

from railwright_scheduler.attempt.causes import CauseCode
from simulator.run import run

SEEDS = range(12)


def test_pre_runs_end_and_their_jobs_come_to_rest() -> None:
    """They record or not, lose pods, are suspended, and are taken over by other leaders."""
    outcomes = [run(seed, "pre-runs") for seed in SEEDS]
    ends, phases = Counter[str](), Counter[str]()
    for outcome in outcomes:
        ends += Counter(outcome.pre_runs)
        phases += Counter(outcome.phases)
    assert ends[CauseCode.PROFILED] > 2
    assert ends[CauseCode.NOT_PROFILED] > 1
    assert {CauseCode.POD_DELETED, CauseCode.SUSPENDED, CauseCode.COMMIT_REFUSED} <= ends.keys()
    assert phases["Succeeded"] > 6
