"""Events of a job: one for each thing that happened, the cause before what was done about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, Counter

from fixtures import attempts
from railwright_kube.client import Api
from railwright_operator.report import job_events
from railwright_operator.report.events import Events, JobEvent
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord, PreRunRecord
from railwright_scheduler.attempt.resume_points import ResumePoint

WHO = {"uid": "uid", "namespace": "team", "name": "a"}
STARTING = JobRecord(phase=Phase.STARTING, attempt=1, nodes=attempts.NODES)


def changes(
    before: JobRecord, after: JobRecord, old: dict[str, Any] | None = None, **status: Any
) -> list[JobEvent]:
    shown = {"reason": "Queued", "message": "message"} | status
    changed = job_events.changes(
        WHO,
        records_changed=(before, after),
        status_changed=(old or {}, shown),
        training_group="worker",
    )
    return list(changed)


def reasons(events: list[JobEvent]) -> list[str]:
    return [each.reason for each in events]


def test_nothing_new_is_no_story() -> None:
    for record in (JobRecord(), STARTING, attempts.RUNNING, attempts.RECOVERING):
        assert changes(record, record) == []


def test_wait_event_has_its_reason() -> None:
    (event,) = changes(JobRecord(), JobRecord(), reason="NotEnoughNodes", message="needs 4 nodes")
    assert (event.reason, event.note, event.warning) == ("NotEnoughNodes", "needs 4 nodes", False)
    assert event.job == WHO


def test_wait_is_posted_once_per_attempt() -> None:
    """Changes of its numbers cause no further event."""
    events = Events(
        cast(Api, None),
        instance="one",
        dropped=Counter("dropped", "none here", registry=CollectorRegistry()),
        clock=lambda: 0.0,
        wall_clock=lambda: 0.0,
    )
    again = replace(JobRecord(), attempt=1, ended=1)
    for record in (JobRecord(), again):
        for free in range(3):
            for event in changes(record, record, reason="NotEnoughNodes", message=f"{free} free"):
                events.add(event)
    assert repr(events) == "<Events waiting=2 remembered=2>"


@pytest.mark.parametrize("reason", sorted(job_events.ROUTINE))
def test_usual_start_reasons_are_no_events(reason: str) -> None:
    assert changes(STARTING, STARTING, reason=reason) == []


def test_a_placement_names_the_nodes_by_rank() -> None:
    (event,) = changes(JobRecord(), STARTING, reason="Binding")
    assert event.reason == "Scheduled"
    assert event.note == "attempt 1: 2 nodes, by node rank: n0, n1"


def test_placement_counts_a_shared_node_once() -> None:
    """Pods of two roles may share a node."""
    (event,) = changes(JobRecord(), replace(STARTING, nodes=("n0", "n0")), reason="Binding")
    assert event.note == "attempt 1: 1 node, by node rank: n0, n0"


def test_a_long_list_of_nodes_is_cut() -> None:
    nodes = tuple(f"n{number}" for number in range(20))
    (event,) = changes(JobRecord(), replace(STARTING, nodes=nodes), reason="Binding")
    assert event.note == "attempt 1: 20 nodes, by node rank: n0, n1, n2, n3, n4, n5, n6, n7 …"


def test_end_is_a_warning_with_last_lines_before_recovery() -> None:
    """The event of the end precedes that of the recovery."""
    cause = replace(attempts.FAILED, last_lines="one\ntwo\nthree\nfour\n")
    after = replace(attempts.RECOVERING, failure_times_s=(1,), last_termination=cause)
    ended, recovering = changes(attempts.RUNNING, after)
    assert (ended.reason, ended.warning) == ("RankFailed", True)
    assert ended.note == (
        "attempt 1: rank 1 on n1 exited with 1; its last lines: two | three | four"
    )
    assert (recovering.reason, recovering.warning) == ("Recovering", False)
    assert recovering.note == (
        "a new attempt follows in 5 s; no checkpoint was committed: it starts over"
    )


def test_a_recovery_names_the_checkpoint_it_resumes_from() -> None:
    points = (ResumePoint("worker", 1, 90),)
    after = replace(attempts.RECOVERING, last_termination=attempts.LOST, checkpoints=points)
    _, recovering = changes(attempts.RUNNING, after)
    assert recovering.note == (
        "a new attempt follows; it resumes from the newest sound checkpoint up to step 90 "
        "of attempt 1"
    )


def test_end_and_new_start_in_one_cycle_are_ordered_events() -> None:
    before = attempts.RUNNING
    after = JobRecord(
        phase=Phase.STARTING,
        attempt=2,
        ended=1,
        nodes=("n2", "n0"),
        restarts=1,
        last_termination=attempts.LOST,
    )
    assert reasons(changes(before, after, reason="Binding")) == ["NodeLost", "Scheduled"]


@pytest.mark.parametrize(("phase", "warning"), [(Phase.SUCCEEDED, False), (Phase.FAILED, True)])
def test_last_event_has_the_outcome(phase: Phase, warning: bool) -> None:
    after = replace(attempts.RUNNING, phase=phase, ended=1, last_termination=attempts.FAILED)
    last = changes(attempts.RUNNING, after, message="how it went")[-1]
    assert (last.reason, last.note, last.warning) == (phase.value, "how it went", warning)


def test_barrier_and_suspension_are_events() -> None:
    assert reasons(changes(STARTING, attempts.RUNNING, reason="Running")) == ["Running"]
    suspended = replace(JobRecord(), phase=Phase.SUSPENDED)
    assert reasons(changes(JobRecord(), suspended, reason="Suspended")) == ["Suspended"]


def test_suspension_and_resumption_have_one_event() -> None:
    """The reason of a resumed job, until it is evaluated, is how its last attempt ended."""
    cause = Cause(CauseCode.SUSPENDED, "spec.suspend was set")
    suspended = JobRecord(Phase.SUSPENDED, attempt=1, ended=1, last_termination=cause)
    (event,) = changes(attempts.RUNNING, suspended, reason="Suspended")
    assert (event.reason, event.warning) == ("Suspended", False)
    assert event.note == "attempt 1: spec.suspend was set"
    queued = replace(suspended, phase=Phase.QUEUED)
    assert changes(suspended, queued, reason="Suspended") == []
    assert changes(queued, queued, reason="Suspended") == []
    again = replace(queued, phase=Phase.STARTING, attempt=2, nodes=attempts.NODES)
    assert reasons(changes(queued, again, reason="Binding")) == ["Scheduled"]
    twice = replace(suspended, attempt=2, ended=2)
    assert reasons(changes(again, twice, reason="Suspended")) == ["Suspended"]


def test_failed_pre_run_has_one_event() -> None:
    needed = JobRecord(pre_run=PreRunRecord("1-a"))
    ended = JobRecord(pre_run=PreRunRecord("1-a", 1, "the pre-run ended in attempt 1: it failed"))
    (event,) = changes(needed, ended)
    assert (event.reason, event.warning) == ("PreRunGivenUp", True)
    assert event.note.startswith("the pre-run ended in attempt 1: it failed; the job starts")
    assert not changes(ended, ended)
    assert not changes(JobRecord(), needed)
    assert not changes(ended, JobRecord())


def test_recorded_profile_is_no_warning() -> None:
    profiling = JobRecord(phase=Phase.PROFILING, attempt=1, nodes=attempts.NODES)
    cause = Cause(CauseCode.PROFILED, "the profile is stored")
    ended = JobRecord(attempt=1, ended=1, last_termination=cause)
    (event,) = changes(profiling, ended, reason="Profiled")
    assert (event.reason, event.warning) == ("Profiled", False)
