"""The reporter stores what ranks recorded in the Profile of their job."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fixtures import attempts, profiled_jobs, reporting
from fixtures.jobs import layout
from fixtures.reporting import Desk
from railwright_api import routes
from railwright_api.workload import Parallelism
from railwright_operator.heartbeats.views import SessionView
from railwright_operator.report import profile_writes
from railwright_operator.watch import owned
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord

PATH = routes.one("profiles", "job", namespace="team")
RECORD = JobRecord(phase=Phase.STARTING, attempt=1, nodes=attempts.NODES)
UNSPLIT = Parallelism().model_dump(by_alias=True, exclude_none=True)
STATUS = {"phase": "Running", "attempt": 1, "nodes": ["n0", "n1"]}


def session(profile: str) -> SessionView:
    return SessionView("job-uid", 1, layout(2), (), (), 1.0, revoked=False, profile=profile)


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Desk:
    """The ranks of its running job recorded a profile."""
    desk = Desk()
    desk.add(reporting.raw_job("job", status=STATUS))
    records(desk, monkeypatch, "first")
    return desk


def records(desk: Desk, monkeypatch: pytest.MonkeyPatch, profile: str) -> None:
    monkeypatch.setattr(desk.sessions, "attempt", lambda uid, number: session(profile))


def test_recorded_profile_is_new_until_it_is_stored() -> None:
    stored = reporting.profile_of("job", "{}")
    assert profile_writes.new_profile(RECORD, session("{}"), None) == "{}"
    assert (
        profile_writes.new_profile(RECORD, session("{}"), replace(stored, document="older")) == "{}"
    )
    assert profile_writes.new_profile(RECORD, session("{}"), stored) == ""
    assert profile_writes.new_profile(RECORD, session(""), stored) == ""
    assert profile_writes.new_profile(RECORD, None, None) == ""


def test_profile_of_an_ended_attempt_is_not_stored() -> None:
    """The next attempt may have another workload."""
    queued = replace(RECORD, phase=Phase.QUEUED, ended=1, nodes=())
    assert profile_writes.new_profile(queued, session("{}"), None) == ""


def test_pre_run_stores_a_profile_equal_to_an_older_one() -> None:
    """Only its attempt says that the pre-run recorded it."""
    second = replace(RECORD, phase=Phase.PROFILING, attempt=2, ended=1)
    assert (
        profile_writes.new_profile(second, session("{}"), reporting.profile_of("job", "{}")) == "{}"
    )


async def test_recorded_profile_is_stored_and_replaced(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        await desk.run_cycle()
    stored = desk.store.objects[PATH]
    assert stored["spec"] == {"jobUID": "job-uid", "attempt": 1, "document": "first"}
    assert stored["metadata"]["ownerReferences"][0]["uid"] == "job-uid"
    assert desk.store.count("create", "profiles") == 1
    records(desk, monkeypatch, "second")
    await desk.run_cycle()
    assert desk.store.objects[PATH]["spec"]["document"] == "second"


async def test_profile_of_a_deleted_job_is_not_overwritten(desk: Desk) -> None:
    """The garbage collector deletes it; then that of the new job is stored."""
    left = {"metadata": {"name": "job"}, "spec": {"jobUID": "older", "document": "left"}}
    desk.store.put(PATH, left)
    await desk.run_cycle()
    assert desk.store.objects[PATH]["spec"]["document"] == "left"
    # The status does not wait for it.
    job = routes.one("trainingjobs", "job", namespace="team")
    assert desk.store.objects[job]["status"]["observedGeneration"] == 1
    del desk.store.objects[PATH]
    desk.now_s += profile_writes.STORE_PAUSE_S.cap_s
    await desk.run_cycle()
    assert desk.store.objects[PATH]["spec"]["document"] == "first"


async def test_failing_profile_writes_delay_no_commit(desk: Desk) -> None:
    """Each commit is granted by the next cycle, and the writes of the profile back off."""
    desk.store.put(PATH, {"metadata": {"name": "job"}, "spec": {"jobUID": "other"}})
    for step in range(1, 241):
        grant = asyncio.create_task(desk.commits.ask("job-uid", "worker", 1, step))
        await asyncio.sleep(0)
        await desk.run_cycle()
        assert grant.done(), step
        desk.now_s += 0.5
    assert 5 <= desk.store.count("create", "profiles") <= 16


async def test_profile_write_in_flight_delays_no_status(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = asyncio.Event()

    async def create(path: str, body: dict[str, Any]) -> Any:
        await stored.wait()

    monkeypatch.setattr(desk.store, "create", create)
    await desk.run_cycle()
    await desk.run_cycle({"job-uid": attempts.RECOVERING})
    job = routes.one("trainingjobs", "job", namespace="team")
    assert desk.store.objects[job]["status"]["phase"] == "Recovering"


@pytest.mark.parametrize(("tensor", "is_used"), [(2, True), (4, False)])
async def test_profile_of_another_parallelism_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tensor: int, is_used: bool
) -> None:
    """The groups of an opaque job may lie along no axis, so only the Profile says of which
    parallelism they are."""

    def stated(degree: int, version: int) -> Any:
        workload = {"opaque": {}, "parallelism": {"tensor": degree}}
        metadata = {"generation": version}
        spec = {"workload": workload}
        return reporting.raw_job(
            "job", replicas=4, version=version, metadata=metadata, spec=spec, status=STATUS
        )

    desk = Desk()
    desk.add(stated(2, 1))
    records(desk, monkeypatch, profiled_jobs.recorded(4))
    await desk.run_cycle()
    stored = desk.store.objects[PATH]
    assert stored["spec"]["parallelism"] == {**UNSPLIT, "tensor": 2}
    desk.jobs.profile_changed(None, owned.profile(owned.answered(stored)))
    desk.jobs.absorb(stated(tensor, 1000))
    found = desk.jobs.get("job-uid")
    assert found is not None
    assert found.workload is not None
    assert (found.workload.profile is not None) is is_used
