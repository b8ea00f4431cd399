"""What ranks recorded reaches the job's status and its next attempt, whole or not at all."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest

from fixtures import observing, reporting
from fixtures.jobs import layout
from fixtures.shell import DEADLINE_S
from railwright import profile, protocol, strides
from railwright.profile import Calls, Handover, Operation, Recorded
from railwright_operator.heartbeats.recording import Recording
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.watch.jobs import Jobs
from railwright_operator.watch.owned import ProfileRecord
from railwright_process.messages import RefusedError
from railwright_scheduler.model.workload import Workload
from railwright_scheduler.pre_run import RANKS_MAX

JOB = "job-uid"
MODEL = {"layers": 2, "hidden": 64, "heads": 4, "feedForward": 256, "vocabulary": 100}


def part(rank: int, *, ranks: int = 4, size: int = 64) -> Recorded:
    calls = Calls(strides.folded(range(ranks)), Operation.ALL_REDUCE, "float32", 2, size)
    return Recorded(rank, ranks, steps=2, step_s=0.5, compute_s=None, calls=(calls,))


def recorded(ranks: int = 4) -> str:
    return profile.encoded(
        profile.merged(part(rank, ranks=ranks) for rank in range(ranks))
    ).decode()


@pytest.fixture
def wakes() -> list[None]:
    return []


@pytest.fixture
def sessions(wakes: list[None]) -> Sessions:
    """Two nodes of two ranks each are expected."""
    found = Sessions(clock=lambda: 0.0, wake=lambda: wakes.append(None))
    found.expect(JOB, 1, nodes=("n0", "n1"), layout=layout(2, 2), resume={})
    return found


async def handed_over(sessions: Sessions, node_rank: int, part: Recorded) -> str:
    """The job's profile after the recording of a rank of this node."""
    handover = Handover(protocol.Member(JOB, 1, node_rank), part)
    answer = await sessions.profiled(handover, f"pod-{node_rank}")
    assert answer.order is protocol.Order.CONTINUE
    view = sessions.attempt(JOB, 1)
    assert view is not None
    return view.profile


async def test_all_parts_are_a_profile_and_fewer_are_none(
    sessions: Sessions, wakes: list[None]
) -> None:
    # Told twice makes no difference: an answer may have been lost.
    for rank in (3, 0, 0, 2):
        assert await handed_over(sessions, rank // 2, part(rank)) == ""
    assert not wakes
    assert await handed_over(sessions, 0, part(1)) == recorded()
    for rank in range(4):
        assert await handed_over(sessions, rank // 2, part(rank, size=128)) == recorded()
    assert len(wakes) == 1


async def test_parts_that_do_not_go_together_are_no_profile(sessions: Sessions) -> None:
    other = Recorded(3, 4, steps=9, step_s=0.5, compute_s=None, calls=())
    for rank in range(3):
        await handed_over(sessions, rank // 2, part(rank))
    assert await handed_over(sessions, 1, other) == ""
    with pytest.raises(RefusedError, match="the parts of the profile do not match: "):
        await handed_over(sessions, 0, part(0))


@pytest.mark.parametrize(
    ("reported", "words"),
    [
        (part(2), "part.rank is 2, expected 0 to 1"),
        (part(0, ranks=8), "a part is of 8 ranks, expected 4 ranks"),
    ],
)
async def test_recording_of_another_launchers_rank_is_refused(
    sessions: Sessions, reported: Recorded, words: str
) -> None:
    with pytest.raises(RefusedError, match=words) as refused:
        await handed_over(sessions, 0, reported)
    assert refused.value.status == HTTPStatus.BAD_REQUEST


async def test_recording_of_an_ended_attempt_is_refused(sessions: Sessions) -> None:
    sessions.revoke(JOB, 1)
    with pytest.raises(RefusedError) as refused:
        await handed_over(sessions, 0, part(0))
    assert refused.value.status == HTTPStatus.CONFLICT


async def test_merging_leaves_the_event_loop_to_others(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts of 256 ranks take up to a second; meanwhile a repeated part changes nothing."""
    goes_on, merged = threading.Event(), profile.merged

    def slow(parts: list[Recorded]) -> profile.Profile:
        assert goes_on.wait(DEADLINE_S)
        return merged(parts)

    monkeypatch.setattr(profile, "merged", slow)
    for rank in range(3):
        await handed_over(sessions, rank // 2, part(rank))
    last = asyncio.create_task(handed_over(sessions, 1, part(3)))
    await asyncio.sleep(0)
    assert await handed_over(sessions, 0, part(0, size=128)) == ""
    goes_on.set()
    assert await last == recorded()


async def test_large_jobs_are_not_put_together_here() -> None:
    with pytest.raises(RefusedError, match=f"a job of {RANKS_MAX} at most"):
        await Recording().take(part(0, ranks=RANKS_MAX + 1), ranks=RANKS_MAX + 1)


def job(*, data: int = 4, own: str = "", generation: int = 1) -> dict[str, Any]:
    """A job of so many replicas; ``own`` is its user's profile."""
    workload: dict[str, Any] = {
        "transformer": MODEL,
        "parallelism": {"data": data},
        "training": {"sequence": 64, "globalBatch": data},
    }
    if own:
        workload["profile"] = own
    spec = {"workload": workload}
    metadata = {"generation": generation, "resourceVersion": str(generation)}
    return reporting.raw_job("a", replicas=data, spec=spec, metadata=metadata)


def workload(jobs: Jobs) -> Workload:
    cached = jobs.get("a-uid")
    assert cached is not None, jobs.why_unreadable("a-uid")
    assert cached.workload is not None
    return cached.workload


def test_next_attempt_is_mapped_by_earlier_recording() -> None:
    """The recorded profile is part of the workload of the next attempt."""
    jobs = observing.jobs_cache()
    jobs.absorb(job())
    assert workload(jobs).profile is None
    jobs.profile_changed(None, reporting.profile_of("a", recorded()))
    found = workload(jobs).profile
    assert found is not None
    assert found.ranks == 4
    # The user's own comes first; of another shape it is recorded again.
    jobs.absorb(job(own=recorded(2), generation=2))
    found = workload(jobs).profile
    assert found is not None
    assert found.ranks == 2
    jobs.absorb(job(data=2, generation=3))
    assert workload(jobs).profile is None


@pytest.mark.parametrize(
    "stored",
    [
        reporting.profile_of("a", json.dumps({"ranks": 4})),
        reporting.profile_of("a", recorded(), uid="of a deleted job"),
        replace(reporting.profile_of("a", recorded()), namespace="others"),
    ],
    ids=["malformed", "of a deleted job", "of another namespace"],
)
def test_profile_of_another_job_changes_nothing(stored: ProfileRecord) -> None:
    jobs = observing.jobs_cache()
    jobs.absorb(job())
    jobs.profile_changed(None, stored)
    assert workload(jobs).profile is None


def test_profile_listed_before_its_job_counts() -> None:
    """A new leader lists both kinds at the same time."""
    jobs = observing.jobs_cache()
    stored = reporting.profile_of("a", recorded())
    jobs.profile_changed(None, stored)
    jobs.absorb(job())
    assert workload(jobs).profile is not None
    jobs.profile_changed(stored, None)
    assert workload(jobs).profile is None
