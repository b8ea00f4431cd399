"""Prometheus series of single jobs: their values, their end, and the bound of their number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fixtures import attempts, reporting, scraped_processes, scraping
from fixtures.jobs import layout
from fixtures.reporting import Desk
from railwright import protocol
from railwright_operator.heartbeats.views import LauncherView, SessionView
from railwright_operator.report import job_metrics
from railwright_operator.report.job_metrics import JobMetrics
from railwright_operator.report.status import StatusInput
from railwright_operator.watch import owned
from railwright_operator.watch.owned import PlacementRecord
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.resume_points import ResumePoint
from railwright_scheduler.model.reasons import QueueNotFound

CREATED_S = 1_767_225_600
"""2026-01-01T00:00:00Z"""

PLACED = PlacementRecord("p", "team", "a-1", 1, "a", attempts.NODES, "", 0.25, 0.05)


LOST = replace(attempts.LOST, node="n1", time_s=77)
FAILED = JobRecord(Phase.FAILED, attempt=2, ended=2, last_termination=LOST)


class Scrape:
    """Job metrics with clocks that a test sets."""

    def __init__(self) -> None:
        self.registry, self.now_s, self.unix_s = CollectorRegistry(), 100.0, 1_000_000.0
        self.metrics = JobMetrics(
            self.registry,
            clock=lambda: self.now_s,
            reception_clock=lambda: self.now_s,
            wall_clock=lambda: self.unix_s,
        )

    def record(self, record: JobRecord, *, name: str = "a", **changes: Any) -> None:
        """A cycle of this job."""
        placement = changes.pop("placement", None)
        plain = StatusInput(record, {}, 1, "2026-01-01T00:00:00Z", "", training_group="worker")
        job = {"uid": name, "namespace": "team", "name": name}
        self.metrics.record(job, replace(plain, **changes), placement, submitted_s=CREATED_S)

    def step(self, step: int, at_s: float, *, phase: Phase = Phase.RUNNING, **facts: Any) -> None:
        """A cycle after a heartbeat with this step at this time."""
        self.now_s = at_s
        progress = protocol.Progress(step, total_steps=900, samples_per_s=64.0)
        first = LauncherView(0, "n0", running=1, received_at_s=at_s, progress=progress, **facts)
        ranks = (
            first,
            LauncherView(1, "n1", running=1, received_at_s=at_s - 4),
            LauncherView(2, "n2", exited=1, received_at_s=at_s - 40),
        )
        session = SessionView("a", 1, layout(3), ranks, (), started_at_s=1.0, revoked=False)
        record = replace(attempts.RUNNING, phase=phase)
        self.record(record, session=session, racks=2, placement=PLACED)

    def values(self) -> dict[str, float]:
        return scraping.with_values(self.registry, "railwright_job_")


def test_running_job_has_progress_and_prediction() -> None:
    scrape = Scrape()
    scrape.step(10, 50.0)
    assert "step_seconds" not in scrape.values()
    scrape.step(30, 58.0)
    assert "step_seconds" not in scrape.values(), "measured over a shorter time than the window"
    scrape.step(50, 60.0, saved=protocol.Saved(4096, 1.5))
    assert scrape.values() == {
        "phase": 1,
        "attempt": 1,
        "restarts_total": 0,
        "nodes": 2,
        "racks": 2,
        "predicted_step_seconds": 0.25,
        "predicted_exposed_communication_seconds": 0.05,
        "step_seconds": 0.25,
        "heartbeat_age_seconds": 4,
        "step": 50,
        "total_steps": 900,
        "samples_per_second": 64,
        "checkpoint_size_bytes": 4096,
        "checkpoint_save_seconds": 1.5,
    }
    labels = {"job_namespace": "team", "job_name": "a", "phase": "Running"}
    assert scraping.value(scrape.registry, "railwright_job_phase", **labels) == 1


def test_step_time_starts_over_with_next_attempt() -> None:
    """Its steps begin at a checkpoint, and the time between two attempts is no step."""
    scrape = Scrape()
    scrape.step(10, 50.0)
    scrape.step(50, 60.0)
    scrape.step(20, 90.0)
    assert "step_seconds" not in scrape.values()
    scrape.step(25, 100.0)
    assert scrape.values()["step_seconds"] == 2
    scrape.record(attempts.RECOVERING)
    assert "step_seconds" not in scrape.values()
    assert "step" not in scrape.values()


def test_step_time_rises_while_no_step_is_made() -> None:
    scrape = Scrape()
    for step, at_s, seconds in (
        (10, 50, None),
        (50, 60, 0.25),
        (51, 61, 0.25),
        (51, 91, 31),
        (51, 101, 40),
    ):
        scrape.step(step, at_s)
        assert scrape.values().get("step_seconds") == seconds


def test_pre_run_has_no_progress() -> None:
    """Its steps are none of the job's, on fewer nodes."""
    scrape = Scrape()
    for step, at_s in ((1, 10.0), (2, 30.0)):
        scrape.step(step, at_s, phase=Phase.PROFILING)
        assert not scrape.values().keys() & {"step", "total_steps", "step_seconds"}
    assert scrape.values()["nodes"] == 2


