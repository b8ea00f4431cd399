"""No valid workload takes more work to plan than its budget, whatever its sizes are."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fixtures import heavy_workloads
from fixtures.examples import examples
from railwright_scheduler.budget import PLANNING_WORK, WorkBudget
from railwright_scheduler.isolation import Isolation
from railwright_scheduler.mapping import gang_mapping
from railwright_scheduler.policy.decide import decide

SEEDS = st.integers(0, 2**32 - 1)
NODES = st.sampled_from([1, 2, 3, 9, 16, 31, 64, 97])


@settings(max_examples=examples(25), deadline=None)
@given(seed=SEEDS, shape=st.sampled_from(heavy_workloads.SHAPES), nodes=NODES)
@example(seed=227, shape="one_rack", nodes=1)
def test_planning_work_is_within_budget(seed: int, shape: str, nodes: int) -> None:
    rng = random.Random(seed)
    floor = heavy_workloads.cluster(rng, shape, rng.choice([nodes, nodes + 7, 2 * nodes]))
    asked = replace(floor, jobs=(heavy_workloads.job(rng, floor, nodes),))
    made: list[WorkBudget] = []
    isolation = Isolation()

    def budget() -> WorkBudget:
        made.append(WorkBudget(limit))
        return made[-1]

    for limit in (PLANNING_WORK, 3_000_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gang_mapping, "WorkBudget", budget)
            found = [decide(asked, isolation) for _ in range(2)]
        assert not isolation.faults
        # What was kept of the first time costs the same the second time, and changes nothing.
        assert found[0] == found[1]
        assert len({work.spent for work in made[-2:]}) <= 1
        assert all(work.spent <= limit for work in made[-2:])
        for each in found[0].admitted:
            if each.score is not None and not each.score.crossing:
                assert each.score.truncated
