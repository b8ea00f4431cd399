"""A job's status: the record for later cycles, and information for users."""

from __future__ import annotations

import math
import string
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import attempts, merging
from fixtures.jobs import layout
from railwright import protocol
from railwright_api.training_job_status import TrainingJobStatus
from railwright_conversion import times
from railwright_kube import bodies
from railwright_operator.heartbeats.views import LauncherView, SessionView
from railwright_operator.report import status
from railwright_operator.report.status import StatusInput
from railwright_operator.watch.job_records import record_of
from railwright_scheduler.attempt.assessment import Ongoing
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.attempt.record import JobRecord, PreRunRecord
from railwright_scheduler.attempt.resume_points import ResumePoint
from railwright_scheduler.model.evidence import ObservedImages, PodState
from railwright_scheduler.model.reasons import PriorityClassNotFound, QueueNotFound

NOW = "2026-01-02T03:04:05Z"
LATER = "2026-01-02T03:04:10Z"
STARTING = JobRecord(phase=Phase.STARTING, attempt=1, nodes=attempts.NODES)
CRASH = replace(attempts.FAILED, last_lines="Traceback\nboom", node="n1")

NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=12)
TIMES_S = st.integers(1, 4 * 10**9)
CAUSES = st.builds(
    Cause,
    code=st.sampled_from(CauseCode),
    message=NAMES,
    nodes=st.lists(NAMES, max_size=3).map(tuple),
    node=st.none() | NAMES,
    rank=st.none() | st.integers(0, 99),
    exit_code=st.none() | st.integers(-9, 255),
    signal=st.none() | NAMES,
    last_lines=NAMES | st.just(""),
    time_s=TIMES_S | st.just(0),
)


def inputs(record: JobRecord, **changes: Any) -> StatusInput:
    used = attempts.DAILY.usage(record.failure_times_s, 0)
    plain = StatusInput(record=record, before={}, generation=1, now=NOW, failures_used=used)
    return replace(plain, **changes)


def session(*, missing: tuple[int, ...] = (), **progress: Any) -> SessionView:
    """Attempt 1 of two launchers; the first one reports this progress."""
    spoken = protocol.Progress(**progress) if progress else None
    ranks = (LauncherView(0, "n0", progress=spoken), LauncherView(1, "n1"))
    return SessionView("a", 1, layout(2), ranks, missing, started_at_s=None, revoked=False)


