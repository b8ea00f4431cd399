"""Jobs that cannot be read: set aside with the reason, until a version of them can be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from fixtures import observing, reporting
from railwright_operator.watch.jobs import Jobs
from railwright_operator.watch.owned import PlacementRecord
from railwright_scheduler.attempt.phases import Phase

BROKEN = {"overhead": {"memory": "100Ei"}}


@pytest.fixture
def jobs() -> Jobs:
    return observing.jobs_cache()


def test_the_reason_names_what_was_seen(jobs: Jobs) -> None:
    jobs.absorb(reporting.raw_job("a", pod=BROKEN))
    (found,) = jobs.unreadable()
    assert (found.uid, found.why) == (
        "a-uid",
        "the job cannot be read: '100Ei' is too large: at most 9223372036854775807 in the base "
        "unit",
    )
    assert jobs.get("a-uid") is None


@pytest.mark.parametrize("error", [RecursionError, AssertionError, KeyError], ids=str)
def test_any_exception_sets_the_job_aside(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    def render(raw: Mapping[str, Any], role: int) -> Mapping[str, Any]:
        raise error("planted")

    jobs = Jobs(render, expect=lambda version: None)
    jobs.absorb(reporting.raw_job("a"))
    why = jobs.why_unreadable("a-uid")
    assert why is not None
    assert f"{error.__name__}: " in why
    (record,) = caplog.records
    assert record.exc_info is not None


@pytest.mark.parametrize(
    "pod",
    [{"overhead": "abc"}, {"containers": []}, {"containers": [{}]}, {"initContainers": 5}],
    ids=str,
)
def test_unreadable_job_has_one_line_reason(jobs: Jobs, pod: reporting.Raw) -> None:
    jobs.absorb(reporting.raw_job("a", pod=pod))
    why = jobs.why_unreadable("a-uid")
    assert why is not None
    assert "\n" not in why
    assert len(why.encode()) <= 1024


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ("{}", "no profile as `railwright profile` prints it: Profile.ranks: missing"),
        (
            '{"ranks": 3, "steps": 1, "step_s": 1, "compute_s": null, "kinds": []}',
            "the profile is of 3 ranks, but replicas of the job have 2 ranks each",
        ),
        (
            '{"ranks": 2000, "steps": 1, "step_s": 1, "compute_s": null, "kinds": []}',
            "the profile is of 2000 ranks, expected at most 1024",
        ),
    ],
)
def test_profile_that_does_not_fit_is_reported(
    jobs: Jobs, profile: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On its job; to the log it is no fault of ours."""
    model = {"layers": 2, "hidden": 64, "heads": 4, "feedForward": 256, "vocabulary": 100}
    workload = {
        "transformer": model,
        "parallelism": {"tensor": 2, "data": 2},
        "training": {"sequence": 64, "globalBatch": 2},
        "profile": profile,
    }
    jobs.absorb(reporting.raw_job("a", replicas=4, spec={"workload": workload}))
    assert words in (jobs.why_unreadable("a-uid") or "")
    (record,) = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)


def test_job_is_cached_once_readable_and_never_older(jobs: Jobs) -> None:
    jobs.absorb(reporting.raw_job("a", pod=BROKEN, metadata={"resourceVersion": "10"}))
    jobs.absorb(reporting.raw_job("a", metadata={"resourceVersion": "9"}))
    assert jobs.get("a-uid") is None
    jobs.absorb(reporting.raw_job("a", metadata={"resourceVersion": "11"}))
    assert jobs.get("a-uid") is not None
    assert jobs.unreadable() == ()


def test_earlier_spec_stays_in_force(jobs: Jobs) -> None:
    jobs.absorb(reporting.raw_job("a", spec={"suspend": True}))
    newer = {"resourceVersion": "2", "generation": 2}
    status = {"phase": "Suspended", "attempt": 3, "endedAttempt": 3}
    jobs.absorb(reporting.raw_job("a", pod=BROKEN, metadata=newer, status=status))
    cached = jobs.get("a-uid")
    assert cached is not None
    assert cached.job.spec.suspend
    assert (cached.object.rv, cached.record.phase, cached.record.attempt) == (2, Phase.SUSPENDED, 3)
    assert jobs.why_unreadable("a-uid") is not None