def test_older_checkpoint_has_no_time_of_commit() -> None:
    """The newer one was torn, or its commit was refused."""
    scrape = Scrape()
    for step in (40, 60):
        scrape.record(replace(attempts.RUNNING, checkpoints=(ResumePoint("worker", 1, step),)))
    assert "checkpoint_timestamp_seconds" in scrape.values()
    scrape.record(replace(attempts.RUNNING, checkpoints=(ResumePoint("worker", 1, 40),)))
    assert scrape.values()["checkpoint_step"] == 40
    assert "checkpoint_timestamp_seconds" not in scrape.values()


def test_checkpoint_has_time_once_commit_is_seen() -> None:
    """A new leader cannot know when the checkpoint that it finds was committed."""
    scrape, committed = Scrape(), (ResumePoint("worker", 1, 40),)
    scrape.record(replace(attempts.RUNNING, checkpoints=committed))
    assert scrape.values()["checkpoint_step"] == 40
    assert "checkpoint_timestamp_seconds" not in scrape.values()
    scrape.unix_s += 5
    other = ResumePoint("other", 1, 99)
    scrape.record(replace(attempts.RUNNING, checkpoints=(other, *committed)))
    assert "checkpoint_timestamp_seconds" not in scrape.values(), "of another group"
    scrape.record(replace(attempts.RUNNING, checkpoints=(ResumePoint("worker", 1, 60),)))
    scrape.unix_s += 5
    assert scrape.values()["checkpoint_timestamp_seconds"] == 1_000_005
    assert scrape.values()["checkpoint_step"] == 60


def test_termination_has_cause_of_closed_set() -> None:
    scrape = Scrape()
    for code, label in (("NodeLost", "NodeLost"), ("OfLaterVersion", "Unknown")):
        cause = replace(attempts.LOST, code=CauseCode(code), node="n1", time_s=77)
        scrape.record(replace(attempts.RECOVERING, last_termination=cause))
        found = scraping.scraped(scrape.registry)
        name = "railwright_job_last_termination_timestamp_seconds"
        (labels,) = (dict(each) for series, each in found if series == name)
        job = {"job_namespace": "team", "job_name": "a"}
        assert labels == job | {"cause": label, "node_name": "n1"}


def test_waiting_job_has_its_reason() -> None:
    """And no reason once it has nodes."""
    scrape = Scrape()

    def reasons() -> set[str | None]:
        name = "railwright_job_waiting_since_timestamp_seconds"
        found = scraping.scraped(scrape.registry)
        return {dict(labels).get("reason") for series, labels in found if series == name}

    scrape.record(JobRecord(), wait=QueueNotFound("train", ()))
    assert reasons() == {"QueueNotFound"}
    scrape.record(attempts.RUNNING)
    assert reasons() == set()


def test_wait_begins_when_job_is_created_or_resumed() -> None:
    scrape, name = Scrape(), "waiting_since_timestamp_seconds"
    scrape.record(JobRecord(), wait=QueueNotFound("train", ()))
    assert scrape.values()[name] == CREATED_S
    resumed = {"type": "Suspended", "status": "False", "lastTransitionTime": "2026-01-01T01:00:00Z"}
    before = {"conditions": [resumed]}
    scrape.record(JobRecord(), wait=QueueNotFound("train", ()), before=before)
    assert scrape.values()[name] == CREATED_S + 3600


def series_of(scrape: Scrape, job: str) -> dict[str, dict[str, str]]:
    """The labels of the series of this job beside its own, by their names."""
    found = ((name, dict(labels)) for name, labels in scraping.scraped(scrape.registry))
    return {
        name.removeprefix("railwright_job_"): labels
        for name, labels in found
        if (labels.pop("job_namespace", ""), labels.pop("job_name", "")) == ("team", job)
    }


def test_end_of_job_stays_for_a_while() -> None:
    """Its other series end at once, and another job's stay."""
    scrape = Scrape()
    scrape.step(10, 50.0)
    scrape.record(attempts.RUNNING, name="b")
    for _ in range(2):
        scrape.record(FAILED)  # A cycle records it until its status is written.
    ended = {
        "phase": {"phase": "Failed"},
        "last_termination_timestamp_seconds": {"cause": "NodeLost", "node_name": "n1"},
    }
    scrape.now_s = 5_000.0
    assert series_of(scrape, "a") == ended
    scrape.now_s += job_metrics.ENDED_S - 1
    assert series_of(scrape, "a") == ended
    scrape.now_s += 1
    assert series_of(scrape, "a") == {}
    assert "attempt" in series_of(scrape, "b")


