"""Jobs that cannot be read: set aside with the reason, until a version of them can be."""

from __future__ import annotations

import pytest

from railwright_operator.watch.jobs import Jobs
from railwright_operator.write import pods
from railwright_scheduler.attempt.phases import Phase
from worlds import reporting

BROKEN = {"overhead": {"memory": "100Ei"}}


@pytest.fixture
def jobs() -> Jobs:
    return Jobs(lambda raw: pods.sample(raw, reporting.LAUNCHER))


def test_the_reason_names_what_was_seen(jobs: Jobs) -> None:
    jobs.absorb(reporting.raw_job("a", pod=BROKEN))
    (found,) = jobs.unreadable()
    assert (found.uid, found.why) == (
        "a-uid",
        "the job cannot be read: '100Ei' is too large: at most 9223372036854775807 in the base "
        "unit",
    )
    assert jobs.get("a-uid") is None


@pytest.mark.parametrize(
    "pod",
    [{"overhead": "abc"}, {"containers": []}, {"containers": [{}]}, {"initContainers": 5}],
    ids=str,
)
def test_whatever_is_wrong_is_one_line(jobs: Jobs, pod: reporting.Raw) -> None:
    jobs.absorb(reporting.raw_job("a", pod=pod))
    why = jobs.why_unreadable("a-uid")
    assert why is not None
    assert "\n" not in why
    assert len(why.encode()) <= 1024


def test_it_is_known_once_it_can_be_read_and_never_again_in_an_older_version(jobs: Jobs) -> None:
    jobs.absorb(reporting.raw_job("a", pod=BROKEN, metadata={"resourceVersion": "10"}))
    jobs.absorb(reporting.raw_job("a", metadata={"resourceVersion": "9"}))
    assert jobs.get("a-uid") is None
    jobs.absorb(reporting.raw_job("a", metadata={"resourceVersion": "11"}))
    assert jobs.get("a-uid") is not None
    assert jobs.unreadable() == ()


def test_what_it_asked_for_before_goes_on_to_hold(jobs: Jobs) -> None:
    jobs.absorb(reporting.raw_job("a", spec={"suspend": True}))
    newer = {"resourceVersion": "2", "generation": 2}
    status = {"phase": "Suspended", "attempt": 3, "endedAttempt": 3}
    jobs.absorb(reporting.raw_job("a", pod=BROKEN, metadata=newer, status=status))
    known = jobs.get("a-uid")
    assert known is not None
    assert known.job.spec.suspend
    assert (known.version, known.record.phase, known.record.attempt) == ("2", Phase.SUSPENDED, 3)
    assert jobs.why_unreadable("a-uid") is not None


def test_one_that_is_gone_or_going_is_nobodys_news(jobs: Jobs) -> None:
    for name, version in (("going", 1), ("gone", 2), ("lost", 3), ("younger", 30)):
        metadata = {"resourceVersion": str(version)}
        if name == "going":
            metadata["deletionTimestamp"] = "2026-01-02T03:04:06Z"
        jobs.absorb(reporting.raw_job(name, pod=BROKEN, metadata=metadata))
    jobs.discard("gone-uid")
    jobs.discard_unlisted({"going-uid"}, version=20)
    assert [found.uid for found in jobs.unreadable()] == ["younger-uid"]
