"""What the operator observes of the pre-run that the user of a job wants."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures import profiled_jobs
from fixtures.profiled_jobs import SPLIT, large, recorded
from railwright_scheduler.cluster_state import ObservedPreRun

PROFILING = {"phase": "Profiling", "attempt": 1, "nodes": ["n0", "n1"]}


@pytest.mark.parametrize(
    ("status", "profile", "expected"),
    [
        ({}, "", ObservedPreRun("")),
        ({}, recorded(2), ObservedPreRun("", profiled=True)),
        ({}, recorded(1), ObservedPreRun("")),
        (PROFILING, recorded(1), ObservedPreRun("", error="the profile is of one replica")),
        (PROFILING | {"attempt": 2, "endedAttempt": 1}, recorded(1), ObservedPreRun("")),
    ],
    ids=["nothing", "recorded", "no longer fits", "recorded what does not fit", "older"],
)
def test_profile_of_a_job_is_observed(
    status: dict[str, Any], profile: str, expected: ObservedPreRun
) -> None:
    """The profile is that of attempt 1; an error is one of the live pre-run."""
    found = profiled_jobs.cached(large(status=status), profile).requested_pre_run
    assert found is not None
    assert found.error.startswith(expected.error)
    assert bool(found.error) is bool(expected.error)
    assert found.profiled is expected.profiled
    never = large(status=status, spec={"profiling": {"preRun": "Never"}})
    assert profiled_jobs.cached(never, profile).requested_pre_run is None


def test_pre_run_hash_follows_what_it_is_made_from() -> None:
    """The profile itself makes no difference."""
    workload = large()["spec"]["workload"]
    specs: tuple[dict[str, Any], ...] = (
        {},
        SPLIT,
        {"profiling": {"preRun": "Auto", "steps": 5}},
        {"priorityClassName": "high"},
        {"workload": workload | {"profile": recorded(2)}},
    )
    shapes = [profiled_jobs.cached(large(spec=spec)).pre_run_hash for spec in specs]
    assert len({*shapes[:-1]}) == 4
    assert shapes[-1] == shapes[0]


def test_job_without_workload_has_what_it_recorded() -> None:
    """Only of as many ranks as it has, as nothing says how the traffic would grow."""
    raw = profiled_jobs.large(spec={"profiling": {"steps": 3}})
    del raw["spec"]["workload"]
    found = profiled_jobs.cached(raw, profiled_jobs.recorded(profiled_jobs.REPLICAS)).workload
    assert found is not None
    assert found.model is None
    assert found.has_traffic
    assert profiled_jobs.cached(raw).workload is None
    assert profiled_jobs.cached(raw, profiled_jobs.recorded(4)).workload is None


def test_opaque_job_is_sized_and_mapped_as_its_parallelism() -> None:
    opaque = {"opaque": {}, "parallelism": {"tensor": 2}}
    raw = profiled_jobs.large(spec={"workload": opaque})
    plain, small = (
        profiled_jobs.cached(raw, document).workload for document in ("", profiled_jobs.recorded(4))
    )
    assert plain is not None
    assert small is not None
    assert (plain.split.data, plain.has_traffic, small.has_traffic) == (4, False, True)
