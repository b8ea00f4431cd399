"""The profile steps of a pod follow from the state of its job."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures import attempts, reporting
from fixtures.profiled_jobs import LARGE, jobs_with, large, recorded
from railwright_operator.write import pre_runs
from railwright_operator.write.rendering import Rendering
from railwright_scheduler.model.placement_score import PlacementScore
from railwright_scheduler.model.snapshot import Purpose

OTHERS = PlacementScore((), None, 0, measured=False, other_devices=("other",))
STEPS = "RAILWRIGHT_PROFILE_STEPS"
POINTS = {
    "checkpoints": [{"group": "worker", "attempt": 1, "step": 7}],
    "attempt": 1,
    "endedAttempt": 1,
}


@pytest.mark.parametrize(
    ("parts", "profile", "score", "steps"),
    [
        ({}, "", None, pre_runs.STEPS),
        ({}, recorded(2), None, None),
        ({}, recorded(2), OTHERS, pre_runs.STEPS),
        ({"spec": {"profiling": {"preRun": "Never"}}}, recorded(2), OTHERS, None),
        ({"data": 2 * 256}, "", None, None),
    ],
    ids=["nothing known", "recorded", "recorded on others", "not asked for", "too large"],
)
def test_job_wanting_a_pre_run_without_profile_records_itself(
    parts: dict[str, Any], profile: str, score: PlacementScore | None, steps: int | None
) -> None:
    jobs = jobs_with(large(**parts), profile)
    cached = jobs.get(LARGE)
    assert cached is not None
    entry = attempts.entry(job_uid=LARGE, job_name="large", spec_hash=cached.spec_hash, score=score)
    pod = Rendering(jobs, launcher=reporting.LAUNCHER).pod(entry, 0)
    assert environment(pod).get(STEPS) == (None if steps is None else str(steps))


@pytest.mark.parametrize(("steps", "recorded_steps"), [(0, pre_runs.STEPS), (7, 7)])
def test_pre_run_records_and_resumes_from_nothing(steps: int, recorded_steps: int) -> None:
    profiling = {"preRun": "Auto", "steps": steps}
    jobs = jobs_with(large(spec={"profiling": profiling}, status=POINTS))
    cached = jobs.get(LARGE)
    assert cached is not None
    rendering = Rendering(jobs, launcher=reporting.LAUNCHER)
    training = attempts.entry(2, job_uid=LARGE, job_name="large", spec_hash=cached.pre_run_hash)
    pre_run = attempts.entry(
        2, job_uid=LARGE, job_name="large", spec_hash=cached.pre_run_hash, purpose=Purpose.PRE_RUN
    )
    assert rendering.pod(training, 0) is None
    asked = environment(rendering.pod(pre_run, 0))
    assert (asked[STEPS], asked["RAILWRIGHT_PRE_RUN"]) == (str(recorded_steps), "true")
    placements = [rendering.placement(entry, epoch=1) for entry in (training, pre_run)]
    found = [(each["spec"]["purpose"], each["spec"]["resume"]) for each in placements if each]
    assert found == [("Training", POINTS["checkpoints"]), ("PreRun", [])]


def environment(pod: Any) -> dict[str, Any]:
    (main,) = pod["spec"]["containers"]
    return {each["name"]: each.get("value") for each in main["env"]}
