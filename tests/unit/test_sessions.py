"""The start barrier and what is known of an attempt's launchers."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Any

import pytest

from fixtures.jobs import layout
from railwright import protocol
from railwright_operator.heartbeats.sessions import MISSING_NAMED_MAX, Sessions
from railwright_operator.heartbeats.validation import STEP_JUMP_MAX
from railwright_operator.heartbeats.views import SessionView
from railwright_process.messages import RefusedError

JOB = "job-uid"
RESUME = (protocol.Checkpoint(attempt=1, step=500),)
RUN = "10.0.0.0:29500"


class WorldInfo:
    """Sessions with a clock that a test moves, counting how often the operator was woken."""

    def __init__(self, *, nodes: int = 2, attempt: int = 2) -> None:
        self.now_s = 100.0
        self.wakes = 0
        self.sessions = Sessions(clock=lambda: self.now_s, wake=self._woken)
        self.expect(nodes=nodes, attempt=attempt)

    def _woken(self) -> None:
        self.wakes += 1

    def expect(self, *, nodes: int = 2, attempt: int = 2) -> None:
        names = tuple(f"n{rank}" for rank in range(nodes))
        self.sessions.expect(
            JOB, attempt, nodes=names, layout=layout(nodes, 4), resume={"worker": RESUME}
        )

    def register(
        self, rank: int, *, attempt: int = 2, pod: str | None = None
    ) -> protocol.Registered:
        member = protocol.Member(JOB, attempt, rank)
        message = protocol.Register(member, f"10.0.0.{rank}", master_port=29500, num_processes=4)
        return self.sessions.register(message, pod or f"pod-{rank}")

    def start(self, *, nodes: int = 2) -> None:
        for rank in range(nodes):
            self.register(rank)

    def view(self, attempt: int = 2) -> SessionView:
        view = self.sessions.attempt(JOB, attempt)
        assert view is not None
        return view


def heartbeat(
    rank: int, sequence: int, *, attempt: int = 2, step: int | None = None
) -> protocol.Heartbeat:
    progress = None if step is None else protocol.Progress(step=step)
    member = protocol.Member(JOB, attempt, rank)
    return protocol.Heartbeat(member, sequence, running=4, exited=0, progress=progress)


def refusal(world: WorldInfo, message: protocol.Heartbeat, pod: str | None = None) -> int:
    with pytest.raises(RefusedError) as caught:
        world.sessions.heartbeat(message, pod or f"pod-{message.member.node_rank}")
    return caught.value.status


def test_no_launcher_starts_before_all_are_registered() -> None:
    world = WorldInfo(nodes=3)
    assert world.register(2) == protocol.Registered(protocol.Order.WAIT, missing=(0, 1))
    assert world.register(0) == protocol.Registered(protocol.Order.WAIT, missing=(1,))
    assert world.view().missing == (1,)
    answer = world.register(1)
    assert answer.order is protocol.Order.GO
    assert answer.world == protocol.WorldInfo(
        world_size=12,
        num_nodes=3,
        first_rank=4,
        master_address="10.0.0.0",
        master_port=29500,
        group_rank=1,
        role_rank=4,
        role_size=12,
        group="worker",
        groups=(protocol.Group("worker", RESUME, RUN),),
    )
    assert world.view().started_at_s == 100.0


def test_a_launcher_that_lost_the_answer_gets_it_again() -> None:
    world = WorldInfo()
    world.start()
    assert world.register(1).world == world.register(1).world is not None


def test_only_the_first_missing_ranks_are_named() -> None:
    world = WorldInfo(nodes=200)
    assert world.register(0).missing == tuple(range(1, MISSING_NAMED_MAX + 1))
    assert len(world.view().missing) == 199


def test_another_pod_may_take_a_rank_only_before_start() -> None:
    """A recreated pod replaces the old one at the barrier, not afterwards."""
    world = WorldInfo()
    world.register(0, pod="first")
    world.register(0, pod="second")
    world.register(1)
    with pytest.raises(RefusedError) as caught:
        world.register(0, pod="third")
    assert caught.value.status == HTTPStatus.CONFLICT


def test_a_launcher_with_another_number_of_processes_is_refused() -> None:
    world = WorldInfo()
    message = protocol.Register(
        protocol.Member(JOB, 2, 0), "10.0.0.1", master_port=1, num_processes=8
    )
    with pytest.raises(RefusedError, match="num_processes is 8, the job has 4"):
        world.sessions.register(message, "pod-0")


def test_heartbeat_proves_passed_barrier_to_new_operator() -> None:
    """Running processes exist only after the barrier."""
    world = WorldInfo()
    world.sessions.heartbeat(heartbeat(1, 7, step=40), "pod-1")
    view = world.view()
    assert (view.started_at_s, view.missing, view.ranks[1].registered) == (100.0, (0,), True)


def test_heartbeats_without_a_change_wake_no_cycle() -> None:
    world = WorldInfo()
    world.start()
    world.sessions.heartbeat(heartbeat(0, 1, step=1), "pod-0")
    wakes = world.wakes
    for sequence in range(2, 10):
        world.now_s += 2.0
        world.sessions.heartbeat(heartbeat(0, sequence, step=sequence), "pod-0")
    assert world.wakes == wakes
    assert world.view().progress == protocol.Progress(step=9)
    assert world.view().ranks[0].received_at_s == 116.0


def test_failure_wakes_and_keeps_its_first_time() -> None:
    world = WorldInfo()
    world.start()
    failure = protocol.Failure(rank=5, exit_code=1, last_lines="boom")
    failed = replace(heartbeat(1, 1), failure=failure, running=3, exited=1)
    wakes = world.wakes
    world.sessions.heartbeat(failed, "pod-1")
    world.now_s += 5.0
    world.sessions.heartbeat(replace(failed, sequence=2), "pod-1")
    assert world.wakes == wakes + 1
    assert (world.view().ranks[1].failure, world.view().ranks[1].failed_at_s) == (failure, 100.0)


def test_replayed_heartbeat_changes_nothing() -> None:
    world = WorldInfo()
    world.start()
    world.sessions.heartbeat(heartbeat(0, 5, step=50), "pod-0")
    answer = world.sessions.heartbeat(replace(heartbeat(0, 5, step=60), running=0), "pod-0")
    assert answer == protocol.HeartbeatAnswer(protocol.Order.CONTINUE, interval_s=2)
    assert (world.view().progress, world.view().ranks[0].running) == (protocol.Progress(step=50), 4)


@pytest.mark.parametrize(
    "message",
    [
        heartbeat(0, 9, step=50 + STEP_JUMP_MAX + 1),
        replace(heartbeat(0, 9), running=5),
        replace(heartbeat(0, 9), failure=protocol.Failure(rank=4, exit_code=1)),
        replace(heartbeat(0, 9), committed=protocol.Checkpoint(attempt=1, step=1)),
        replace(heartbeat(0, 9), resumed_from=protocol.Checkpoint(attempt=3, step=1)),
    ],
    ids=["too far", "too many", "foreign rank", "foreign commit", "from the future"],
)
def test_an_impossible_report_is_refused_but_its_sender_lives(message: protocol.Heartbeat) -> None:
    world = WorldInfo()
    world.start()
    world.sessions.heartbeat(heartbeat(0, 8, step=50), "pod-0")
    world.now_s = 200.0
    before = replace(world.view().ranks[0], received_at_s=200.0)
    assert refusal(world, message) == HTTPStatus.BAD_REQUEST
    assert world.view().ranks[0] == before


def test_first_report_may_be_near_checkpoint_not_beyond() -> None:
    """A step far beyond the resume point is refused."""
    world = WorldInfo()
    world.start()
    assert refusal(world, heartbeat(0, 1, step=501 + STEP_JUMP_MAX)) == HTTPStatus.BAD_REQUEST
    world.sessions.heartbeat(heartbeat(0, 1, step=500 + STEP_JUMP_MAX), "pod-0")


def test_revoked_attempt_gets_stop_from_then_on() -> None:
    world = WorldInfo()
    world.start()
    world.sessions.revoke(JOB, 2)
    world.expect(attempt=2)
    assert refusal(world, heartbeat(0, 1)) == HTTPStatus.CONFLICT
    assert world.view().revoked


def test_older_attempt_must_stop_and_later_must_retry() -> None:
    """The older one gets 409, the later one 425."""
    world = WorldInfo(attempt=3)
    assert refusal(world, heartbeat(0, 1, attempt=2)) == HTTPStatus.CONFLICT
    assert refusal(world, heartbeat(0, 1, attempt=4)) == HTTPStatus.TOO_EARLY
    assert world.sessions.attempt(JOB, 2) is None


def test_an_attempt_can_be_revoked_before_it_was_ever_expected() -> None:
    world = WorldInfo()
    world.sessions.revoke(JOB, 3)
    world.expect(attempt=3)
    assert refusal(world, heartbeat(0, 1, attempt=3)) == HTTPStatus.CONFLICT


def test_messages_of_a_forgotten_job_are_refused() -> None:
    world = WorldInfo()
    world.sessions.forget(JOB)
    assert refusal(world, heartbeat(0, 1)) == HTTPStatus.TOO_EARLY


def test_a_rank_beyond_the_job_is_refused() -> None:
    assert refusal(WorldInfo(), heartbeat(2, 1)) == HTTPStatus.FORBIDDEN


def commit(step: int, *, rank: int = 0) -> protocol.Commit:
    return protocol.Commit(protocol.Member(JOB, 2, rank), step)


def test_script_may_go_back_to_an_earlier_step() -> None:
    """It loads a checkpoint again, or counts the steps of each epoch."""
    world = WorldInfo()
    world.start()
    for sequence, step in ((8, 50), (9, 20)):
        world.sessions.heartbeat(heartbeat(0, sequence, step=step), "pod-0")
        assert world.view().ranks[0].progress == protocol.Progress(step=step)


def test_commits_come_one_at_a_time_from_the_first_node() -> None:
    """Other node ranks and a second commit are refused, and the step may be an earlier one."""
    world = WorldInfo()
    world.start()
    world.sessions.claim_commit(commit(10), "pod-0")
    with pytest.raises(RefusedError) as busy:
        world.sessions.claim_commit(commit(20), "pod-0")
    world.sessions.settle_commit(commit(10), recorded=True)
    world.sessions.claim_commit(commit(9), "pod-0")
    with pytest.raises(RefusedError) as other:
        world.sessions.claim_commit(commit(30, rank=1), "pod-1")
    statuses = [caught.value.status for caught in (busy, other)]
    assert statuses == [HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.FORBIDDEN]


def test_end_of_an_old_commit_leaves_a_later_attempt_alone() -> None:
    world = WorldInfo()
    world.start()
    world.sessions.claim_commit(commit(30), "pod-0")
    world.expect(attempt=3)
    later = protocol.Commit(protocol.Member(JOB, 3, 0), 10)
    with pytest.raises(RefusedError):
        world.sessions.settle_commit(commit(30), recorded=True)
    world.sessions.claim_commit(later, "pod-0")
    with pytest.raises(RefusedError):
        world.sessions.settle_commit(commit(30), recorded=True)
    with pytest.raises(RefusedError) as busy:
        world.sessions.claim_commit(later, "pod-0")
    assert busy.value.status == HTTPStatus.SERVICE_UNAVAILABLE


def test_first_failure_of_a_node_is_kept() -> None:
    world = WorldInfo()
    world.start()
    for sequence, code in ((1, 7), (2, 9)):
        failure = protocol.Failure(rank=0, exit_code=code)
        world.sessions.heartbeat(replace(heartbeat(0, sequence), failure=failure), "pod-0")
    kept = world.view().ranks[0].failure
    assert kept is not None
    assert kept.exit_code == 7


def test_commit_revoked_while_recording_is_refused() -> None:
    """The status write succeeded, but the attempt was revoked meanwhile."""
    world = WorldInfo()
    world.start()
    world.sessions.claim_commit(commit(10), "pod-0")
    world.sessions.revoke(JOB, 2)
    with pytest.raises(RefusedError) as caught:
        world.sessions.settle_commit(commit(10), recorded=True)
    assert caught.value.status == HTTPStatus.CONFLICT


def test_heartbeat_gives_restarted_operator_the_master() -> None:
    """Launchers that still wait get the master's address from it."""
    restarted = WorldInfo()
    reported = replace(heartbeat(1, 1), master_address="10.0.0.7", master_port=29501)
    restarted.sessions.heartbeat(reported, "pod-1")
    answer = restarted.register(0)
    assert answer.order is protocol.Order.GO
    assert answer.world is not None
    assert (answer.world.master_address, answer.world.master_port) == ("10.0.0.7", 29501)


