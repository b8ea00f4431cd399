"""How long a gang may take to start, and what an image that cannot be pulled means."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures import attempts, node
from railwright_scheduler.attempt import assessment, record
from railwright_scheduler.attempt.assessment import Ended, Ongoing
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.starting import IMAGE_MISSING_S, START_TIMEOUT_S
from railwright_scheduler.model.evidence import NO_REPORT, ObservedImages, ObservedRank, PodState
from railwright_scheduler.plan import plan

LATE_S = START_TIMEOUT_S + 1
BACK_OFF = "ImagePullBackOff: Back-off pulling image"


def starting(*, images: ObservedImages = NO_REPORT, waiting: str = "") -> list[ObservedRank]:
    """A gang of two whose second launcher sent no message."""
    second = attempts.rank(1, pod=PodState.PENDING, silent_s=None, waiting=waiting)
    return [attempts.rank(0), replace(second, images=images)]


def cause(ranks: list[ObservedRank], *, age_s: float = LATE_S) -> Cause | None:
    found = assessment.assess(ranks, started=False, age_s=age_s)
    assert isinstance(found, Ended | Ongoing)
    return found.cause if isinstance(found, Ended) else None


def test_start_counts_from_the_end_of_the_last_pull() -> None:
    for pulled_s, late in ((0.0, False), (START_TIMEOUT_S, False), (LATE_S, True)):
        found = cause(starting(images=ObservedImages(pulled_s=pulled_s)), age_s=10 * LATE_S)
        assert (found is not None and found.code is CauseCode.START_TIMED_OUT) is late


def test_start_counts_from_binding_without_reports() -> None:
    assert cause(starting(), age_s=START_TIMEOUT_S) is None
    found = cause(starting())
    assert found is not None
    assert (found.code, found.counted) == (CauseCode.START_TIMED_OUT, True)


def test_start_time_out_is_that_of_the_job() -> None:
    ranks = starting(images=ObservedImages(pulled_s=31.0))
    for timeout_s, late in ((31.0, False), (30.0, True)):
        seen = attempts.seen(
            replace(attempts.RUNNING, phase=Phase.STARTING),
            ranks=tuple(ranks),
            started=False,
            bound_age_s=LATE_S,
            start_timeout_s=timeout_s,
        )
        found = plan(attempts.world_of(seen, nodes=())).assessments["a"]
        assert isinstance(found, Ended) is late
    assert isinstance(found, Ended)
    assert "never reached the barrier in 30 s" in found.cause.message


def test_image_that_is_not_there_fails_the_job() -> None:
    stated = "ErrImagePull: no-such:latest: not found"
    missing = starting(images=ObservedImages(missing_s=IMAGE_MISSING_S), waiting=stated)
    assert cause(missing, age_s=IMAGE_MISSING_S) is None
    missing = starting(images=ObservedImages(missing_s=IMAGE_MISSING_S + 1), waiting=stated)
    found = cause(missing, age_s=IMAGE_MISSING_S)
    assert found is not None
    assert found.code is CauseCode.IMAGE_NOT_FOUND
    assert stated in found.message
    entry = attempts.entry(cause=found)
    before = replace(attempts.RUNNING, phase=Phase.STARTING)
    after = record.fold(before, [entry], attempts.DAILY)
    assert (after.phase, after.failures) == (Phase.FAILED, 0)


def test_registry_that_is_down_is_tried_again_for_free() -> None:
    found = cause(starting(waiting=BACK_OFF))
    assert found is not None
    assert (found.code, found.counted) == (CauseCode.IMAGE_PULL_FAILED, False)
    assert BACK_OFF in found.message
    before = replace(attempts.RUNNING, phase=Phase.STARTING)
    after = record.fold(before, [attempts.entry(cause=found)], attempts.DAILY)
    assert (after.phase, after.backoff_s) == (Phase.RECOVERING, record.BACKOFF_S_FIRST)


def test_running_launcher_without_a_message_spends_no_budget() -> None:
    """Its pod runs, so it registers again and again: the operator, or a network, keeps it out."""
    mute = attempts.rank(1, silent_s=None)
    found = cause([attempts.rank(0), mute])
    assert found is not None
    assert (found.code, found.counted) == (CauseCode.LAUNCHER_UNHEARD, False)
    assert found.message == (
        "1 of 2 node ranks never reached the barrier in 600 s: 1 "
        "(their launchers run, and the operator received no message from them)"
    )
    found = cause([mute, *starting()[1:]])
    assert found is not None
    assert found.code is CauseCode.START_TIMED_OUT, "one is not there yet"
    found = cause([attempts.rank(0), replace(mute, waiting="CreateContainerError: no such user")])
    assert found is not None
    assert found.code is CauseCode.START_TIMED_OUT, "a container of it does not start"
    found = cause([attempts.rank(0), attempts.rank(1)])
    assert found is not None
    assert (found.code, found.nodes) == (CauseCode.START_TIMED_OUT, ()), "all were heard"


def test_nodes_without_a_message_alone_are_avoided() -> None:
    """Else the next attempt would return to them, for ever: no budget ends this."""
    mute = attempts.rank(1, silent_s=None)
    found = cause([attempts.rank(0), mute])
    assert found is not None
    assert found.nodes == ("n1",)
    found = cause([replace(mute, node_rank=0, node="n0"), mute])
    assert found is not None
    assert (found.code, found.nodes) == (CauseCode.LAUNCHER_UNHEARD, ())


@pytest.mark.parametrize("is_success", [False, True])
def test_attempt_over_in_the_cycle_of_its_start_has_started(is_success: bool) -> None:
    """Its deadline counts from then, and it is no failure to start."""
    done = attempts.rank(0, done=True)
    failed = attempts.crash(0, 0.1, silent_s=0.05)
    ranks = tuple(replace(done if is_success else failed, node_rank=each) for each in (0, 1))
    began = JobRecord(phase=Phase.STARTING, attempt=1, nodes=attempts.NODES, spec_hash="")
    job = attempts.seen(began, started=True, ranks=ranks, active_deadline_s=60)
    nodes = tuple(node(name) for name in attempts.NODES)
    now = plan(replace(attempts.world_of(job, nodes=nodes), now_s=5000)).records["a"]
    assert now.phase is (Phase.SUCCEEDED if is_success else Phase.RECOVERING)
    assert (now.started_s, now.start_failures) == (5000, 0)