def test_only_an_unreadable_status_keeps_spec_hash(jobs: Jobs) -> None:
    """An unreadable spec drops it, so that no pod is created from it."""
    jobs.absorb(reporting.raw_job("a"))
    before = jobs.get("a-uid")
    assert before is not None
    jobs.absorb(reporting.raw_job("a", metadata={"resourceVersion": "2"}, status={"phase": "?"}))
    cached = jobs.get("a-uid")
    assert cached is not None
    assert cached.spec_hash == before.spec_hash != ""
    newer = {"resourceVersion": "3", "generation": 2}
    jobs.absorb(reporting.raw_job("a", pod=BROKEN, metadata=newer))
    cached = jobs.get("a-uid")
    assert cached is not None
    assert cached.spec_hash == ""


def test_one_that_is_gone_or_going_is_nobodys_news(jobs: Jobs) -> None:
    for name in ("going", "gone", "there"):
        metadata = {"deletionTimestamp": "2026-01-02T03:04:06Z"} if name == "going" else {}
        jobs.absorb(reporting.raw_job(name, pod=BROKEN, metadata=metadata))
    jobs.discard("gone-uid")
    assert [found.uid for found in jobs.unreadable()] == ["there-uid"]


RUNS = {"phase": "Running", "attempt": 3, "endedAttempt": 2, "nodes": 2}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"phase": "Succeeded"}, "phase Succeeded with attempt 3 and endedAttempt 2, expected"),
        ({"phase": "Queued"}, "expected attempt to be endedAttempt"),
        ({"endedAttempt": 3}, "expected attempt to be the one after endedAttempt"),
        ({"attempt": 9}, "phase Running with attempt 9 and endedAttempt 2"),
        ({"attempt": 2**63 - 1, "endedAttempt": 2**63 - 2}, "expected at most 999999"),
    ],
    ids=str,
)
def test_invalid_status_changes_no_record(jobs: Jobs, changes: reporting.Raw, why: str) -> None:
    placed = PlacementRecord("p", "team", "a-3", 1, "a-uid", ("n0", "n1"), topology_hash="")
    jobs.placement_changed(None, placed)
    jobs.absorb(reporting.raw_job("a", status=RUNS))
    newer = {"resourceVersion": "2"}
    jobs.absorb(reporting.raw_job("a", metadata=newer, status=RUNS | changes))
    reported = jobs.why_unreadable("a-uid")
    assert reported is not None
    assert why in reported
    assert reported.startswith(
        "the job cannot be read: its status was not written by the operator: "
    )
    cached = jobs.get("a-uid")
    assert cached is not None
    assert (cached.object.rv, cached.record.attempt, cached.record.nodes) == (2, 3, ("n0", "n1"))


def test_pods_with_too_many_resources_are_set_aside(jobs: Jobs) -> None:
    """The job is unreadable with the limit in its reason."""

    def requesting(amount: int) -> reporting.Raw:
        kinds = [{f"example.com/d{c}-{n}": amount for n in range(16)} for c in range(3)]
        return {
            "initContainers": [
                {"name": f"side-{number}", "image": "i", "resources": {"requests": asked}}
                for number, asked in enumerate(kinds)
            ]
        }

    jobs.absorb(reporting.raw_job("a", pod=requesting(1)))
    reported = "the job cannot be read: its pods request 49 resources, at most 32"
    assert jobs.why_unreadable("a-uid") == reported
    jobs.absorb(reporting.raw_job("b", pod=requesting(0)))
    cached = jobs.get("b-uid")
    assert cached is not None
    assert dict(cached.roles[0].per_pod) == {"pods": 1}
