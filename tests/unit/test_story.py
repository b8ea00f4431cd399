"""Events of a job: one for each thing that happened, the cause before what was done about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, Counter

from fixtures import attempts
from railwright_operator.kube.client import Api
from railwright_operator.report import story
from railwright_operator.report.events import Events, Story, Subject
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord, ResumePoint

WHO = Subject("uid", "team", "a")
STARTING = JobRecord(phase=Phase.STARTING, attempt=1, nodes=attempts.NODES)


def tell(before: JobRecord, after: JobRecord, **status: Any) -> list[Story]:
    shown = {"reason": "Queued", "message": "as told"} | status
    return list(story.tell(WHO, before=before, after=after, status=shown))


def reasons(stories: list[Story]) -> list[str]:
    return [each.reason for each in stories]


def test_nothing_new_is_no_story() -> None:
    for record in (JobRecord(), STARTING, attempts.RUNNING, attempts.RECOVERING):
        assert tell(record, record) == []


def test_a_wait_is_told_with_its_reason() -> None:
    (told,) = tell(JobRecord(), JobRecord(), reason="NotEnoughNodes", message="needs 4 nodes")
    assert (told.reason, told.note, told.warning) == ("NotEnoughNodes", "needs 4 nodes", False)
    assert told.subject == WHO


def test_a_wait_is_posted_once_an_attempt_however_its_numbers_move() -> None:
    events = Events(
        cast(Api, None),
        instance="one",
        dropped=Counter("dropped", "none here", registry=CollectorRegistry()),
        clock=lambda: 0.0,
    )
    again = replace(JobRecord(), attempt=1, ended=1)
    for record in (JobRecord(), again):
        for free in range(3):
            for told in tell(record, record, reason="NotEnoughNodes", message=f"{free} free"):
                events.tell(told)
    assert repr(events) == "<Events waiting=2 remembered=2>"


@pytest.mark.parametrize("reason", sorted(story.ROUTINE))
def test_what_every_job_passes_through_is_no_story(reason: str) -> None:
    assert tell(STARTING, STARTING, reason=reason) == []


def test_a_placement_names_the_nodes_by_rank() -> None:
    (told,) = tell(JobRecord(), STARTING, reason="Binding")
    assert told.reason == "Scheduled"
    assert told.note == "attempt 1: 2 nodes, by node rank: n0, n1"


def test_a_long_list_of_nodes_is_cut() -> None:
    nodes = tuple(f"n{number}" for number in range(20))
    (told,) = tell(JobRecord(), replace(STARTING, nodes=nodes), reason="Binding")
    assert told.note == "attempt 1: 20 nodes, by node rank: n0, n1, n2, n3, n4, n5, n6, n7 …"


def test_an_end_is_a_warning_with_its_last_lines_and_comes_before_the_recovery() -> None:
    cause = replace(attempts.FAILED, last_lines="one\ntwo\nthree\nfour\n")
    after = replace(attempts.RECOVERING, failures=1, last_end=cause)
    ended, recovering = tell(attempts.RUNNING, after)
    assert (ended.reason, ended.warning) == ("RankFailed", True)
    assert ended.note == (
        "attempt 1: rank 1 on n1 exited with 1; its last lines: two | three | four"
    )
    assert (recovering.reason, recovering.warning) == ("Recovering", False)
    assert recovering.note == (
        "a new attempt follows in 5 s; no checkpoint was committed: it starts over"
    )


def test_a_recovery_names_the_checkpoint_it_resumes_from() -> None:
    points = (ResumePoint(1, 90),)
    after = replace(attempts.RECOVERING, last_end=attempts.LOST, checkpoints=points)
    _, recovering = tell(attempts.RUNNING, after)
    assert recovering.note == (
        "a new attempt follows; it resumes from the newest sound checkpoint up to step 90 "
        "of attempt 1"
    )


def test_an_end_and_a_new_start_in_one_turn_are_told_in_order() -> None:
    before = attempts.RUNNING
    after = JobRecord(
        phase=Phase.STARTING,
        attempt=2,
        ended=1,
        nodes=("n2", "n0"),
        restarts=1,
        last_end=attempts.LOST,
    )
    assert reasons(tell(before, after, reason="Binding")) == ["NodeLost", "Scheduled"]


@pytest.mark.parametrize(("phase", "warning"), [(Phase.SUCCEEDED, False), (Phase.FAILED, True)])
def test_the_last_story_says_how_it_went(phase: Phase, warning: bool) -> None:
    after = replace(attempts.RUNNING, phase=phase, ended=1, last_end=attempts.FAILED)
    last = tell(attempts.RUNNING, after, message="how it went")[-1]
    assert (last.reason, last.note, last.warning) == (phase.value, "how it went", warning)


def test_the_barrier_and_a_suspension_are_told() -> None:
    assert reasons(tell(STARTING, attempts.RUNNING, reason="Running")) == ["Running"]
    suspended = replace(JobRecord(), phase=Phase.SUSPENDED)
    assert reasons(tell(JobRecord(), suspended, reason="Suspended")) == ["Suspended"]


def test_a_pre_run_that_brought_nothing_is_told_once() -> None:
    after = {"preRun": {"of": "1f", "message": "the pre-run a-pre-run failed: rank 1 failed"}}
    (told,) = story.tell_pre_run(WHO, before={}, after=after)
    assert (told.reason, told.warning) == ("PreRunGivenUp", True)
    assert told.note.startswith("the pre-run a-pre-run failed: rank 1 failed; the job starts")
    for before, now in ((after, after), (after, {}), ({}, {})):
        assert not list(story.tell_pre_run(WHO, before=before, after=now))
