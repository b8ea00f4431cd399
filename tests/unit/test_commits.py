"""Checkpoint commits: granted once they are in the job's status, refused once it is over."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

import pytest

from fixtures import attempts
from fixtures.jobs import layout
from railwright import protocol
from railwright_kube.errors import Unreachable
from railwright_operator.heartbeats.views import LauncherView, SessionView
from railwright_operator.report.commits import Commits
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.resume_points import ResumePoint
from railwright_scheduler.model.rank_layout import number_ranks
from railwright_scheduler.model.snapshot import Role

RUNNING = attempts.RUNNING


@dataclass
class Desk:
    """Commits and the requests that wait."""

    woken: int = 0

    def __post_init__(self) -> None:
        self.commits = Commits(self.wake)

    def wake(self) -> None:
        self.woken += 1

    async def ask(self, step: int, *, attempt: int = 1) -> asyncio.Task[None]:
        task = asyncio.create_task(self.commits.ask("a", "worker", attempt, step))
        await asyncio.sleep(0)
        return task

    def fold(self, record: JobRecord, view: SessionView | None = None) -> JobRecord:
        return self.commits.fold("a", record, view, layout(1))


def view(
    *, committed: protocol.Checkpoint | None = None, resumed_from: protocol.Checkpoint | None = None
) -> SessionView:
    rank = LauncherView(0, "n0", committed=committed, resumed_from=resumed_from)
    return SessionView("a", 1, layout(1), (rank,), (), started_at_s=0.0, revoked=False)


async def test_a_step_is_granted_when_it_is_recorded_and_not_before() -> None:
    desk = Desk()
    asked = await desk.ask(10)
    assert desk.woken == 1
    after = desk.fold(RUNNING)
    assert after.checkpoints == (ResumePoint("worker", 1, 10),)
    desk.commits.recorded("a", RUNNING)
    await asyncio.sleep(0)
    assert not asked.done()
    desk.commits.recorded("a", after)
    await asyncio.wait_for(asked, 1)
    assert repr(desk.commits) == "<Commits jobs=0>"


async def test_repeated_commit_of_a_step_is_answered_twice() -> None:
    desk = Desk()
    tasks = [await desk.ask(10), await desk.ask(10)]
    desk.commits.recorded("a", desk.fold(RUNNING))
    await asyncio.wait_for(asyncio.gather(*tasks), 1)


async def test_cancelled_commit_does_not_cancel_the_others() -> None:
    desk = Desk()
    gone, stays = await desk.ask(10), await desk.ask(10)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    desk.commits.recorded("a", desk.fold(RUNNING))
    await asyncio.wait_for(stays, 1)


async def test_an_attempt_that_is_over_commits_nothing() -> None:
    desk = Desk()
    asked = await desk.ask(10)
    over = attempts.RECOVERING
    assert desk.fold(over) == over
    desk.commits.recorded("a", over)
    with pytest.raises(Unreachable, match="attempt 1 is over: step 10 was not recorded"):
        await asyncio.wait_for(asked, 1)


async def test_an_old_attempt_is_refused_while_a_new_one_runs() -> None:
    desk = Desk()
    old = await desk.ask(10)
    second = JobRecord(phase=Phase.RUNNING, attempt=2, ended=1, nodes=attempts.NODES)
    assert desk.fold(second).checkpoints == ()
    desk.commits.recorded("a", second)
    with pytest.raises(Unreachable):
        await asyncio.wait_for(old, 1)


async def test_deleted_job_refuses_all_waiting_commits() -> None:
    desk = Desk()
    tasks = [await desk.ask(10), await desk.ask(20)]
    desk.commits.refuse("a")
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [Unreachable, Unreachable]


def test_commit_reported_in_a_heartbeat_counts_too() -> None:
    reported = view(committed=protocol.Checkpoint(1, 30))
    assert Desk().fold(RUNNING, reported).checkpoints == (ResumePoint("worker", 1, 30),)
    foreign = view(committed=protocol.Checkpoint(2, 30))
    assert Desk().fold(RUNNING, foreign).checkpoints == ()


def test_a_step_never_goes_back() -> None:
    held = replace(RUNNING, checkpoints=(ResumePoint("worker", 1, 30),))
    assert Desk().fold(held, view(committed=protocol.Checkpoint(1, 20))) == held


def test_points_beyond_resume_point_are_dropped() -> None:
    second = JobRecord(
        phase=Phase.RUNNING,
        attempt=3,
        ended=2,
        nodes=attempts.NODES,
        checkpoints=(ResumePoint("worker", 2, 50), ResumePoint("worker", 1, 30)),
    )
    folded = Desk().fold(second, view(resumed_from=protocol.Checkpoint(1, 25)))
    assert folded.checkpoints == (ResumePoint("worker", 1, 25),)
    as_fixed = Desk().fold(second, view(resumed_from=protocol.Checkpoint(2, 50)))
    assert as_fixed == second


def test_resume_from_own_checkpoint_changes_nothing() -> None:
    """No attempt can: its launcher is wrong, and what older ones wrote stays readable."""
    record = replace(RUNNING, attempt=2, ended=1, checkpoints=(ResumePoint("worker", 1, 30),))
    own = view(resumed_from=protocol.Checkpoint(2, 10))
    assert Desk().fold(record, own) == record


async def test_each_group_has_commits_and_points_of_its_own() -> None:
    """The evaluator's commit waits for its own point, and its resume point moves no other's."""
    commits = Commits(lambda: None)
    groups = number_ranks([Role(1, {}, "worker"), Role(1, {}, "evaluator")])
    held = (ResumePoint("evaluator", 1, 40), ResumePoint("worker", 1, 50))
    live = JobRecord(Phase.RUNNING, attempt=2, ended=1, nodes=("n0", "n1"), checkpoints=held)
    asked = asyncio.create_task(commits.ask("a", "evaluator", 2, 60))
    await asyncio.sleep(0)
    ranks = (
        LauncherView(0, "n0", committed=protocol.Checkpoint(2, 70)),
        LauncherView(1, "n1", resumed_from=protocol.Checkpoint(1, 30)),
    )
    two = SessionView("a", 2, groups, ranks, (), started_at_s=0.0, revoked=False)
    commits.recorded("a", replace(live, checkpoints=(ResumePoint("worker", 2, 60), *held)))
    await asyncio.sleep(0)
    assert not asked.done()
    after = commits.fold("a", live, two, groups)
    assert after.checkpoints == (
        ResumePoint("evaluator", 2, 60),
        ResumePoint("worker", 2, 70),
        ResumePoint("evaluator", 1, 30),
        ResumePoint("worker", 1, 50),
    )
    commits.recorded("a", after)
    await asyncio.wait_for(asked, 1)
