"""Who runs where: read from the Placement, or from the pods of an attempt that has none."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from fixtures.observing import JOB, LEDGER, Watched, raw_job
from railwright_operator.placed_pods import UNKNOWN_NODE
from railwright_operator.watch import owned
from railwright_scheduler.attempt.assessment import Ended, Ongoing
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.ledger import Entry, EntryRole, EntryState
from railwright_scheduler.attempt.phases import Phase

LIVE = (Phase.STARTING, Phase.RUNNING, Phase.PROFILING)


def new_leader(phase: Phase, *, num_nodes: int = 3, attempt: int = 1, **status: Any) -> Watched:
    """A leader that has listed the job and its pods, and no Placement."""
    seen = Watched(num_nodes=num_nodes, phase=Phase.QUEUED)
    live = phase in LIVE
    counts = {"attempt": attempt, "endedAttempt": attempt - live}
    if live:
        counts["nodes"] = num_nodes
    seen.jobs.absorb(raw_job(9, num_nodes, {"phase": phase.value} | counts | status))
    return seen


def nodes_of(seen: Watched) -> tuple[str, ...]:
    return seen.world().jobs[0].record.nodes


@pytest.mark.parametrize("phase", LIVE)
def test_new_leader_reads_nodes_from_the_placement(phase: Phase) -> None:
    seen = new_leader(phase)
    seen.place(nodes=("n2", "n0", "n1"))
    assert nodes_of(seen) == ("n2", "n0", "n1")


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING])
def test_attempt_without_placement_continues(
    phase: Phase, caplog: pytest.LogCaptureFixture
) -> None:
    seen = new_leader(phase)
    with caplog.at_level(logging.WARNING):
        assert isinstance(seen.verdict(), Ongoing)
        assert isinstance(seen.verdict(after_s=1.0), Ongoing)
    assert nodes_of(seen) == ("n0", "n1", "n2")
    assert caplog.messages.count("placement missing, nodes read from pods") == 1


def test_deleted_placement_changes_nothing_for_its_leader() -> None:
    seen = new_leader(Phase.RUNNING)
    placed = owned.PlacementRecord("p", "team", "job-1", 1, JOB, ("n2", "n0", "n1"), "before")
    seen.jobs.placement_changed(None, placed)
    seen.jobs.placement_changed(placed, None)
    seen.jobs.absorb(raw_job(10, 3, {"phase": "Running", "attempt": 1, "nodes": 3}))
    assert nodes_of(seen) == ("n2", "n0", "n1")
    (cached,) = seen.jobs.all()
    assert cached.object.rv == 10


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING])
def test_missing_pod_without_placement_ends_the_attempt(phase: Phase) -> None:
    seen = new_leader(phase)
    (pod,) = (each for each in seen.pods.of((JOB, 1)) if each.node_rank == 2)
    seen.pods.change(pod, None)
    verdict = seen.verdict()
    assert isinstance(verdict, Ended)
    assert verdict.cause.code is CauseCode.POD_DELETED
    assert nodes_of(seen) == ("n0", "n1", UNKNOWN_NODE)
    (entry,) = seen.run_cycle().ledger.entries
    assert (entry.state, entry.nodes) == (EntryState.ABORTING, ("n0", "n1", UNKNOWN_NODE))


def test_smaller_spec_leaves_no_pod_of_the_attempt_out() -> None:
    """It was changed while the job was suspended, before this leader saw the job. The pod of a
    forged rank sizes nothing."""
    seen = new_leader(Phase.RUNNING)
    seen.pod(0, claims=10**9)
    seen.jobs.absorb(raw_job(10, 2, {"phase": "Running", "attempt": 1, "nodes": 3}))
    assert nodes_of(seen)[1:] == ("n1", "n2")


def test_pre_run_without_placement_has_the_pods_of_its_status() -> None:
    """It has fewer pods than the job."""
    seen = new_leader(Phase.PROFILING)
    seen.jobs.absorb(raw_job(10, 3, {"phase": "Profiling", "attempt": 1, "nodes": 2}))
    assert nodes_of(seen) == ("n0", "n1")


@pytest.mark.parametrize(("stated", "count"), [(0, 1), (10**12, 3)])
def test_forged_number_of_nodes_is_bounded_by_the_job(stated: int, count: int) -> None:
    seen = new_leader(Phase.PROFILING)
    seen.jobs.absorb(raw_job(10, 3, {"phase": "Profiling", "attempt": 1, "nodes": stated}))
    assert len(nodes_of(seen)) == count


def test_attempt_without_placement_and_pods_ends() -> None:
    seen = new_leader(Phase.PROFILING)
    for pod in seen.pods.of((JOB, 1)):
        seen.pods.change(pod, None)
    seen.jobs.absorb(raw_job(10, 3, {"phase": "Profiling", "attempt": 1}))
    assert isinstance(seen.verdict(), Ended)
    assert nodes_of(seen) == (UNKNOWN_NODE,)


def test_nodes_of_a_committing_attempt_are_in_the_ledger() -> None:
    """Its Placement may not be written yet, or not be there yet."""
    seen = new_leader(Phase.STARTING, num_nodes=2)
    roles = (EntryRole("worker", 2, {"pods": 1}),)
    entry = Entry(JOB, "team", "job", 1, EntryState.COMMITTING, ("n1", "n0"), roles)
    world = seen.world(LEDGER.with_entries([entry]))
    assert world.jobs[0].record.nodes == ("n1", "n0")


def test_recovering_job_needs_no_placement() -> None:
    """A new leader has its counts and its checkpoints, and its next attempt gets new nodes."""
    ended = {"attempt": 3, "cause": "RankFailed", "message": "rank 1 exited with 3"}
    points = [{"attempt": 3, "group": "worker", "step": 40}]
    stored: dict[str, Any] = {"lastTermination": ended, "checkpoints": points}
    seen = new_leader(Phase.RECOVERING, attempt=3, restarts=2, failures=1, **stored)
    (cached,) = seen.jobs.all()
    record = seen.world().jobs[0].record
    assert record == cached.record
    assert (record.restarts, record.failures, record.nodes) == (2, 1, ())
    assert [(point.attempt, point.step) for point in record.checkpoints] == [(3, 40)]
    assert seen.run_cycle().records[JOB].attempt == 3


@pytest.mark.parametrize("nodes", [("n0", ".."), ("n0", ""), ("n" * 250,) * 4001], ids=len)
def test_placement_with_invalid_nodes_counts_as_missing(nodes: tuple[str, ...]) -> None:
    metadata = {"uid": "p", "namespace": "team", "name": "job-1", "resourceVersion": "1"}
    spec = {"jobUID": JOB, "attempt": 1, "nodes": list(nodes)}
    found = owned.placement(owned.answered({"metadata": metadata, "spec": spec}))
    assert found.nodes == ()
    seen = new_leader(Phase.RUNNING)
    seen.jobs.placement_changed(None, found)
    assert nodes_of(seen) == ("n0", "n1", "n2")


def test_nodes_of_another_jobs_placement_do_not_count() -> None:
    seen = new_leader(Phase.RUNNING)
    placed = owned.PlacementRecord("p", "team", "job-1", 1, "other", ("n9",) * 3, "before")
    seen.jobs.placement_changed(None, placed)
    seen.jobs.placement_changed(None, replace(placed, uid="q", name="job-2", job_uid=JOB))
    assert nodes_of(seen) == ("n0", "n1", "n2")