def condition(rendered: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(each for each in rendered["conditions"] if each["type"] == kind)


@st.composite
def records(draw: st.DrawFn) -> JobRecord:
    """Any record whose parts agree with each other."""
    ended = draw(st.integers(0, 20))
    live = draw(st.booleans())
    phases = LIVE if live else set(Phase) - LIVE
    saved = st.tuples(st.integers(-20, -1), st.sampled_from(("evaluator", "worker")))
    steps = draw(st.dictionaries(saved, st.integers(0, 10**9), max_size=4))
    return JobRecord(
        phase=draw(st.sampled_from(sorted(phases))),
        attempt=ended + live,
        ended=ended,
        nodes=tuple(draw(st.lists(NAMES, min_size=1, max_size=6))) if live else (),
        spec_hash=draw(NAMES | st.just("")) if live else "",
        restarts=draw(st.integers(0, 9)),
        moves=draw(st.integers(0, 9)),
        failures=draw(st.integers(0, 9)),
        failure_times_s=tuple(sorted(draw(st.lists(TIMES_S, max_size=4)))),
        last_termination=draw(st.none() | CAUSES) if ended else None,
        checkpoints=tuple(ResumePoint(key[1], -key[0], steps[key]) for key in sorted(steps)),
        pre_run=draw(st.none() | st.builds(PreRunRecord, NAMES, st.integers(0, 9), NAMES)),
    )


LIVE = {Phase.PROFILING, Phase.STARTING, Phase.RUNNING}


@given(records())
def test_every_record_is_read_back_from_a_valid_status(record: JobRecord) -> None:
    rendered = status.render(inputs(record))
    TrainingJobStatus.model_validate(rendered)
    assert record_of({"status": rendered}) == replace(record, nodes=())


@given(records())
def test_status_rendered_again_is_equal(record: JobRecord) -> None:
    first = status.render(inputs(record))
    assert bodies.merge_patch(first, status.render(inputs(record, before=first, now=LATER))) == {}


def test_changed_numbers_refresh_and_changed_reason_is_news() -> None:
    waits = [
        QueueNotFound("team", ("default",)),
        QueueNotFound("team", ("default", "spare")),
        PriorityClassNotFound("urgent", ()),
    ]
    first, numbers, news = (status.render(inputs(JobRecord(), wait=wait)) for wait in waits)
    assert status.is_refresh(first, bodies.merge_patch(first, numbers))
    assert not status.is_refresh(first, bodies.merge_patch(first, news))
    assert not status.is_refresh({}, first)


def test_progress_alone_is_a_refresh_in_any_phase() -> None:
    """Else every heartbeat of every running job would be a write."""
    first = status.render(inputs(attempts.RUNNING, session=session()))
    further = bodies.merge_patch(first, first | {"progress": {"step": 7}})
    assert status.is_refresh(first, further)
    assert not status.is_refresh(first, further | {"restarts": 1})


def test_profiling_shows_its_step_and_no_progress() -> None:
    profiling = replace(STARTING, phase=Phase.PROFILING)
    assert status.render(inputs(profiling))["reason"] == status.BINDING
    progress = protocol.Progress(step=3)
    ranks = (LauncherView(0, "n0", progress=progress), LauncherView(1, "n1"))
    seen = replace(session(), ranks=ranks, started_at_s=1.0)
    rendered = status.render(inputs(profiling, session=seen))
    assert (rendered["phase"], rendered["reason"]) == ("Profiling", "Profiling")
    assert rendered["message"].startswith("attempt 1 on n0,n1 is a pre-run, step 3: it records")
    assert "progress" not in rendered


def test_waiting_pre_run_is_named_in_the_message() -> None:
    wait = QueueNotFound("team", ("default",))
    needed = JobRecord(pre_run=PreRunRecord("1-a"))
    rendered = status.render(inputs(needed, wait=wait))
    assert rendered["message"].startswith("its pre-run waits: queue 'team' does not exist")
    given_up = JobRecord(pre_run=PreRunRecord("1-a", 1, "it failed"))
    assert status.render(inputs(given_up, wait=wait))["message"].startswith("queue 'team'")


def test_wait_has_the_message_of_the_scheduler() -> None:
    wait = QueueNotFound("team", ("default",))
    rendered = status.render(inputs(JobRecord(), wait=wait))
    assert (rendered["reason"], rendered["message"]) == (
        "QueueNotFound",
        "queue 'team' does not exist; existing queues: default",
    )
    scheduled = condition(rendered, "Scheduled")
    assert (scheduled["status"], scheduled["reason"]) == ("False", "QueueNotFound")


def test_start_names_ranks_not_at_the_barrier() -> None:
    ranks = (attempts.rank(0), attempts.rank(1))
    rendered = status.render(inputs(STARTING, session=session(missing=(1,)), ranks=ranks))
    assert rendered["reason"] == "AtBarrier"
    assert rendered["message"] == "1 of 2 node ranks are not at the start barrier: 1"
    assert condition(rendered, "Scheduled")["status"] == "True"
    assert condition(rendered, "Running")["status"] == "False"


def test_many_missing_ranks_are_counted_not_listed() -> None:
    many = session(missing=tuple(range(100)))
    ranks = tuple(map(attempts.rank, range(100)))
    large = replace(STARTING, nodes=tuple(f"n{number}" for number in range(100)))
    seen = inputs(large, session=many, ranks=ranks)
    message = status.render(seen)["message"]
    assert message.startswith("100 of 100 node ranks")
    assert message.endswith(" 14, 15 and 84 more")


def test_an_image_that_cannot_be_pulled_comes_before_the_barrier() -> None:
    stuck = attempts.rank(1, pod=PodState.PENDING, waiting="ImagePullBackOff: no such image")
    seen = inputs(STARTING, session=session(missing=(1,)), ranks=(attempts.rank(0), stuck))
    rendered = status.render(seen)
    assert rendered["reason"] == "ImagePullBackOff"
    assert rendered["message"] == "node rank 1 on n1: ImagePullBackOff: no such image"


def test_images_that_are_pulled_are_named_with_the_time() -> None:
    first, second = (
        replace(attempts.rank(rank, pod=PodState.PENDING), images=ObservedImages(image, since, 0.0))
        for rank, image, since in ((0, "a:1", LATER), (1, "b:2", NOW))
    )
    seen = inputs(STARTING, session=session(missing=(0, 1)), ranks=(first, second))
    rendered = status.render(seen)
    assert rendered["reason"] == "PullingImages"
    assert rendered["message"] == f"pulling a:1, b:2 on 2 of 2 nodes since {NOW}"
    assert condition(rendered, "Running")["reason"] == "PullingImages"


def test_node_that_pulls_for_two_pods_counts_once() -> None:
    pulls = ObservedImages("a:1", "", 0.0)
    ranks = [
        replace(attempts.rank(number, pod=PodState.PENDING, node="n0"), images=pulls)
        for number in range(2)
    ]
    seen = inputs(replace(STARTING, nodes=("n0", "n0")), ranks=tuple(ranks))
    assert status.render(seen)["message"] == "pulling a:1 on 1 of 1 nodes"


def test_pods_that_are_not_bound_come_before_the_barrier() -> None:
    ranks = (attempts.rank(0, pod=PodState.PENDING), attempts.rank(1, pod=PodState.MISSING))
    for seen in (ranks, ()):
        rendered = status.render(inputs(STARTING, session=session(missing=(0, 1)), ranks=seen))
        assert rendered["reason"] == "Binding"


def test_containers_that_are_created_come_before_the_barrier() -> None:
    creating = attempts.rank(1, pod=PodState.PENDING)
    seen = inputs(STARTING, session=session(missing=(0, 1)), ranks=(attempts.rank(0), creating))
    rendered = status.render(seen)
    assert rendered["reason"] == "ContainerCreating"
    assert rendered["message"] == "containers of 1 of 2 pods are not created yet: node rank 1"
    later = status.render(replace(seen, ranks=(creating, creating), before=rendered))
    assert status.is_refresh(rendered, bodies.merge_patch(rendered, later))


def test_steps_of_a_start_wait_and_trouble_does_not() -> None:
    """A status that follows each step of each job delays the gangs that start with it."""
    ready = attempts.rank(0), attempts.rank(1)
    stuck = attempts.rank(0), attempts.rank(1, waiting="ImagePullBackOff: no route to host")
    seen = inputs(STARTING, session=session(missing=(0, 1)))
    binding, barrier, trouble = (
        status.render(replace(seen, ranks=ranks)) for ranks in ((), ready, stuck)
    )
    assert barrier["reason"] == "AtBarrier"
    assert trouble["reason"] == "ImagePullBackOff"
    assert status.is_refresh(binding, bodies.merge_patch(binding, barrier))
    assert not status.is_refresh(binding, bodies.merge_patch(binding, trouble))
    assert not status.is_refresh(trouble, bodies.merge_patch(trouble, barrier))


def test_silent_launcher_is_named_and_job_is_unhealthy() -> None:
    rendered = status.render(inputs(attempts.RUNNING, assessment=Ongoing(suspected=(1,))))
    assert rendered["reason"] == "LauncherSilent"
    assert "n1" in rendered["message"]
    assert "n0" not in rendered["message"]
    assert condition(rendered, "Healthy")["status"] == "False"
    assert condition(rendered, "Running")["status"] == "True"


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.STARTING])
def test_held_attempt_states_a_possible_control_plane_outage(phase: Phase) -> None:
    record = replace(attempts.RUNNING, phase=phase)
    rendered = status.render(inputs(record, assessment=Ongoing(suspected=(1,), held=True)))
    assert rendered["reason"] == "NodesUnreachable"
    assert "(n1 of this job): the control plane may be cut off" in rendered["message"]
    assert "or after 600 s" in rendered["message"]
    assert condition(rendered, "Healthy")["reason"] == "NodesUnreachable"
    assert condition(rendered, "Healthy")["status"] == "False"


