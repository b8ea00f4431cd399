"""The start barrier of a gang of two groups: one barrier, and a world of ranks for each."""

from __future__ import annotations

import pytest

from railwright import protocol
from railwright_operator.heartbeats.messages import RefusedError
from railwright_operator.heartbeats.sessions import Sessions
from railwright_scheduler import Role
from railwright_scheduler.model.rank_layout import number_ranks

JOB = "job-uid"
RESUME = (protocol.Checkpoint(1, 30),)
TWO_GROUPS = number_ranks(
    [
        Role(2, {}, "worker", "train", ranks_per_pod=4),
        Role(1, {}, "evaluator", ranks_per_pod=1),
        Role(1, {}, "helper", "train", ranks_per_pod=2),
    ]
)


def _two_groups() -> tuple[Sessions, dict[int, protocol.Registered]]:
    """A gang of two groups whose four launchers are registered."""
    sessions = Sessions(clock=lambda: 100.0, wake=lambda: None)
    nodes = ("n0", "n1", "n0", "n2")
    sessions.expect(JOB, 2, nodes=nodes, layout=TWO_GROUPS, resume=RESUME)
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
        *(10, 3, 4, "10.0.0.0", 1000), group_rank=1, role_rank=4, role_size=8, resume=RESUME
    )
    assert worlds[2] == protocol.WorldInfo(
        *(1, 1, 0, "10.0.0.2", 1002), group_rank=0, role_rank=0, role_size=1, resume=RESUME
    )
    assert worlds[3] == protocol.WorldInfo(
        *(10, 3, 8, "10.0.0.0", 1000), group_rank=2, role_rank=0, role_size=2, resume=RESUME
    )


def test_only_the_group_that_trains_commits_and_counts() -> None:
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
    with pytest.raises(RefusedError, match="group evaluator commits, expected group train"):
        sessions.claim_commit(protocol.Commit(protocol.Member(JOB, 2, 2), 7), "pod-2")
    with pytest.raises(RefusedError, match="node rank 3 commits, expected 0"):
        sessions.claim_commit(protocol.Commit(protocol.Member(JOB, 2, 3), 7), "pod-3")
    sessions.claim_commit(protocol.Commit(protocol.Member(JOB, 2, 0), 7), "pod-0")


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