def test_view_is_the_same_object_until_a_change() -> None:
    world = WorldInfo()
    before = world.view()
    assert world.view() is before
    world.register(0)
    assert world.view().missing == (1,)
    world.register(1)
    started = world.view()
    assert started.missing == ()
    world.now_s += 2
    world.sessions.heartbeat(heartbeat(0, 1), "pod-0")
    assert world.view().ranks[0].received_at_s == world.now_s
    world.sessions.revoke(JOB, 2)
    assert world.view().revoked


def steps(rank: int, sequence: int, **changes: Any) -> protocol.Heartbeat:
    plain = protocol.Steps(
        5, 5, (4 * rank,), 0, 4, 1.0, 1.0, 9, 0.1, 0.1, protocol.Phase.TRAINING, False
    )
    return replace(heartbeat(rank, sequence), steps=replace(plain, **changes))


def test_stacks_are_requested_as_long_as_they_are_wanted() -> None:
    world = WorldInfo()
    world.start()
    assert not world.sessions.heartbeat(steps(0, 1), "pod-0").stacks
    world.sessions.request_stacks(JOB, 2, needed=True)
    world.now_s += 3
    world.sessions.request_stacks(JOB, 2, needed=True)
    assert world.view().stacks_since_s == 100.0
    assert world.sessions.heartbeat(steps(0, 2), "pod-0").stacks
    wakes = world.wakes
    stack = protocol.Stack((0, 1), 2, answered=True, text="train.py")
    world.sessions.heartbeat(replace(steps(0, 3), stacks=(stack,)), "pod-0")
    assert (world.wakes, world.view().ranks[0].stacks) == (wakes + 1, (stack,))
    world.sessions.request_stacks(JOB, 2, needed=False)
    assert not world.sessions.heartbeat(steps(0, 4), "pod-0").stacks
    assert (world.view().stacks_since_s, world.view().ranks[0].stacks) == (None, None)


def test_steps_of_other_nodes_are_refused() -> None:
    world = WorldInfo()
    world.start()
    assert refusal(world, steps(1, 1, ranks=(3,))) == HTTPStatus.BAD_REQUEST
    stack = protocol.Stack((8,), 1, answered=False, text="")
    assert refusal(world, replace(steps(1, 2), stacks=(stack,))) == HTTPStatus.BAD_REQUEST


def test_training_counts_from_the_last_phase_that_was_none() -> None:
    world = WorldInfo()
    world.start()
    world.now_s += 50
    world.sessions.heartbeat(steps(0, 1), "pod-0")
    assert world.view().training_since_s == 100.0
    world.sessions.heartbeat(steps(1, 1, phase=protocol.Phase.EVALUATING), "pod-1")
    assert world.view().training_since_s == 150.0


def test_steps_alone_wake_no_cycle() -> None:
    world = WorldInfo()
    world.start()
    world.sessions.heartbeat(steps(0, 1), "pod-0")
    wakes = world.wakes
    world.sessions.heartbeat(steps(0, 2, newest=6, still_s=7.0), "pod-0")
    assert world.wakes == wakes