@pytest.mark.parametrize(
    ("progress", "expected"),
    [
        ({"step": 5}, {"step": 5}),
        ({"step": 42, "total_steps": 100}, {"totalSteps": 100, "percent": "42%"}),
        ({"step": 120, "total_steps": 100}, {"percent": "100%"}),
        ({"step": 0, "total_steps": 3, "loss": 0.5}, {"percent": "0%", "loss": "0.5"}),
        ({"step": 1, "loss": 1e-7}, {"loss": "1e-07"}),
        ({"step": 1, "loss": math.inf, "samples_per_s": -1.0}, {"step": 1}),
        ({"step": 1, "samples_per_s": 1234.5}, {"samplesPerSecond": "1234.5"}),
    ],
)
def test_progress_is_that_of_the_first_reporting_rank(
    progress: dict[str, Any], expected: dict[str, Any]
) -> None:
    shown = status.render(inputs(attempts.RUNNING, session=session(**progress)))["progress"]
    assert expected.items() <= shown.items()
    assert shown["time"] == NOW


def test_progress_keeps_time_and_outlives_its_attempt() -> None:
    first = status.render(inputs(attempts.RUNNING, session=session(step=5)))
    still = inputs(attempts.RUNNING, session=session(step=5), before=first, now=LATER)
    assert status.render(still)["progress"]["time"] == NOW
    moved = replace(still, session=session(step=6))
    assert status.render(moved)["progress"]["time"] == LATER
    over = inputs(attempts.RECOVERING, before=first, now=LATER)
    assert status.render(over)["progress"] == first["progress"]