def test_job_whose_end_was_not_written_goes_on() -> None:
    """Its user allowed more failures meanwhile, so the write was refused. It ends later."""
    scrape = Scrape()
    scrape.record(FAILED)
    scrape.record(attempts.RUNNING)
    found = scraping.scraped(scrape.registry)
    phases = [dict(labels)["phase"] for name, labels in found if name == "railwright_job_phase"]
    assert phases == ["Running"]
    scrape.record(replace(FAILED, last_termination=replace(LOST, node="n0")))
    assert series_of(scrape, "a")["last_termination_timestamp_seconds"]["node_name"] == "n0"


def test_job_that_succeeds_has_no_cause() -> None:
    scrape = Scrape()
    scrape.record(attempts.RUNNING)
    scrape.record(JobRecord(Phase.SUCCEEDED, attempt=1, ended=1))
    assert series_of(scrape, "a") == {"phase": {"phase": "Succeeded"}}


def test_series_of_deleted_job_end_at_once() -> None:
    scrape = Scrape()
    scrape.record(attempts.RUNNING)
    scrape.record(FAILED, name="b")
    assert series_of(scrape, "a")
    assert series_of(scrape, "b")
    scrape.metrics.forget_all_but(())
    assert scrape.values() == {}


async def test_only_a_job_that_ends_now_has_its_end_in_series() -> None:
    """One that a new leader finds ended does not; a deleted one has it no more."""
    desk = Desk()
    desk.add(reporting.raw_job("old", status={"phase": "Succeeded", "attempt": 1}))
    path = desk.add(reporting.raw_job("new", status={"phase": "Running", "attempt": 1}))
    ended = JobRecord(Phase.FAILED, attempt=1, ended=1)
    for records in ({"new-uid": ended}, {}):
        await desk.run_cycle(records)
        found = scraping.scraped(desk.registry)
        phases = [dict(labels) for name, labels in found if name == "railwright_job_phase"]
        assert [(each["job_name"], each["phase"]) for each in phases] == [("new", "Failed")]
    desk.jobs.discard("new-uid")
    del desk.store.objects[path]
    await desk.run_cycle()
    assert not [name for name, _ in scraping.scraped(desk.registry) if name.endswith("_phase")]


def test_newest_of_many_ended_jobs_have_series() -> None:
    scrape, most = Scrape(), job_metrics.ENDED_MAX
    for index in range(100_000):
        scrape.record(FAILED, name=f"j{index}")
    found = scraping.scraped(scrape.registry)
    names = {dict(labels).get("job_name") for _, labels in found} - {None}
    assert names == {f"j{index}" for index in range(100_000 - most, 100_000)}
    assert len(found) == 2 * most + 1
    assert len(scrape.metrics._ended) == most


def test_attempts_are_counted_by_cause() -> None:
    """By four causes, and the others together, so that a job has few series."""
    scrape = Scrape()
    scrape.record(attempts.RUNNING)
    first, *others = CauseCode
    for code in (first, *others, first, CauseCode("OfALaterVersion")):
        scrape.metrics.record_restart("a", Cause(code, ""), {})
    scrape.metrics.record_restart("a", None, {})
    found = {
        dict(labels)["cause"]: value
        for (name, labels), value in scraping.scraped(scrape.registry).items()
        if name == "railwright_job_attempts_ended_total"
    }
    assert found == {first: 2, "Other": len(others) - 2} | dict.fromkeys(others[:3], 1)


def test_hundred_thousand_names_have_bounded_series() -> None:
    """Jobs with a live attempt are not displaced by those that wait."""
    registry = scraped_processes.crowded(100_000)
    assert scraped_processes.series_of_operator(registry) < scraped_processes.SERIES_MAX
    names = {dict(labels).get("job_name") for _, labels in scraping.scraped(registry)} - {None}
    live = {f"live-{index}" for index in range(job_metrics.JOBS_MAX)}
    assert names == live | {f"ended-{99_999 - index}" for index in range(job_metrics.ENDED_MAX)}
    unseen = scraping.value(registry, "railwright_jobs_without_series")
    assert unseen == 100_000 + job_metrics.JOBS_MAX


@pytest.mark.parametrize(
    ("mapping", "seconds"),
    [
        (
            {"predicted": {"stepSeconds": "0.25", "exposedCommunicationSeconds": "0.1"}},
            (0.25, 0.1),
        ),
        ({"predicted": {"stepSeconds": "0.25"}}, (0.25, None)),
        ({"predicted": {"stepSeconds": "soon"}}, (None, None)),
        ({"predicted": {"stepSeconds": "nan"}}, (None, None)),
        ({"predicted": {}}, (None, None)),
        ({"communication": "Derived"}, (None, None)),
        (None, (None, None)),
    ],
)
def test_predicted_step_is_read_from_placement(
    mapping: dict[str, Any] | None, seconds: tuple[float | None, float | None]
) -> None:
    """A Placement of another version may have another form."""
    metadata = {"uid": "p", "namespace": "team", "name": "a-1", "resourceVersion": "7"}
    spec = {"jobUID": "a", "attempt": 1, "nodes": ["n0"], "mapping": mapping}
    record = owned.placement(owned.answered({"metadata": metadata, "spec": spec}))
    assert (record.predicted_step_s, record.predicted_exposed_s) == seconds
