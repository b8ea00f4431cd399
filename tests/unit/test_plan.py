"""One scheduling cycle: the ledger, the actions, and every job's record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fixtures import GPU, node
from fixtures.attempts import (
    FAILED,
    LOST,
    NODES,
    RECOVERING,
    RUNNING,
    SUSPENDED,
    crash,
    entry,
    pods,
    rank,
    seen,
    world_of,
)
from fixtures.jobs import with_role
from railwright_scheduler import commit_plan
from railwright_scheduler.attempt.assessment import Ended, Succeeded
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.gang import DeletePod, WritePlacement
from railwright_scheduler.attempt.ledger import ABORTING_SIZE_MAX, EntryState
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.cluster import NODE_AMOUNT_MAX
from railwright_scheduler.cluster_state import ObservedAttempt, ObservedJob
from railwright_scheduler.model.evidence import Crash, PodState
from railwright_scheduler.model.reasons import BindingBacklog
from railwright_scheduler.model.shortages import NotEnoughNodes
from railwright_scheduler.model.snapshot import Unavailable
from railwright_scheduler.plan import Plan, plan
from railwright_scheduler.policy import admission

FREE = tuple(node(f"n{i}") for i in range(4))
BUSY = (*(node(n, used={GPU: 8}) for n in NODES), node("n2"), node("n3"))


def entries(taken: Plan) -> list[str]:
    return [f"{e.job_uid}/{e.attempt} {e.state} {' '.join(e.nodes)}" for e in taken.ledger.entries]


def deleted(taken: Plan) -> list[str]:
    return [action.pod.uid for action in taken.actions if isinstance(action, DeletePod)]


def test_a_job_that_fits_is_committed_and_placed() -> None:
    taken = plan(world_of(seen(), nodes=FREE))
    assert entries(taken) == ["a/1 Committing n0 n1"]
    assert [type(action) for action in taken.actions] == [WritePlacement]
    assert taken.records["a"].phase is Phase.STARTING


def test_a_job_that_does_not_fit_waits_with_its_numbers() -> None:
    taken = plan(world_of(seen(), nodes=(node("n0"), node("n1", used={GPU: 1}))))
    reason = taken.waits["a"]
    assert isinstance(reason, NotEnoughNodes)
    assert (reason.need, reason.free) == (2, 1)
    assert not taken.ledger.entries


def test_two_jobs_are_not_given_one_node() -> None:
    taken = plan(world_of(seen(), seen(name="b"), seen(name="c"), nodes=FREE))
    assert entries(taken) == ["a/1 Committing n0 n1", "b/1 Committing n2 n3"]
    assert list(taken.waits) == ["c"]


@pytest.mark.parametrize(("line", "free"), [(". .", 2), ("n0 -", 3), ("n0! n1", 3), ("n0 n1", 4)])
def test_capacity_is_assumed_for_every_unbound_rank_of_a_commit(line: str, free: int) -> None:
    # The nodes say that nothing is used, so what is missing here is only the debt.
    attempts = {("a", 1): ObservedAttempt(pods=pods(line), placed=True)}
    jobs = (seen(), seen(name="b", job=with_role(seen(name="b").job, replicas=4)))
    taken = plan(world_of(*jobs, nodes=FREE, entries=(entry(),), attempts=attempts))
    reason = taken.waits.get("b")
    assert (reason.free if isinstance(reason, NotEnoughNodes) else 4) == free


def test_job_changed_while_binding_restarts() -> None:
    attempts = {("a", 1): ObservedAttempt(pods=pods("- ."), placed=True)}
    under_way = (entry(spec_hash="2-before"),)
    changed = world_of(seen(spec_hash="2-now"), nodes=FREE, entries=under_way, attempts=attempts)
    taken = plan(changed)
    assert entries(taken) == ["a/1 Aborting n0 n1"]
    assert deleted(taken) == ["u10"]
    record = taken.records["a"]
    assert (record.ended, record.failures, record.backoff_s) == (1, 0, 0)


@pytest.mark.parametrize(
    ("spec_hash", "goes_on"), [("1-before", False), ("2-now", True), ("", False)]
)
def test_commit_goes_on_with_the_spec_that_it_began_with(spec_hash: str, goes_on: bool) -> None:
    """Pods are created of no other: not after an upgrade that hashes otherwise, and not of a job
    that cannot be read any more."""
    attempts = {("a", 1): ObservedAttempt(pods=pods("- ."), placed=True)}
    world = world_of(
        seen(spec_hash=spec_hash),
        nodes=FREE,
        entries=(entry(spec_hash="2-now"),),
        attempts=attempts,
    )
    assert (entries(plan(world)) == ["a/1 Committing n0 n1"]) is goes_on


def test_running_job_changed_unseen_restarts_with_new_spec() -> None:
    record = replace(RUNNING, spec_hash="1-before")
    taken = plan(world_of(seen(record, spec_hash="1-now"), nodes=BUSY))
    (revoked,) = taken.ledger.entries
    assert revoked.cause is not None
    assert (revoked.cause.code, "its spec was changed" in revoked.cause.message) == (
        CauseCode.SUSPENDED,
        True,
    )
    now = taken.records["a"]
    assert (now.ended, now.spec_hash, now.failures, now.restarts) == (1, "", 0, 0)


@pytest.mark.parametrize("spec_hash", ["2-now", "1-before", ""])
def test_running_job_with_equal_or_unknown_hash_goes_on(spec_hash: str) -> None:
    taken = plan(
        world_of(seen(replace(RUNNING, spec_hash=spec_hash), spec_hash="2-now"), nodes=BUSY)
    )
    assert not taken.ledger.entries


def test_committed_attempt_keeps_the_spec_of_its_decision() -> None:
    taken = plan(world_of(seen(spec_hash="now"), nodes=FREE))
    assert [each.spec_hash for each in taken.ledger.entries] == ["now"]
    assert taken.records["a"].spec_hash == "now"


def test_crashed_rank_revokes_attempt_and_deletes_pods() -> None:
    job = seen(RUNNING, ranks=(crash(0, age_s=1.0), rank(1, silent_s=0.5)))
    attempts = {("a", 1): ObservedAttempt(pods=pods("n0! n1"))}
    taken = plan(world_of(job, nodes=BUSY, attempts=attempts))
    assert entries(taken) == ["a/1 Aborting n0 n1"]
    assert deleted(taken) == ["u11"]
    now = taken.records["a"]
    assert (now.phase, now.failures, now.ended) == (Phase.RECOVERING, 1, 1)


@pytest.mark.parametrize(
    ("line", "starts"),
    [("n0 n1", False), ("n0~ n1", False), ("n0~ n1~", True), ("n0! n1~", True), ("- .", False)],
)
def test_new_attempt_starts_once_every_old_pod_is_deleting(line: str, starts: bool) -> None:
    attempts = {("a", 1): ObservedAttempt(pods=pods(line))}
    lost = (entry(cause=LOST),)
    taken = plan(world_of(seen(RECOVERING), nodes=BUSY, entries=lost, attempts=attempts))
    assert ("a/2 Committing n2 n3" in entries(taken)) is starts


def test_a_new_attempt_waits_for_the_record_of_the_old_ones_end() -> None:
    attempts = {("a", 1): ObservedAttempt(pods=pods("n0~ n1~"))}
    unrecorded = seen(replace(RUNNING, phase=Phase.RUNNING))
    taken = plan(world_of(unrecorded, nodes=BUSY, entries=(entry(cause=LOST),), attempts=attempts))
    assert entries(taken) == ["a/1 Aborting n0 n1"]


@pytest.mark.parametrize(("ended_age_s", "starts"), [(4.9, False), (5.0, True)])
def test_a_failure_waits_out_its_backoff(ended_age_s: float, starts: bool) -> None:
    failed = replace(RECOVERING, failure_times_s=(1,), last_termination=FAILED)
    taken = plan(world_of(seen(failed, ended_age_s=ended_age_s), nodes=FREE))
    assert bool(taken.ledger.entries) is starts


def test_lost_node_takes_no_job_while_its_pods_may_run() -> None:
    attempts = {("a", 1): ObservedAttempt(pods=pods("n0! n1~"))}
    nodes = (node("n0"), node("n1"))
    jobs = (seen(RECOVERING), seen(name="b"))
    taken = plan(world_of(*jobs, nodes=nodes, entries=(entry(cause=LOST),), attempts=attempts))
    assert entries(taken) == ["a/1 Aborting n0 n1"]
    assert list(taken.waits) == ["a", "b"]
    assert taken.records["a"].phase is Phase.QUEUED


def test_deposed_leader_plans_no_second_commit() -> None:
    """Its record says that the attempt ended, and the entry still commits."""
    record = JobRecord(phase=Phase.QUEUED, attempt=1, ended=1)
    nodes = (node("n0"), node("n1"), node("n2"), node("n3"))
    taken = plan(world_of(seen(record), nodes=nodes, entries=(entry(),)))
    assert entries(taken) == ["a/1 Committing n0 n1"]


def test_lost_node_without_pods_is_used_again() -> None:
    attempts = {("a", 1): ObservedAttempt(pods=pods("n0~ ."))}
    nodes = (node("n0", used={GPU: 8}), node("n1"), node("n2"))
    both = Cause(CauseCode.NODE_LOST, "two nodes are lost", nodes=("n0", "n1"))
    taken = plan(
        world_of(seen(RECOVERING), nodes=nodes, entries=(entry(cause=both),), attempts=attempts)
    )
    assert entries(taken) == ["a/1 Aborting n0 n1", "a/2 Committing n1 n2"]


def test_of_equal_nodes_a_job_gets_its_unblamed_ones_back() -> None:
    attempts = {("a", 1): ObservedAttempt(pods=pods("n1~ ."))}
    both = entry(cause=LOST, nodes=("n1", "n4"))
    nodes = (node("n1", used={GPU: 8}), *(node(f"n{at}") for at in range(2, 6)))
    world = world_of(seen(RECOVERING), nodes=nodes, entries=(both,), attempts=attempts)
    assert entries(plan(world)) == ["a/1 Aborting n1 n4", "a/2 Committing n2 n4"]
    blamed = replace(both, cause=Cause(CauseCode.RANK_FAILED, "it failed", node="n4"))
    world = world_of(seen(RECOVERING), nodes=nodes, entries=(blamed,), attempts=attempts)
    assert entries(plan(world)) == ["a/1 Aborting n1 n4", "a/2 Committing n2 n3"]


@pytest.mark.parametrize(
    ("unavailable", "phase"),
    [
        (None, Phase.RECOVERING),
        (Unavailable.CORDONED, Phase.RECOVERING),
        (Unavailable.UNREADY, Phase.QUEUED),
        (Unavailable.LOST, Phase.QUEUED),
    ],
)
def test_job_recovers_while_pods_stop_and_queues_if_they_cannot(
    unavailable: Unavailable | None, phase: Phase
) -> None:
    """The phase is Recovering while the pods of the old attempt end, else Queued."""
    # The node died after the attempt's end, so the cause does not name it.
    nodes = (node("n0", used={GPU: 8}, unavailable=unavailable), node("n1"))
    attempts = {("a", 1): ObservedAttempt(pods=pods("n0~ n1!"))}
    revoked = (entry(cause=LOST),)
    taken = plan(world_of(seen(RECOVERING), nodes=nodes, entries=revoked, attempts=attempts))
    assert taken.records["a"].phase is phase
    assert "a" in taken.waits


def test_suspended_job_ends_attempt_even_if_a_rank_failed() -> None:
    for ranks in ((rank(0), rank(1)), (crash(0, age_s=1.0), rank(1, silent_s=0.5))):
        taken = plan(world_of(seen(RUNNING, suspend=True, ranks=ranks), nodes=BUSY))
        assert taken.ledger.entries[0].cause == SUSPENDED
        assert taken.records["a"].phase is Phase.SUSPENDED


def test_resumed_job_starts_in_the_same_cycle() -> None:
    suspended = JobRecord(phase=Phase.SUSPENDED, attempt=1, ended=1)
    taken = plan(world_of(seen(suspended), nodes=FREE))
    assert entries(taken) == ["a/2 Committing n0 n1"]
    assert taken.records["a"].phase is Phase.STARTING


def test_a_commit_whose_job_is_gone_is_aborted() -> None:
    attempts = {("a", 1): ObservedAttempt(pods=pods("n0 -"), placed=True)}
    taken = plan(world_of(nodes=FREE, entries=(entry(),), attempts=attempts))
    (aborted,) = taken.ledger.entries
    assert aborted.state is EntryState.ABORTING
    assert aborted.cause is not None
    assert aborted.cause.code is CauseCode.JOB_DELETED
    assert deleted(taken) == ["u10", "u11"]


def test_pods_made_after_their_attempt_was_over_are_deleted() -> None:
    attempts = {
        ("a", 1): ObservedAttempt(pods=pods("- .")),
        ("a", 2): ObservedAttempt(pods=pods("n0 n1")),
    }
    second = replace(RUNNING, attempt=2, ended=1)
    taken = plan(world_of(seen(second), nodes=BUSY, attempts=attempts))
    assert deleted(taken) == ["u10"]
    assert not taken.ledger.entries


def test_the_pods_of_an_attempt_that_succeeded_are_left_to_end() -> None:
    attempts = {("a", 1): ObservedAttempt(pods=pods("n0 n1!"))}
    done = replace(RUNNING, phase=Phase.SUCCEEDED, ended=1)
    soon = replace(seen(done), ended_age_s=commit_plan.SIDECAR_S - 1)
    assert not plan(world_of(soon, nodes=BUSY, attempts=attempts)).actions


def test_a_sidecar_that_outlives_a_success_is_ended() -> None:
    attempts = {("a", 1): ObservedAttempt(pods=pods("n0 n1!"))}
    done = replace(RUNNING, phase=Phase.SUCCEEDED, ended=1)
    late = replace(seen(done), ended_age_s=commit_plan.SIDECAR_S + 1)
    assert deleted(plan(world_of(late, nodes=BUSY, attempts=attempts))) == ["u10"]


def test_pod_of_unknown_rank_is_not_in_the_gang() -> None:
    stray = replace(pods("n0 -")[0], node_rank=99, uid="u99", name="a-1-99")
    attempts = {("a", 1): ObservedAttempt(pods=(*pods("n0 -"), stray), placed=True)}
    taken = plan(world_of(seen(), nodes=FREE, entries=(entry(),), attempts=attempts))
    assert taken.ledger.entries[0].state is EntryState.COMMITTING


def test_full_ledger_takes_the_other_gangs_in_a_later_cycle() -> None:
    last_words = Crash(rank=0, exit_code=1, age_s=60.0, last_lines="x" * 2048)
    crashed = rank(0, pod=PodState.FAILED, crash=last_words)
    jobs = [seen(RUNNING, name=f"j{i:03}", ranks=(crashed, rank(1))) for i in range(1500)]
    taken = plan(world_of(*jobs, nodes=BUSY))
    revoked = len(taken.ledger.entries)
    assert 0 < revoked < len(jobs)
    assert sum(entry.size for entry in taken.ledger.entries) <= ABORTING_SIZE_MAX


def large(name: str, num_nodes: int, **changes: Any) -> ObservedJob:
    return seen(name=name, job=with_role(seen(name=name).job, replicas=num_nodes, **changes))


def test_gangs_start_while_pods_in_flight_are_few() -> None:
    size = admission.UNBOUND_MAX // 2
    hall = tuple(node(f"n{i:05}") for i in range(4 * size))
    jobs = [*(large(name, size) for name in "abc"), large("d", 1)]
    taken = plan(world_of(*jobs, nodes=hall))
    assert [each.job_uid for each in taken.ledger.entries] == ["a", "b"]
    # Not even one pod goes before the gang that has to wait.
    assert dict(taken.waits) == {
        "c": BindingBacklog(need=size, pods=admission.UNBOUND_MAX),
        "d": BindingBacklog(need=1, pods=admission.UNBOUND_MAX),
    }
    bound = tuple(
        replace(pod, node=name, uid=f"u{rank}", node_rank=rank)
        for pod in pods("n0")
        for rank, name in enumerate(taken.ledger.entries[0].nodes)
    )
    later = world_of(
        *(replace(each, record=taken.records[each.job.uid]) for each in jobs),
        nodes=hall,
        entries=taken.ledger.entries,
        attempts={("a", 1): ObservedAttempt(pods=bound, placed=True)},
    )
    assert [each.job_uid for each in plan(later).ledger.entries] == ["b", "c"]


def test_a_gang_in_trouble_keeps_no_other_waiting_for_long() -> None:
    hall = tuple(node(f"n{i:05}") for i in range(admission.UNBOUND_MAX + 2))
    stuck = replace(entry(), job_uid="a", job_name="a", nodes=(hall[-2].name, hall[-1].name))

    def begun(**trouble: Any) -> list[str]:
        late_s = commit_plan.HINDERED_S + 1
        attempts = {("a", 1): ObservedAttempt(placed=True, stalled_s=late_s, **trouble)}
        jobs = (seen(name="a"), large("b", admission.UNBOUND_MAX))
        world = world_of(*jobs, nodes=hall, entries=(stuck,), attempts=attempts)
        return [each.job_uid for each in plan(world).ledger.entries]

    assert begun() == ["a"]
    assert begun(hindrance="504") == ["a", "b"]


def test_gangs_begun_together_finish_in_queue_order() -> None:
    hall = tuple(node(f"n{i}") for i in range(6))
    jobs = [large("a", 2), large("b", 2, priority=5), large("c", 2, submitted_s=-1)]
    begun = plan(world_of(*jobs, nodes=hall)).ledger.entries
    attempts = {each.key: ObservedAttempt(placed=True) for each in begun}
    actions = plan(world_of(*jobs, nodes=hall, entries=begun, attempts=attempts)).actions
    assert [action.entry.job_uid for action in actions] == [*"bbccaa"]


def test_gangs_finish_in_the_order_they_began() -> None:
    begun = {"a": 1.0, "b": 7.0, "c": 3.0}
    hall = tuple(node(f"n{i}") for i in range(8))
    world = world_of(
        *(seen(name=name) for name in (*begun, "d")),
        nodes=hall,
        entries=tuple(
            replace(entry(), job_uid=name, job_name=name, nodes=(f"n{2 * i}", f"n{2 * i + 1}"))
            for i, name in enumerate(begun)
        ),
        attempts={
            (name, 1): ObservedAttempt(placed=True, age_s=age) for name, age in begun.items()
        },
    )
    actions = plan(world).actions
    assert [action.entry.job_uid for action in actions] == [*"bbccaa", "d"]


def test_one_gang_alone_may_have_any_size() -> None:
    hall = tuple(node(f"n{i:05}") for i in range(admission.UNBOUND_MAX + 2))
    taken = plan(world_of(large("a", admission.UNBOUND_MAX + 1), large("b", 1), nodes=hall))
    assert [each.job_uid for each in taken.ledger.entries] == ["a"]
    assert list(taken.waits) == ["b"]


def test_overfull_node_stops_no_decision() -> None:
    overfull = node("n0", used={GPU: NODE_AMOUNT_MAX})
    attempts = {("a", 1): ObservedAttempt(pods=pods("n0! ."), placed=True)}
    nodes = (overfull, node("n1"), node("n2"), node("n3"))
    world = world_of(seen(), seen(name="b"), nodes=nodes, entries=(entry(),), attempts=attempts)
    assert entries(plan(world))[-1] == "b/1 Committing n2 n3"


def test_success_is_recorded_without_the_ledger() -> None:
    ranks = (rank(0, pod=PodState.SUCCEEDED), rank(1, done=True))
    taken = plan(world_of(seen(RUNNING, ranks=ranks), nodes=BUSY))
    assert taken.assessments["a"] == Succeeded()
    assert taken.records["a"].phase is Phase.SUCCEEDED
    assert not taken.ledger.entries


def test_attempt_in_the_ledger_is_not_assessed() -> None:
    job = seen(RUNNING, ranks=(crash(0, age_s=90.0), rank(1)))
    assessment = plan(world_of(job, nodes=BUSY)).assessments["a"]
    assert isinstance(assessment, Ended)
    settling = plan(world_of(job, nodes=BUSY, entries=(entry(cause=LOST),)))
    assert not settling.assessments
