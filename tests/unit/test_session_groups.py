"""The start barrier of a gang of two groups: one barrier, and a world of ranks for each."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from railwright import protocol
from railwright_operator.heartbeats.sessions import Sessions
from railwright_process.messages import RefusedError
from railwright_scheduler.model.rank_layout import number_ranks
from railwright_scheduler.model.snapshot import Role

JOB = "job-uid"
RESUME = {
    "train": (protocol.Checkpoint(1, 30),),
    "evaluator": (protocol.Checkpoint(1, 20),),
    "renamed": (protocol.Checkpoint(1, 10),),
}
GROUPS = (
    protocol.Group("train", RESUME["train"], "10.0.0.0:1000"),
    protocol.Group("evaluator", RESUME["evaluator"], "10.0.0.2:1002"),
    protocol.Group("renamed", RESUME["renamed"]),
)
TWO_GROUPS = number_ranks(
    [
        Role(2, {}, "worker", "train", ranks_per_pod=4),
        Role(1, {}, "evaluator", ranks_per_pod=1),
        Role(1, {}, "helper", "train", ranks_per_pod=2),
    ]
)


def _two_groups(
    resume: Mapping[str, tuple[protocol.Checkpoint, ...]] = RESUME,
) -> tuple[Sessions, dict[int, protocol.Registered]]:
    """A gang of two groups whose four launchers are registered."""
    sessions = Sessions(clock=lambda: 100.0, wake=lambda: None)
    nodes = ("n0", "n1", "n0", "n2")
    sessions.expect(JOB, 2, nodes=nodes, layout=TWO_GROUPS, resume=resume)
    answers = {}
    for _ in range(2):
        for rank, processes in enumerate((4, 4, 1, 2)):
            member = protocol.Member(JOB, 2, rank)
            register = protocol.Register(member, f"10.0.0.{rank}", 1000 + rank, processes)
            answers[rank] = sessions.register(register, f"pod-{rank}")
    return sessions, answers


def test_each_group_has_a_world_and_a_master_of_its_own() -> None:
    """All launchers of all roles pass one barrier."""
    _, answers = _two_groups()
    worlds = {rank: answer.world for rank, answer in answers.items()}
    assert worlds[1] == protocol.WorldInfo(
        *(10, 3, 4, "10.0.0.0", 1000),
        group_rank=1,
        role_rank=4,
        role_size=8,
        group="train",
        groups=GROUPS,
    )
    assert worlds[2] == protocol.WorldInfo(
        *(1, 1, 0, "10.0.0.2", 1002),
        group_rank=0,
        role_rank=0,
        role_size=1,
        group="evaluator",
        groups=GROUPS,
    )
    assert worlds[3] == protocol.WorldInfo(
        *(10, 3, 8, "10.0.0.0", 1000),
        group_rank=2,
        role_rank=0,
        role_size=2,
        group="train",
        groups=GROUPS,
    )


def test_launchers_accept_a_start_after_many_renames() -> None:
    """Each rename leaves the checkpoints of a group; the answer has those of the gang first."""
    old = {f"old{at}": (protocol.Checkpoint(1, 1),) for at in range(protocol.GROUPS_MAX)}
    _, answers = _two_groups(old | RESUME)
    answer = protocol.decode(protocol.Registered, protocol.encode(answers[0]))
    assert answer.world is not None
    named = [group.name for group in answer.world.groups]
    assert len(named) == protocol.GROUPS_MAX
    assert named[:2] == ["train", "evaluator"]


def test_progress_counts_of_the_group_that_trains_alone() -> None:
    sessions, _ = _two_groups()
    for rank, (processes, step) in enumerate(((4, 7), (4, 8), (1, 99), (2, 7))):
        member = protocol.Member(JOB, 2, rank)
        heartbeat = protocol.Heartbeat(
            member, 1, running=processes, exited=0, progress=protocol.Progress(step=step)
        )
        sessions.heartbeat(heartbeat, f"pod-{rank}")
    view = sessions.attempt(JOB, 2)
    assert view is not None
    assert view.progress == protocol.Progress(step=7)


def test_first_pod_of_each_group_commits_for_its_group() -> None:
    """A commit of one group that is not recorded yet keeps no other group waiting."""
    sessions, _ = _two_groups()
    commits = {rank: protocol.Commit(protocol.Member(JOB, 2, rank), 7) for rank in range(4)}
    for rank in (1, 3):
        with pytest.raises(RefusedError, match=f"node rank {rank} commits, expected 0"):
            sessions.claim_commit(commits[rank], f"pod-{rank}")
    assert sessions.claim_commit(commits[0], "pod-0") == "train"
    assert sessions.claim_commit(commits[2], "pod-2") == "evaluator"
    with pytest.raises(RefusedError, match="not recorded yet"):
        sessions.claim_commit(commits[2], "pod-2")
    sessions.settle_commit(commits[0], recorded=True)
    sessions.settle_commit(commits[2], recorded=False)
    earlier = protocol.Commit(protocol.Member(JOB, 2, 2), 3)
    assert sessions.claim_commit(earlier, "pod-2") == "evaluator"


def test_failure_names_a_rank_of_its_own_pod() -> None:
    """Ranks are those of the group: the last role of the group begins at 8."""
    sessions, _ = _two_groups()
    member = protocol.Member(JOB, 2, 3)
    first, beyond = (
        protocol.Heartbeat(member, rank, running=1, exited=0, failure=protocol.Failure(rank, 1))
        for rank in (8, 10)
    )
    sessions.heartbeat(first, "pod-3")
    with pytest.raises(RefusedError, match=r"failure\.rank is 10, expected 8 to 9"):
        sessions.heartbeat(beyond, "pod-3")


def test_group_at_the_barrier_starts_after_a_restart() -> None:
    """The workers run when the operator restarts; the evaluator has not had its answer yet."""
    sessions = Sessions(clock=lambda: 100.0, wake=lambda: None)
    nodes = ("n0", "n1", "n0", "n2")
    sessions.expect(JOB, 2, nodes=nodes, layout=TWO_GROUPS, resume=RESUME)
    for rank, processes in ((0, 4), (1, 4), (3, 2)):
        member = protocol.Member(JOB, 2, rank)
        running = protocol.Heartbeat(
            member, 1, running=processes, exited=0, master_address="10.0.0.0", master_port=1000
        )
        sessions.heartbeat(running, f"pod-{rank}")
    member = protocol.Member(JOB, 2, 2)
    answer = sessions.register(protocol.Register(member, "10.0.0.2", 1002, 1), "pod-2")
    assert answer.world is not None
    assert (answer.world.master_address, answer.world.master_port) == ("10.0.0.2", 1002)


@pytest.mark.parametrize(("steps", "expected"), [((0, 77, 78), 77), ((5, None, None), 5)])
def test_progress_is_that_of_the_training_role_in_its_group(
    steps: tuple[int | None, ...], expected: int
) -> None:
    """A server of its group may report steps of its own; they count while no worker reports."""
    roles = [Role(1, {}, "server", "train"), Role(2, {}, "worker", "train")]
    sessions = Sessions(clock=lambda: 100.0, wake=lambda: None)
    layout = number_ranks(roles, training="worker")
    sessions.expect(JOB, 2, nodes=("n0", "n1", "n2"), layout=layout, resume={})
    for rank, step in enumerate(steps):
        progress = None if step is None else protocol.Progress(step=step)
        member = protocol.Member(JOB, 2, rank)
        heartbeat = protocol.Heartbeat(member, 1, running=1, exited=0, progress=progress)
        sessions.heartbeat(heartbeat, f"pod-{rank}")
    view = sessions.attempt(JOB, 2)
    assert view is not None
    assert view.progress == protocol.Progress(step=expected)


def test_evaluation_of_another_group_is_no_pause_of_training() -> None:
    """A worker that lags is found while an evaluator evaluates."""
    now_s = 100.0
    sessions = Sessions(clock=lambda: now_s, wake=lambda: None)
    sessions.expect(JOB, 2, nodes=("n0", "n1", "n0", "n2"), layout=TWO_GROUPS, resume={})
    now_s = 200.0
    phase = protocol.Phase.EVALUATING
    steps = protocol.Steps(1, 1, (0,), 0, 1, 0, 0, 0, 0, 0, phase=phase, finishing=False)
    for rank, since_s in ((2, 100.0), (0, 200.0)):
        member = protocol.Member(JOB, 2, rank)
        sessions.heartbeat(
            protocol.Heartbeat(member, 1, running=1, exited=0, steps=steps), f"pod-{rank}"
        )
        view = sessions.attempt(JOB, 2)
        assert view is not None
        assert view.training_since_s == since_s


def test_progress_is_that_of_the_group_that_trains() -> None:
    """Its rank 0 may be in another role than the one with the workload."""
    layout = number_ranks(
        [Role(1, {}, "evaluator"), Role(1, {}, "head", "train"), Role(2, {}, "worker", "train")],
        training="worker",
    )
    sessions = Sessions(clock=lambda: 100.0, wake=lambda: None)
    sessions.expect(JOB, 2, nodes=("n0", "n1", "n2", "n3"), layout=layout, resume={})
    committed = protocol.Checkpoint(2, 5)
    for rank, step in ((0, 99), (1, 7)):
        beat_of = protocol.Heartbeat(
            protocol.Member(JOB, 2, rank),
            1,
            running=1,
            exited=0,
            progress=protocol.Progress(step=step),
            committed=committed if rank else None,
            saved=protocol.Saved(4096, 1.5) if rank else None,
        )
        sessions.heartbeat(beat_of, f"pod-{rank}")
    view = sessions.attempt(JOB, 2)
    assert view is not None
    master = view.master_of("train")
    assert master is not None
    assert (view.progress, master.committed) == (protocol.Progress(step=7), committed)
    assert master.saved == protocol.Saved(4096, 1.5)
    assert view.master_of("other") is None
