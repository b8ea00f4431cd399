"""Jobs of one to four roles, which share groups of ranks, among all other faults."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.cluster_state import ClusterState
from simulator.run import run

SEEDS = range(2, 8)


def test_roles_that_share_groups_run_and_settle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every invariant holds; jobs ran with up to four roles, three of them or more in one group."""
    ran = set[tuple[int, int]]()
    plan = scheduling.plan

    def observed(state: ClusterState, *given: Any) -> Any:
        for seen in state.jobs:
            if seen.record.phase is Phase.RUNNING:
                groups = Counter(role.group or role.name for role in seen.job.roles)
                ran.add((len(seen.job.roles), max(groups.values())))
        return plan(state, *given)

    monkeypatch.setattr(scheduling, "plan", observed)
    phases = Counter[str]()
    for seed in SEEDS:
        phases += Counter(run(seed, "roles").phases)
    assert {roles for roles, _ in ran} == {1, 2, 3, 4}
    assert max(largest for _, largest in ran) > 2
    assert phases[Phase.SUCCEEDED] > len(SEEDS) // 2
