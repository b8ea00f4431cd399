"""What a pod of an attempt is asked to record follows from what is known of its job by then."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures import attempts, reporting
from fixtures.ahead import LARGE, large, recorded
from railwright_operator.watch.jobs import Jobs
from railwright_operator.write import pods, pre_runs
from railwright_operator.write.rendering import Rendering
from railwright_scheduler.model.placement_score import PlacementScore

OTHERS = PlacementScore((), None, 0, measured=False, other_devices=("other",))
STEPS = "RAILWRIGHT_PROFILE_STEPS"


@pytest.mark.parametrize(
    ("parts", "score", "steps"),
    [
        ({}, None, pre_runs.STEPS),
        ({"status": {"profile": recorded(2)}}, None, None),
        ({"status": {"profile": recorded(2)}}, OTHERS, pre_runs.STEPS),
        (
            {"status": {"profile": recorded(2)}, "spec": {"profiling": {"preRun": "Never"}}},
            OTHERS,
            None,
        ),
        ({"data": 2 * 256}, None, None),
    ],
    ids=["nothing known", "recorded", "recorded on others", "not asked for", "too large"],
)
def test_job_wanting_a_pre_run_without_profile_records_itself(
    parts: dict[str, Any], score: PlacementScore | None, steps: int | None
) -> None:
    jobs = Jobs(lambda raw: pods.sample(raw, reporting.LAUNCHER))
    jobs.absorb(large(**parts))
    cached = jobs.get(LARGE)
    assert cached is not None, jobs.why_unreadable(LARGE)
    entry = attempts.entry(job_uid=LARGE, job_name="large", spec_hash=cached.spec_hash, score=score)
    pod = Rendering(jobs, launcher=reporting.LAUNCHER).pod(entry, 0)
    assert pod is not None
    (main,) = pod["spec"]["containers"]
    asked = {each["name"]: each.get("value") for each in main["env"]}
    assert asked.get(STEPS) == (None if steps is None else str(steps))
