"""Status updates after a cycle: each job on its own, nothing twice, failures isolated."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fixtures import attempts, layout, reporting
from fixtures.reporting import Desk
from railwright import protocol
from railwright_conversion import bounds
from railwright_kube import errors
from railwright_kube.errors import RequestFailed
from railwright_operator.report import events, reporter
from railwright_scheduler.attempt.gang import DeletePod, WritePlacement
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.model.reasons import QueueNotFound, Reason
from railwright_scheduler.model.shortages import NotEnoughNodes

FINISHED = {"phase": "Succeeded", "attempt": 1, "endedAttempt": 1}
EXPIRED = FINISHED | {"finishedAt": "2026-01-02T03:04:05Z"}
RUNNING = {"phase": "Running", "attempt": 1, "nodes": ["n0", "n1"]}
BROKEN_POD = {"overhead": {"cpu": "abc"}}
FAULTS = [
    errors.ForbiddenError(403, "Forbidden", message="a webhook keeps it"),
    errors.OutcomeUnknown("500 InternalError: webhook down"),
    errors.Unreachable("no route"),
    errors.NotLeader("lost the lease"),
]


def expired(name: str = "old") -> dict[str, Any]:
    return reporting.raw_job(name, spec={"ttlSecondsAfterFinished": 0}, status=EXPIRED)


def short(free: int) -> NotEnoughNodes:
    return NotEnoughNodes(4, (), 9, free, "", "", 0, ())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
@pytest.mark.parametrize("verb", ["delete", "patch", "get"])
async def test_failed_status_of_one_job_delays_no_other(fault: RequestFailed, verb: str) -> None:
    desk = Desk()
    bad = desk.add(expired() if verb == "delete" else reporting.raw_job("old"))
    good = desk.add(reporting.raw_job("good"))
    where = f"{bad}/status" if verb == "patch" else bad
    desk.store.refusals[verb, where] = fault
    if verb == "get":
        conflict = errors.ConflictError(409, "Conflict", message="changed")
        desk.store.refusals["patch", f"{bad}/status"] = conflict
    await desk.run_cycle(waits=short(1))
    assert desk.store.objects[good]["status"]["reason"] == "NotEnoughNodes"


async def test_failure_of_one_status_does_not_affect_others() -> None:
    desk = Desk()
    bad = desk.add(reporting.raw_job("bad"))
    desk.seen.faulty = "bad-uid"
    good = desk.add(reporting.raw_job("good"))
    await desk.run_cycle(waits=short(1))
    assert "status" not in desk.store.objects[bad]
    assert desk.store.objects[good]["status"]["reason"] == "NotEnoughNodes"


async def test_failed_status_write_is_retried_with_backoff() -> None:
    desk = Desk()
    path = desk.add(reporting.raw_job("job"))
    desk.store.refusals["patch", f"{path}/status"] = FAULTS[1]
    for _ in range(600):
        await desk.run_cycle(waits=short(1))
        desk.now_s += 0.05
    assert 4 <= desk.store.count("patch") <= 20
    desk.store.refusals.clear()
    desk.now_s += reporter.PAUSE_S.cap_s
    await desk.run_cycle(waits=short(1))
    assert desk.store.objects[path]["status"]["reason"] == "NotEnoughNodes"


async def test_job_changed_in_this_cycle_is_left_to_the_next() -> None:
    desk = Desk()
    desk.add(reporting.raw_job("job"))
    newer = reporting.raw_job("job", version=500)
    await desk.run_cycle(waits=short(1), meanwhile=lambda: desk.jobs.absorb(newer))
    assert (desk.store.count("patch"), desk.woken) == (0, 1)


async def test_a_commit_of_a_job_that_is_gone_is_refused() -> None:
    desk = Desk()
    desk.add(reporting.raw_job("job", status=RUNNING))
    grant = asyncio.create_task(desk.commits.ask("job-uid", "worker", 1, 10))
    await asyncio.sleep(0)
    desk.jobs.discard("job-uid")
    await desk.run_cycle()
    with pytest.raises(errors.Unreachable, match="step 10 was not recorded"):
        await asyncio.wait_for(grant, 1)


async def test_commit_is_granted_once_its_step_is_stored() -> None:
    """Not before: the operator must still have it after a crash."""
    desk = Desk()
    path = desk.add(reporting.raw_job("job", status=RUNNING))
    desk.store.refusals["patch", f"{path}/status"] = FAULTS[1]
    grant = asyncio.create_task(desk.commits.ask("job-uid", "worker", 1, 10))
    await asyncio.sleep(0)
    await desk.run_cycle()
    assert not grant.done()
    desk.store.refusals.clear()
    desk.now_s += reporter.PAUSE_S.cap_s
    await desk.run_cycle()
    (point,) = desk.store.objects[path]["status"]["checkpoints"]
    assert point == {"group": "worker", "attempt": 1, "step": 10}
    assert grant.done()


async def test_commit_that_is_stored_is_granted_again() -> None:
    """To a launcher that the first answer did not reach; there is nothing to write."""
    desk = Desk()
    desk.add(reporting.raw_job("job", status=RUNNING))
    for _ in range(3):
        grant = asyncio.create_task(desk.commits.ask("job-uid", "worker", 1, 10))
        await asyncio.sleep(0)
        await desk.run_cycle()
        assert grant.done()
    assert desk.store.count("patch") == 1


async def test_commit_of_a_job_not_observed_waits() -> None:
    desk = Desk()
    desk.add(reporting.raw_job("job", status=RUNNING))
    grant = asyncio.create_task(desk.commits.ask("job-uid", "worker", 1, 10))
    await asyncio.sleep(0)
    await desk.run_cycle(unobserved=frozenset({"job-uid"}))
    assert not grant.done()
    await desk.run_cycle()
    assert grant.done()


async def test_job_replaced_under_its_name_is_gone() -> None:
    """A status write finds another job there."""
    desk = Desk()
    path = desk.add(reporting.raw_job("job"))
    other = reporting.raw_job("job", version=500)
    other["metadata"]["uid"] = "other-uid"
    desk.store.put(path, other)
    await desk.run_cycle(waits=short(1))
    assert [cached.uid for cached in desk.jobs.all()] == []


async def test_write_that_succeeds_ends_the_pauses() -> None:
    desk = Desk()
    path = desk.add(reporting.raw_job("job"))
    reasons: list[Reason] = [short(1), QueueNotFound("none", existing=())]
    for waits in reasons * 4:
        desk.store.refusals["patch", f"{path}/status"] = FAULTS[1]
        await desk.run_cycle(waits=waits)
        desk.store.refusals.clear()
        desk.now_s += reporter.PAUSE_S.base_s
        await desk.run_cycle(waits=waits)
    assert desk.store.count("patch") == 16


async def test_wait_with_moving_numbers_is_written_rarely() -> None:
    """Refreshes have a minimal interval, and there is one event."""
    desk = Desk()
    path = desk.add(reporting.raw_job("job"))
    for free in range(100):
        await desk.run_cycle(waits=short(free % 3))
        desk.now_s += 0.1
    assert 3 <= desk.store.count("patch", path) <= 5
    assert [reason for reason, _ in await desk.posted()] == ["NotEnoughNodes"]
    desk.now_s += events.REPEAT_S
    await desk.run_cycle(waits=short(9))
    reported = await desk.posted()
    assert [reason for reason, _ in reported] == ["NotEnoughNodes"] * 2
    assert "9/9 nodes available" in reported[1][1]


async def test_many_waiting_jobs_are_refreshed_less_often() -> None:
    desk = Desk()
    many = 10 * reporter.REFRESHES_PER_S_MAX
    reported = [desk.add(reporting.raw_job(f"job-{number:03}")) for number in range(many)]
    writes = []
    for free in range(60):
        before = sum(desk.store.count("patch", path) for path in reported)
        await desk.run_cycle(waits=short(free % 3))
        writes.append(sum(desk.store.count("patch", path) for path in reported) - before)
        desk.now_s += 0.5
    # In 30 s: at first, and from then on every 10 s to 20 s, evenly.
    assert {desk.store.count("patch", path) for path in reported} == {3}
    assert writes[0] == many
    burst = reporter.REFRESH_BURST_S * reporter.REFRESHES_PER_S_MAX
    assert max(writes[1:]) <= burst + 1


@pytest.mark.parametrize("cycle_s", [0.5, 2.5, 5.0])
async def test_every_job_is_refreshed_even_with_long_cycles(cycle_s: float) -> None:
    desk = Desk()
    many = 6 * reporter.REFRESHES_PER_S_MAX
    reported = [desk.add(reporting.raw_job(f"job-{number:03}")) for number in range(many)]
    for free in range(int(60 / cycle_s)):
        await desk.run_cycle(waits=short(free % 3))
        desk.now_s += cycle_s
    assert min(desk.store.count("patch", path) for path in reported) >= 3


async def test_deletions_delay_no_newer_numbers() -> None:
    desk = Desk()
    path = desk.add(reporting.raw_job("job"))
    entry = attempts.entry()
    for free in range(8):
        await desk.run_cycle(
            waits=short(free % 3), actions=(DeletePod(entry, attempts.pods("n0")[0]),)
        )
        desk.now_s += 0.5
    assert desk.store.count("patch", path) == 2


async def test_newer_numbers_wait_while_gangs_are_bound() -> None:
    desk = Desk()
    path = desk.add(reporting.raw_job("job"))
    binding = (WritePlacement(attempts.entry()),)
    for free in range(29):
        await desk.run_cycle(waits=short(free % 3), actions=binding)
        desk.now_s += 0.5
    assert desk.store.count("patch", path) == 1
    await desk.run_cycle(waits=QueueNotFound("team", ()), actions=binding)
    assert desk.store.count("patch", path) == 2
    for free in range(8):
        desk.now_s += 0.5
        await desk.run_cycle(waits=short(free % 3))
    assert desk.store.count("patch", path) == 4


async def test_new_leader_does_not_rewrite_all_statuses_at_once() -> None:
    """Their first refreshes are spread over time."""
    before, after = Desk(), Desk()
    names = [f"job-{number:03}" for number in range(10 * reporter.REFRESHES_PER_S_MAX)]
    reported = [before.add(reporting.raw_job(name)) for name in names]
    await before.run_cycle(waits=short(1))
    for name, path in zip(names, reported, strict=True):
        after.add(reporting.raw_job(name, status=before.store.objects[path]["status"]))
    await after.run_cycle(waits=short(2))
    assert sum(after.store.count("patch", path) for path in reported) == 0
    for _ in range(11):
        after.now_s += 1.0
        await after.run_cycle(waits=short(2))
        counts = [after.store.count("patch", path) for path in reported]
        assert sum(counts) <= 20 * (after.now_s - before.now_s)
    assert set(counts) == {1}


async def test_new_wait_reason_is_published() -> None:
    desk = Desk()
    desk.add(reporting.raw_job("job"))
    await desk.run_cycle(waits=short(1))
    desk.now_s += reporter.REFRESH_S
    await desk.run_cycle(waits=QueueNotFound("team", ()))
    assert [reason for reason, _ in await desk.posted()] == ["NotEnoughNodes", "QueueNotFound"]


async def test_a_change_of_phase_is_written_at_once() -> None:
    desk = Desk()
    path = desk.add(reporting.raw_job("job"))
    await desk.run_cycle(waits=short(1))
    begun = JobRecord(phase=Phase.STARTING, attempt=1, nodes=("n0", "n1"))
    await desk.run_cycle({"job-uid": begun})
    assert desk.store.objects[path]["status"]["phase"] == "Starting"


@pytest.mark.parametrize(
    "record",
    [
        JobRecord(phase=Phase.STARTING, attempt=1, nodes=("n0", "n1")),
        JobRecord(phase=Phase.SUSPENDED),
    ],
    ids=lambda record: record.phase,
)
async def test_record_is_written_before_many_waits(record: JobRecord) -> None:
    desk = Desk()
    for number in range(10 * reporter.WAITING_WRITES_MAX):
        desk.add(reporting.raw_job(f"waits-{number}"))
    path = desk.add(reporting.raw_job("begins"))
    await desk.run_cycle({"begins-uid": record}, waits=short(1))
    written = [where for verb, where in desk.store.requests if verb == "patch"]
    assert written.index(f"{path}/status") <= reporter.WAITING_WRITES_MAX


async def test_unreadable_job_is_reported_once_and_others_go_on() -> None:
    """Its status has the reason Unreadable."""
    desk = Desk()
    bad = desk.add(reporting.raw_job("bad", pod=BROKEN_POD))
    good = desk.add(reporting.raw_job("good"))
    for _ in range(5):
        await desk.run_cycle(waits=short(1))
        desk.now_s += 10.0
    found = desk.store.objects[bad]["status"]
    assert (found["phase"], found["reason"]) == ("Queued", "Unreadable")
    assert found["message"] == (
        "the job cannot be read: 'abc' is not a quantity of 0 or more: CPU, such as 8 or 500m"
    )
    assert desk.store.count("patch", bad) == 1
    assert desk.store.objects[good]["status"]["reason"] == "NotEnoughNodes"
    assert ("Unreadable", found["message"]) in await desk.posted()


async def test_unreadable_new_version_keeps_attempt_and_reason() -> None:
    """The attempt goes on with the last readable spec."""
    desk = Desk()
    path = desk.add(reporting.raw_job("job", status=RUNNING))
    await desk.run_cycle()
    version = {"generation": 2, "resourceVersion": "500"}
    status = desk.store.objects[path]["status"]
    worse = reporting.raw_job("job", pod=BROKEN_POD, metadata=version, status=status)
    desk.add(worse)
    await desk.run_cycle()
    cached = desk.jobs.get("job-uid")
    assert cached is not None
    assert (cached.record.phase, cached.record.attempt) == (Phase.RUNNING, 1)
    found = desk.store.objects[path]["status"]
    assert (found["phase"], found["reason"]) == ("Running", "Unreadable")
    mended = {"generation": 3, "resourceVersion": "600"}
    desk.add(reporting.raw_job("job", metadata=mended, status=found))
    await desk.run_cycle()
    assert desk.store.objects[path]["status"]["reason"] == "Running"


async def test_skipped_checkpoint_is_posted_once_and_stays() -> None:
    """The condition Checkpointed keeps the message."""
    desk = Desk()
    path = desk.add(reporting.raw_job("job", status=RUNNING))
    desk.sessions.expect("job-uid", 1, nodes=("n0", "n1"), layout=layout(2), resume={})
    member = protocol.Member("job-uid", 1, 0)
    named = "attempt-0/worker/step-90"
    heartbeat = protocol.Heartbeat(member, 1, running=1, exited=0, skipped=(named,))
    desk.sessions.heartbeat(heartbeat, "pod")
    words = f"attempt 1 skipped as torn or corrupt: {named}"
    for _ in range(3):
        await desk.run_cycle()
        desk.now_s += events.REPEAT_S
    desk.sessions.forget("job-uid")
    await desk.run_cycle()
    conditions = desk.store.objects[path]["status"]["conditions"]
    message = next(each["message"] for each in conditions if each["type"] == "Checkpointed")
    assert message == f"no checkpoint was committed yet; {words}"
    posted = [event for event in await desk.posted() if event[0] == "CheckpointSkipped"]
    assert posted == [("CheckpointSkipped", words)]


async def test_a_note_is_cut_at_the_bytes_an_event_takes() -> None:
    desk = Desk()
    job = {"uid": "u", "namespace": "team", "name": "job"}
    desk.events.add(events.JobEvent(job, "RankFailed", "step " + "█" * 600))
    ((_, note),) = await desk.posted()
    assert note == "step " + "█" * 339
    assert len(note.encode()) <= bounds.SENTENCE_BYTES_MAX


async def test_wait_of_a_later_attempt_is_published_again() -> None:
    desk = Desk()
    desk.add(reporting.raw_job("job"))
    await desk.run_cycle(waits=short(1))
    cached = desk.jobs.get("job-uid")
    assert cached is not None
    later = replace(cached.record, attempt=1, ended=1)
    await desk.run_cycle({"job-uid": later}, waits=short(2))
    desk.now_s += reporter.REFRESH_S
    await desk.run_cycle(waits=short(3))
    notes = [note for reason, note in await desk.posted() if reason == "NotEnoughNodes"]
    assert [note[note.index(";") :][:5] for note in notes] == ["; 1/9", "; 2/9"]


async def test_foreign_end_is_reverted_while_ledger_differs() -> None:
    """Another user wrote a final phase into the status."""
    desk = Desk()
    forged = {"phase": "Failed", "attempt": 1, "endedAttempt": 1}
    path = desk.add(reporting.raw_job("a", status=forged))
    starting = JobRecord(phase=Phase.STARTING, attempt=1, nodes=("n0", "n1"))
    await desk.run_cycle({"a-uid": starting})
    status = desk.store.objects[path]["status"]
    assert (status["phase"], status["attempt"], status.get("endedAttempt")) == ("Starting", 1, 0)