def test_loss_that_is_no_number_replaces_the_last_one() -> None:
    """A NaN arrives as no loss: the status drops the old one, once, and is not written again."""
    first = status.render(inputs(attempts.RUNNING, session=session(step=5, loss=0.5)))
    unknown = inputs(attempts.RUNNING, session=session(step=5), before=first, now=LATER)
    patch = bodies.merge_patch(first, status.render(unknown))
    stored = merging.merged(first, patch)
    assert stored["progress"] == {"step": 5, "phase": "Training", "time": LATER}
    again = replace(unknown, before=stored, now="2026-01-02T03:04:13Z")
    assert bodies.merge_patch(stored, status.render(again)) == {}


def test_last_end_is_replaced_as_a_whole() -> None:
    failed = replace(attempts.RECOVERING, attempt=1, ended=1, last_termination=CRASH)
    first = status.render(inputs(failed))
    lost = replace(failed, attempt=2, ended=2, last_termination=attempts.LOST)
    after = status.render(inputs(lost, before=first, now=LATER))
    stored = merging.merged(first, bodies.merge_patch(first, after))
    assert stored == after
    assert record_of({"status": stored}).last_termination == attempts.LOST


def test_failure_states_rank_code_and_last_lines() -> None:
    failed = JobRecord(phase=Phase.FAILED, attempt=2, ended=2, last_termination=CRASH)
    rendered = status.render(inputs(failed, failures_used=FailurePolicy(1, 5400).usage((1, 2), 2)))
    end = rendered["lastTermination"]
    assert (end["attempt"], end["cause"], end["rank"], end["exitCode"]) == (2, "RankFailed", 1, 1)
    assert end["lastLines"] == "Traceback\nboom"
    assert rendered["message"] == (
        "rank 1 on n1 exited with 1; 2 of 1 allowed failures used in the last 90 min"
    )
    assert condition(rendered, "Failed")["status"] == "True"
    assert condition(rendered, "Healthy")["status"] == "False"
    assert rendered["finishedAt"] == NOW


