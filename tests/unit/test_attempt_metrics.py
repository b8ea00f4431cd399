"""Prometheus series of attempts and cycles: how long jobs waited, started, and recovered."""

from __future__ import annotations

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
from railwright_operator.report import attempt_metrics, reporter
from railwright_operator.report.attempt_metrics import AttemptMetrics
from railwright_operator.report.cycle_metrics import CycleMetrics
from railwright_operator.report.fleet_metrics import FleetMetrics
from railwright_operator.report.status import StatusInput
from railwright_scheduler import NotEnoughNodes, QueueNotFound, Reason
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import Entry, Ledger
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.model.snapshot import Unavailable
from railwright_scheduler.plan import Plan

QUEUED = JobRecord()
STARTING = JobRecord(Phase.STARTING, attempt=1, nodes=attempts.NODES)
RUNNING = attempts.RUNNING
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
    metrics = AttemptMetrics(registry)
    metrics.record(before, given, submitted_s=MIDNIGHT_S, received_s=received_s)
    return registry


@pytest.mark.parametrize(
    ("conditions", "waited_s"),
    [
        ([], 90),
        ([condition("Scheduled", "False", 1)], 89),
        ([condition("Scheduled", "False", 60)], 30),
        ([condition("Scheduled", "False", 1), condition("Suspended", "False", 80)], 10),
        ([condition("Scheduled", "True", 80)], 90),
    ],
    ids=["no status yet", "first", "after an attempt", "resumed", "of another value"],
)
def test_wait_counts_since_job_is_queued(conditions: list[Any], waited_s: int) -> None:
    registry = recorded(QUEUED, STARTING, *conditions, now_s=90)
    assert scraping.value(registry, "railwright_queue_wait_seconds_sum") == waited_s
    assert scraping.value(registry, "railwright_queue_wait_seconds_count") == 1


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
    assert total == (30 if recoveries else None)


def view(*ranks: LauncherView) -> SessionView:
    return SessionView("a", 1, layout(2), ranks, (), started_at_s=1.0, revoked=True)


def still(lag_s: float) -> protocol.Steps:
    return protocol.Steps(9, 9, (0,), 0, 1, 0.0, lag_s, 0, 0.0, 0.0, protocol.Phase.TRAINING, False)


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
                LauncherView(0, "n0", received_at_s=60, steps=still(2)),
                LauncherView(1, "n1", received_at_s=59, steps=still(50)),
            ),
            9,
        ),
    ],
)
def test_detection_counts_since_last_sign(
    code: CauseCode, ranks: tuple[LauncherView, ...], sign_s: float | None
) -> None:
    cause = Cause(code, "", nodes=("n1",))
    assert attempt_metrics.last_sign_s(view(*ranks), cause) == sign_s
    assert attempt_metrics.last_sign_s(None, cause) is None
    ended = replace(RUNNING, phase=Phase.RECOVERING, ended=1, last_termination=cause)
    registry = recorded(RUNNING, ended, now_s=9, session=view(*ranks), received_s=100.0)
    assert scraping.value(registry, "railwright_attempts_ended_total", cause=code) == 1
    seconds = scraping.value(registry, "railwright_detection_seconds_sum", cause=code)
    assert seconds == (None if sign_s is None else 100 - sign_s)


def plan(*entries: Entry, **waits: Reason) -> Plan:
    return Plan(Ledger(1, "i", "me", entries), (), {}, waits, {})


def test_decision_counts_when_it_changes() -> None:
    registry = CollectorRegistry()
    metrics = CycleMetrics(registry)
    short, missing = NotEnoughNodes(4, (), 9, 1, "", "", 0, ()), QueueNotFound("q", ())
    for waits in ({"a": short}, {"a": short, "b": missing}, {"a": missing}, {"b": missing}):
        metrics.record(plan(**waits), 0.0)
    metrics.record(plan(attempts.entry()), 1.0)
    metrics.record(plan(attempts.entry()), 2.0)
    found = {
        dict(labels)["outcome"]: value
        for (name, labels), value in scraping.scraped(registry).items()
        if name == "railwright_decisions_total"
    }
    assert found == {"NotEnoughNodes": 1, "QueueNotFound": 3, "Admitted": 1}


def test_bind_time_is_of_gangs_that_were_bound() -> None:
    """A gang that is rolled back leaves the ledger too."""
    registry = CollectorRegistry()
    metrics = CycleMetrics(registry)
    rolled_back = attempts.entry(cause=attempts.REFUSED, job_uid="b")
    metrics.record(plan(attempts.entry(), attempts.entry(job_uid="b")), 10.0)
    metrics.record(plan(attempts.entry(), rolled_back), 12.0)
    metrics.record(plan(), 14.5)
    assert scraping.value(registry, "railwright_gang_bind_seconds_count") == 1
    assert scraping.value(registry, "railwright_gang_bind_seconds_sum") == 4.5


def test_fleet_counts_nodes_and_devices_by_state() -> None:
    registry = CollectorRegistry()
    metrics = FleetMetrics(registry)
    metrics.record(
        (
            node("n0", used={GPU: 3}),
            node("n1"),
            replace(node("n2", used={GPU: 8}), unavailable=Unavailable.DOUBLE_BOOKED),
        )
    )
    found = {
        (name, *dict(labels).values()): value
        for (name, labels), value in scraping.scraped(registry).items()
        if value
    }
    assert found == {
        ("railwright_nodes", "Available"): 2,
        ("railwright_nodes", "DoubleBooked"): 1,
        ("railwright_devices", GPU): 24,
        ("railwright_devices_used", GPU): 11,
        ("railwright_devices_unavailable", GPU): 8,
    }


async def test_change_counts_once_its_status_is_written() -> None:
    """The reporter passes each job to its series, and each change that it wrote."""
    desk = Desk()
    path = desk.add(reporting.raw_job("job"))
    started = JobRecord(Phase.STARTING, attempt=1, nodes=attempts.NODES)
    desk.store.refusals["patch", f"{path}/status"] = errors.Unreachable("no route")
    await desk.run_cycle({"job-uid": started})
    assert scraping.value(desk.registry, "railwright_queue_wait_seconds_count") == 0
    desk.store.refusals.clear()
    desk.now_s += reporter.PAUSE_CAP_S
    await desk.run_cycle({"job-uid": started})
    await desk.run_cycle()
    assert scraping.value(desk.registry, "railwright_queue_wait_seconds_count") == 1
    labels = {"job_namespace": "team", "job_name": "job"}
    assert scraping.value(desk.registry, "railwright_job_attempt", **labels) == 1
    await desk.run_cycle(unobserved=frozenset({"job-uid"}))
    assert scraping.value(desk.registry, "railwright_job_attempt", **labels) == 1
    desk.jobs.discard("job-uid")
    await desk.run_cycle()
    assert scraping.value(desk.registry, "railwright_job_attempt", **labels) is None
