"""Prometheus series of attempts and cycles: how long jobs waited, started, and recovered."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fixtures import attempts, reporting, scraping
from fixtures.jobs import GPU, layout, node
from fixtures.reporting import Desk
from railwright import protocol
from railwright_kube import errors
from railwright_operator.heartbeats.views import LauncherView, SessionView
from railwright_operator.report import attempt_metrics, fleet_metrics, reporter
from railwright_operator.report.attempt_metrics import AttemptMetrics
from railwright_operator.report.cycle_metrics import CycleMetrics
from railwright_operator.report.fleet_metrics import FleetMetrics
from railwright_operator.report.job_metrics import JobMetrics
from railwright_operator.report.status import StatusInput
from railwright_operator.watch.owned import PlacementRecord
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import Entry, Ledger
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord, ending
from railwright_scheduler.cluster_state import ObservedAttempt
from railwright_scheduler.live_invariants import DoubleBooking
from railwright_scheduler.model import reasons
from railwright_scheduler.model.reasons import QueueNotFound, Reason
from railwright_scheduler.model.shortages import NotEnoughNodes
from railwright_scheduler.model.snapshot import Role, Unavailable
from railwright_scheduler.plan import Plan

QUEUED = JobRecord()
STARTING = JobRecord(Phase.STARTING, attempt=1, nodes=attempts.NODES)
RUNNING = attempts.RUNNING
CLOCKS = {"clock": float, "reception_clock": float, "wall_clock": float}
MIDNIGHT_S = 1_767_225_600
"""2026-01-01T00:00:00Z"""


def at(seconds: int) -> str:
    return f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}Z"


def condition(kind: str, value: str, since_s: int) -> dict[str, str]:
    return {"type": kind, "status": value, "lastTransitionTime": at(since_s)}


def recorded(
    before: JobRecord,
    after: JobRecord,
    *conditions: dict[str, str],
    now_s: int,
    session: SessionView | None = None,
    received_s: float = 0.0,
) -> CollectorRegistry:
    """The series after one change of a job that was created at midnight."""
    registry = CollectorRegistry()
    given = StatusInput(after, {"conditions": conditions}, 1, at(now_s), "", session=session)
    metrics, of_jobs = AttemptMetrics(registry), JobMetrics(registry, **CLOCKS)
    job = {"uid": "a", "namespace": "team", "name": "a"}
    of_jobs.record(job, given, None, submitted_s=MIDNIGHT_S)
    took_s = metrics.record(before, given, submitted_s=MIDNIGHT_S, received_s=received_s)
    cause = ending(before, after)
    of_jobs.record_restart("a", cause, took_s)
    of_jobs.record_restart("of a job that was deleted meanwhile", cause, took_s)
    return registry


def last_s(registry: CollectorRegistry, what: str) -> float | None:
    """How long the last detection or recovery of the job took."""
    name = f"railwright_job_last_{what}_seconds"
    return scraping.value(registry, name, job_namespace="team", job_name="a")


@pytest.mark.parametrize(
    ("conditions", "waited_s"),
    [
        ([], 90),
        ([condition("Scheduled", "False", 1)], 89),
        ([condition("Scheduled", "False", 60)], 30),
        ([condition("Scheduled", "False", 1), condition("Suspended", "False", 80)], 10),
        ([condition("Scheduled", "False", 1), condition("Healthy", "True", 70)], 20),
        ([condition("Scheduled", "True", 80)], 90),
    ],
    ids=["no status", "first", "after an attempt", "resumed", "recovering before", "other value"],
)
def test_wait_counts_since_job_is_queued(conditions: list[Any], waited_s: int) -> None:
    registry = recorded(QUEUED, STARTING, *conditions, now_s=90)
    assert scraping.value(registry, "railwright_queue_wait_seconds_sum") == waited_s
    assert scraping.value(registry, "railwright_queue_wait_seconds_count") == 1


def test_job_that_gets_no_nodes_does_not_count_as_wait() -> None:
    """A queued job can fail at its deadline. One that is resumed may get nodes at once."""
    failed = JobRecord(Phase.FAILED, attempt=1, ended=1)
    registry = recorded(QUEUED, failed, now_s=90)
    assert scraping.value(registry, "railwright_queue_wait_seconds_count") == 0
    suspended = JobRecord(Phase.SUSPENDED)
    registry = recorded(suspended, STARTING, condition("Scheduled", "False", 1), now_s=90)
    assert scraping.value(registry, "railwright_queue_wait_seconds_count") == 1
    assert scraping.value(registry, "railwright_queue_wait_seconds_sum") == 0


def test_recovering_job_does_not_wait_in_queue() -> None:
    registry = recorded(attempts.RECOVERING, replace(STARTING, attempt=2, ended=1), now_s=90)
    assert scraping.value(registry, "railwright_queue_wait_seconds_count") == 0


@pytest.mark.parametrize(
    ("cause", "recoveries"),
    [(attempts.LOST, 1), (attempts.SUSPENDED, None), (Cause(CauseCode.PROFILED, ""), None)],
    ids=lambda value: value.code if isinstance(value, Cause) else None,
)
def test_start_and_recovery_are_measured(cause: Cause, recoveries: int | None) -> None:
    """A job that its user suspended, or whose pre-run ended, does not recover."""
    ended = replace(cause, time_s=MIDNIGHT_S + 20)
    before = replace(STARTING, attempt=2, ended=1, last_termination=ended)
    after = replace(before, phase=Phase.RUNNING)
    registry = recorded(before, after, condition("Scheduled", "True", 30), now_s=50)
    assert scraping.value(registry, "railwright_start_seconds_sum") == 20
    count = scraping.value(registry, "railwright_recovery_seconds_count", cause=cause.code)
    assert count == recoveries
    total = scraping.value(registry, "railwright_recovery_seconds_sum", cause=cause.code)
    assert total == last_s(registry, "recovery") == (30 if recoveries else None)


def test_job_that_was_suspended_meanwhile_does_not_recover() -> None:
    ended = replace(attempts.LOST, time_s=MIDNIGHT_S + 20)
    before = replace(STARTING, attempt=2, ended=1, last_termination=ended)
    after = replace(before, phase=Phase.RUNNING)
    for resumed_s, count in ((10, 1), (40, 0)):
        registry = recorded(before, after, condition("Suspended", "False", resumed_s), now_s=50)
        found = scraping.value(registry, "railwright_recovery_seconds_count", cause="NodeLost")
        assert found == count


def view(*ranks: LauncherView) -> SessionView:
    return SessionView("a", 1, layout(2), ranks, (), started_at_s=1.0, revoked=True)


def still(lag_s: float, *, still_s: float = 0.0) -> protocol.Steps:
    training = protocol.Phase.TRAINING
    return protocol.Steps(9, 9, (0,), 0, 1, still_s, lag_s, 0, 0.0, 0.0, training, False)


@pytest.mark.parametrize(
    ("code", "ranks", "sign_s"),
    [
        (
            CauseCode.NODE_LOST,
            (LauncherView(0, "n0", received_at_s=3), LauncherView(1, "n1", received_at_s=8)),
            8,
        ),
        (
            CauseCode.NODE_LOST,
            (LauncherView(0, "n0", received_at_s=3), LauncherView(1, "n1")),
            None,
        ),
        (CauseCode.RANK_FAILED, (LauncherView(0, "n0", failed_at_s=5), LauncherView(1, "n1")), 5),
        (CauseCode.POD_DELETED, (LauncherView(0, "n0", received_at_s=3),), None),
        (
            CauseCode.HUNG,
            (
                LauncherView(0, "n0", running=1, received_at_s=60, steps=still(2)),
                LauncherView(1, "n1", running=1, received_at_s=59, steps=still(50)),
            ),
            9,
        ),
        (
            CauseCode.HUNG,
            (
                LauncherView(0, "n0", running=1, received_at_s=60, steps=still(0, still_s=45)),
                LauncherView(1, "n1", exited=1, received_at_s=59, steps=still(50)),
            ),
            15,
        ),
    ],
)
def test_detection_counts_since_last_sign(
    code: CauseCode, ranks: tuple[LauncherView, ...], sign_s: float | None
) -> None:
    cause = Cause(code, "", nodes=("n1",), time_s=MIDNIGHT_S + 7)
    assert attempt_metrics.last_sign_s(view(*ranks), cause) == sign_s
    assert attempt_metrics.last_sign_s(None, cause) is None
    ended = replace(RUNNING, phase=Phase.RECOVERING, ended=1, last_termination=cause)
    registry = recorded(RUNNING, ended, now_s=9, session=view(*ranks), received_s=100.0)
    assert scraping.value(registry, "railwright_attempts_ended_total", cause=code) == 1
    seconds = scraping.value(registry, "railwright_detection_seconds_sum", cause=code)
    assert seconds == (0 if sign_s is None else 98 - sign_s), "2 s passed since the end"
    assert last_s(registry, "detection") == (None if sign_s is None else 98 - sign_s)


def plan(*entries: Entry, records: dict[str, JobRecord] | None = None, **waits: Reason) -> Plan:
    return Plan(Ledger(1, "i", "me", entries), (), records or {}, waits, {})


def test_decision_counts_when_it_changes() -> None:
    """Those that a new leader finds were made before."""
    registry = CollectorRegistry()
    metrics = CycleMetrics(registry)
    short, missing = NotEnoughNodes(4, (), 9, 1, "", "", 0, ()), QueueNotFound("q", ())
    metrics.record(plan(attempts.entry(job_uid="c"), a=short), 0.0)
    for waits in ({"a": short}, {"a": short, "b": missing}, {"a": missing}, {"b": missing}):
        metrics.record(plan(attempts.entry(job_uid="c"), **waits), 0.0)
    metrics.record(plan(attempts.entry()), 1.0)
    metrics.record(plan(attempts.entry()), 2.0)
    found = {
        dict(labels)["outcome"]: value
        for (name, labels), value in scraping.scraped(registry).items()
        if name == "railwright_decisions_total"
    }
    assert found == dict.fromkeys(reasons.CODES, 0) | {"QueueNotFound": 3, "Admitted": 1}


@pytest.mark.parametrize(
    ("record", "bound"),
    [
        (JobRecord(Phase.STARTING, attempt=1), 1),
        (JobRecord(Phase.SUCCEEDED, attempt=1, ended=1), 1),
        (JobRecord(Phase.RECOVERING, attempt=1, ended=1), 0),
        (None, 0),
    ],
    ids=["starting", "succeeded at once", "rolled back", "deleted"],
)
def test_bind_time_is_of_gangs_that_were_bound(record: JobRecord | None, bound: int) -> None:
    """A gang that is rolled back leaves the ledger too, that of a deleted job in one cycle."""
    registry = CollectorRegistry()
    metrics = CycleMetrics(registry)
    metrics.record(plan(), 9.0)
    metrics.record(plan(attempts.entry()), 10.0)
    metrics.record(plan(attempts.entry()), 12.0)
    metrics.record(plan(records={} if record is None else {"a": record}), 14.5)
    assert scraping.value(registry, "railwright_gang_bind_seconds_count") == bound
    assert scraping.value(registry, "railwright_gang_bind_seconds_sum") == 4.5 * bound


def test_new_leader_does_not_measure_bindings_that_it_finds() -> None:
    registry = CollectorRegistry()
    metrics = CycleMetrics(registry)
    metrics.record(plan(attempts.entry()), 10.0)
    metrics.record(plan(records={"a": JobRecord(Phase.STARTING, attempt=1)}), 14.5)
    assert scraping.value(registry, "railwright_gang_bind_seconds_count") == 0


def test_fleet_counts_nodes_and_devices_by_state() -> None:
    """With what the plan assumes, and the nodes that it found lost or double-booked."""
    registry = CollectorRegistry()
    metrics = FleetMetrics(registry)
    assert scraping.scraped(registry) == {}
    nodes = (
        *(node(name) for name in ("n0", "n1", "n2")),
        node("n3", unavailable=Unavailable.CORDONED),
        node("n4", used={GPU: 3}),
        node("n5", used={GPU: 3}),
    )
    lost = attempts.entry(cause=attempts.LOST)
    placed = attempts.entry(job_uid="b", nodes=("n2", "n4"))
    left = ObservedAttempt(attempts.pods(". n1"))
    state = replace(attempts.world_of(nodes=nodes), attempts={lost.key: left})
    booking = DoubleBooking("n0", GPU, 9, 8, ())
    metrics.record(state, replace(plan(lost, placed), double_bookings=(booking,)))
    found = {
        (name.removeprefix("railwright_"), *sorted(dict(labels).values())): value
        for (name, labels), value in scraping.scraped(registry).items()
        if value
    }
    assert found == {
        ("nodes", "Available"): 3,
        ("nodes", "DoubleBooked"): 1,
        ("nodes", "Lost"): 1,
        ("nodes", "Cordoned"): 1,
        ("node_unavailable", "DoubleBooked", "n0"): 1,
        ("node_unavailable", "Lost", "n1"): 1,
        ("node_unavailable", "Cordoned", "n3"): 1,
        ("devices", GPU): 48,
        ("devices_used", GPU): 3 + 3 + 8 + 8,
        ("devices_unavailable", GPU): 24,
        ("devices_free", GPU): 5,
    }


def test_devices_that_waiting_jobs_request_are_counted() -> None:
    """Exactly, of all roles; a running job requests none. Nodes' own kinds are there at 0, and of
    the kinds that users invent so many as are requested most."""
    registry, count = CollectorRegistry(), 2**60 + 1
    metrics, most = FleetMetrics(registry), fleet_metrics.RESOURCES_MAX
    invented = {f"example.com/kind{kind}": kind for kind in range(1, 3 * most)}
    roles = (Role(3, {GPU: 8, "cpu": 4}), Role(2, {GPU: 1, "example.com/b": count}, name="b"))
    jobs = [attempts.seen(name=name) for name in "abc"]
    jobs[0] = replace(jobs[0], job=replace(jobs[0].job, roles=roles))
    jobs[1] = replace(jobs[1], job=replace(jobs[1].job, roles=(Role(1, invented),)))
    nodes = (node("n0"), replace(node("n1"), allocatable={"example.com/idle": 4}))
    missing = QueueNotFound("q", ())
    metrics.record(attempts.world_of(*jobs, nodes=nodes), plan(a=missing, b=missing))
    name = "railwright_devices_waiting_for"
    assert scraping.value(registry, name, resource=GPU) == 3 * 8 + 2
    assert scraping.value(registry, name, resource="example.com/b") == float(2 * count)
    assert scraping.value(registry, name, resource="example.com/idle") == 0
    found = [
        dict(labels)["resource"] for each, labels in scraping.scraped(registry) if each == name
    ]
    assert len(found) == most + 2
    assert f"example.com/kind{3 * most - 1}" in found


async def test_recovery_of_job_is_in_its_series() -> None:
    """The reporter passes what the recovery took once the status is written. The end is in the
    future, as the job is not suspended only since its first status."""
    desk = Desk()
    desk.add(reporting.raw_job("job"))
    ended = replace(attempts.LOST, time_s=int(time.time()) + 600)
    starts = replace(STARTING, attempt=2, ended=1, restarts=1, last_termination=ended)
    for phase in (Phase.STARTING, Phase.RUNNING):
        await desk.run_cycle({"job-uid": replace(starts, phase=phase)})
        await desk.run_cycle()
    name = "railwright_job_last_recovery_seconds"
    assert scraping.value(desk.registry, name, job_namespace="team", job_name="job") == 0


async def test_change_counts_once_its_status_is_written() -> None:
    """The reporter passes each job to its series, and each change that it wrote."""
    desk = Desk()
    path = desk.add(reporting.raw_job("job"))
    started = JobRecord(Phase.STARTING, attempt=1, nodes=attempts.NODES)
    desk.store.refusals["patch", f"{path}/status"] = errors.Unreachable("no route")
    await desk.run_cycle({"job-uid": started})
    assert scraping.value(desk.registry, "railwright_queue_wait_seconds_count") == 0
    desk.store.refusals.clear()
    desk.now_s += reporter.PAUSE_S.cap_s
    await desk.run_cycle({"job-uid": started})
    placement = PlacementRecord("p", "team", "job-1", 1, "job-uid", attempts.NODES, "", 0.25)
    desk.jobs.placement_changed(None, placement)
    await desk.run_cycle()
    assert scraping.value(desk.registry, "railwright_queue_wait_seconds_count") == 1
    labels = {"job_namespace": "team", "job_name": "job"}
    assert scraping.value(desk.registry, "railwright_job_attempt", **labels) == 1
    predicted = "railwright_job_predicted_step_seconds"
    assert scraping.value(desk.registry, predicted, **labels) == 0.25
    waited_s = scraping.value(desk.registry, "railwright_queue_wait_seconds_sum")
    assert waited_s == pytest.approx(time.time() - MIDNIGHT_S - 97_445, abs=60), "its creation"
    await desk.run_cycle(unobserved=frozenset({"job-uid"}))
    assert scraping.value(desk.registry, "railwright_job_attempt", **labels) == 1
    desk.jobs.discard("job-uid")
    await desk.run_cycle()
    assert scraping.value(desk.registry, "railwright_job_attempt", **labels) is None