def test_recovery_states_the_next_attempt() -> None:
    waits = replace(attempts.RECOVERING, failure_times_s=(1,), last_termination=CRASH)
    message = status.render(inputs(waits))["message"]
    assert message == "rank 1 on n1 exited with 1; the next attempt follows in 5 s"


def test_wait_beside_a_pod_that_does_not_go_states_its_reason() -> None:
    """The job recovers for as long as a pod of its last attempt is being deleted; but what it waits
    for is another thing."""
    lingers = replace(attempts.RECOVERING, failure_times_s=(1,), last_termination=CRASH)
    rendered = status.render(inputs(lingers, wait=QueueNotFound("default", ("research",))))
    assert rendered["reason"] == "QueueNotFound"
    assert (rendered["phase"], rendered["lastTermination"]["cause"]) == ("Recovering", "RankFailed")


def test_success_keeps_the_end_of_the_attempt_before_it() -> None:
    before = {"lastTermination": {"attempt": 1}}
    lost = replace(attempts.LOST, time_s=times.parse(NOW))
    done = JobRecord(phase=Phase.SUCCEEDED, attempt=2, ended=2, last_termination=lost)
    rendered = status.render(inputs(done, before=before, now=LATER))
    assert (rendered["lastTermination"]["attempt"], rendered["lastTermination"]["time"]) == (1, NOW)
    assert condition(rendered, "Complete")["status"] == "True"


@pytest.mark.parametrize("phase", sorted(FINAL))
def test_times_are_written_once(phase: Phase) -> None:
    started = replace(attempts.RUNNING, started_s=times.parse(NOW))
    running = status.render(inputs(started))
    assert running["startedAt"] == NOW
    assert "finishedAt" not in running
    ended = status.render(inputs(replace(started, phase=phase, ended=1), before=running, now=LATER))
    assert (ended["startedAt"], ended["finishedAt"]) == (NOW, LATER)


def test_a_condition_dates_from_its_last_change() -> None:
    first = status.render(inputs(STARTING))
    second = status.render(inputs(attempts.RUNNING, before=first, now=LATER, generation=2))
    assert condition(second, "Scheduled")["lastTransitionTime"] == NOW
    assert condition(second, "Running")["lastTransitionTime"] == LATER
    assert {each["observedGeneration"] for each in second["conditions"]} == {2}


def test_many_nodes_are_summed_up() -> None:
    nodes = tuple(f"n{number}" for number in range(1200))
    rendered = status.render(inputs(replace(attempts.RUNNING, nodes=nodes), racks=38))
    assert (rendered["nodes"], rendered["racks"]) == (1200, 38)
    assert rendered["message"] == "attempt 1 on 1,200 nodes"


def test_given_up_pre_run_has_its_reason() -> None:
    assert "preRun" not in status.render(inputs(JobRecord(), before={"preRun": {"specHash": "1"}}))
    ended = inputs(JobRecord(pre_run=PreRunRecord("2", 1, "failed\x1b[1m")))
    shown = status.render(ended)["preRun"]
    assert shown == {"specHash": "2", "attempts": 1, "message": "failed\\x1b[1m"}
    assert TrainingJobStatus.model_validate(status.render(ended)).pre_run is not None


def test_false_conditions_state_reason_and_message() -> None:
    failing = replace(attempts.RUNNING, failure_times_s=(1,))
    rendered = status.render(inputs(failing))
    assert rendered["failureTimes"] == ["1970-01-01T00:00:01Z"]
    for condition_type in ("Failed", "Complete", "Suspended"):
        found = condition(rendered, condition_type)
        assert (found["status"], found["reason"]) == ("False", f"Not{condition_type}")
        assert (
            found["message"] == "the job is Running, 1 of 3 allowed failures used in the last 24 h"
        )
