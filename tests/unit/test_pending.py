"""Which jobs ask for an attempt, and from where they come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fixtures import GPU, attempts, cluster, job, node
from fixtures.trained_jobs import workload_of
from railwright_scheduler import pending
from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import Entry
from railwright_scheduler.cluster_state import ClusterState, ObservedAttempt
from railwright_scheduler.model.reasons import PriorityClassNotFound
from railwright_scheduler.model.snapshot import Unavailable
from railwright_scheduler.model.workload import Parallelism
from railwright_scheduler.policy.decide import decide

NODES, NOW_S = 64, 1_800_000_000


class Compared(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return super().__eq__(other)

    def __hash__(self) -> int:
        return super().__hash__()


def names() -> tuple[str, ...]:
    return tuple(Compared(f"n{at}") for at in range(NODES))


def test_work_for_a_lost_gang_grows_with_its_nodes_alone() -> None:
    """A gang that lost thousands of nodes is pending in each cycle."""
    cause = Cause(CauseCode.NODE_LOST, "lost", nodes=names(), node="n0")
    entry = attempts.entry(cause=cause, nodes=names())
    pods = attempts.pods(" ".join(names()))
    seen = attempts.seen(attempts.RECOVERING)
    Compared.times = 0
    assert pending.next_attempt(seen, [entry]).roles[0].before == ("",) * NODES
    assert not pending.is_draining(
        [entry], {entry.key: ObservedAttempt(pods=pods)}, frozenset(names())
    )
    assert Compared.times < 8 * NODES


def test_pods_of_a_changed_role_share_no_node() -> None:
    """Pods of two roles shared n0. Now they are of one role, whose ranks stay where they were."""
    changed = job(replicas=3, per_pod={GPU: 4}, workload=workload_of(Parallelism(data=3)))
    again = pending.with_previous_nodes(changed, ("n0", "n0", "n1"))
    machines = [node(f"n{at}", "a") for at in range(3)]
    (admit,) = decide(cluster(*machines, jobs=(again,), levels=("rack",))).admitted
    assert sorted(admit.nodes) == ["n0", "n1", "n2"]


def test_job_that_returns_reserves_and_has_no_reason() -> None:
    """It waits for its own pods to go, and for nothing that a user could change."""
    snapshot = replace(cluster(node("n0", used={GPU: 8})), awaiting_own_pods=(job(),))
    decided = decide(snapshot)
    assert decided.waiting == ()
    assert decided.reservations == {job().uid: ("n0",)}


def _ending(text: str, **changes: Any) -> ClusterState:
    """Job a ended a second ago on n0 and n1, with these pods; n2 and n3 are free. Job b, behind it,
    would fit on the free nodes too."""
    pods = attempts.pods(text)
    used = {pod.node for pod in pods if not pod.terminal}
    nodes = [
        node(f"n{at}", f"r{at // 2}", used={GPU: 8} if f"n{at}" in used else {}) for at in range(4)
    ]
    ended = attempts.seen(attempts.RECOVERING, ended_age_s=1.0, ranks=())
    behind = replace(attempts.seen(name="b"), job=job("b", replicas=2, submitted_s=9))
    over = attempts.entry(cause=attempts.FAILED)
    return attempts.world_of(
        replace(ended, **changes),
        behind,
        nodes=tuple(nodes),
        levels=("rack",),
        entries=(over,),
        attempts={over.key: ObservedAttempt(pods=pods)},
    )


def _started(state: ClusterState) -> dict[str, tuple[str, ...]]:
    """The nodes of the attempts that this cycle starts, by job."""
    entries: tuple[Entry, ...] = scheduling.plan(state).ledger.entries
    return {each.job_uid: each.nodes for each in entries if each.cause is None}


def test_job_that_failed_waits_for_its_pods_that_end() -> None:
    """It keeps its nodes from the job behind it, and as many others as its pods still occupy."""
    for text in ("n0~ n1~", "n0! n1~"):
        state = _ending(text)
        assert _started(state) == {}
        assert scheduling.plan(state).reservations["a"] == ("n0", "n1")
    assert _started(_ending("n0! n1!")) == {"a": ("n0", "n1"), "b": ("n2", "n3")}


def test_nodes_that_become_free_one_by_one_are_kept() -> None:
    """Job b takes one node, and would take the first of them."""
    ended = _ending("n0! n1~")
    a, b = ended.jobs
    state = replace(ended, jobs=(a, replace(b, job=job("b", replicas=1, submitted_s=9))))
    assert _started(state) == {"b": ("n2",)}
    assert scheduling.plan(state).reservations == {"a": ("n0", "n1")}


def test_pod_that_does_not_end_costs_its_job_no_free_node() -> None:
    """Job b, which takes one node, has not got it meanwhile."""
    ended = _ending("n0! n1~")
    a, b = ended.jobs
    nodes = (*ended.nodes[:3], replace(ended.nodes[3], used={GPU: 8}))
    one = replace(b, job=job("b", replicas=1, submitted_s=9))
    state = replace(ended, jobs=(a, one), nodes=nodes)
    assert _started(state) == {}
    later = replace(state, jobs=(replace(a, ended_age_s=pending.ENDING_S + 1.0), one))
    assert _started(later) == {"a": ("n0", "n2")}


def test_last_reservation_comes_before_the_own_nodes() -> None:
    """As that of a migration, which has a target."""
    state = replace(_ending("n0~ n1~"), reservations={"a": ("n2", "n3")})
    assert scheduling.plan(state).reservations["a"] == ("n2", "n3")


def test_nodes_are_kept_before_the_deletion_of_pods_begins() -> None:
    """Without a back-off, as after the loss of a node."""
    lost = Cause(CauseCode.NODE_LOST, "n1 is lost", nodes=("n1",))
    state = _ending("n0! n1", record=replace(attempts.RECOVERING, last_termination=lost))
    (over,) = state.ledger.entries
    ledger = replace(state.ledger, entries=(replace(over, cause=lost),))
    assert scheduling.plan(replace(state, ledger=ledger)).reservations["a"][0] == "n0"


def test_blamed_node_is_not_kept() -> None:
    state = _ending("n0! n1~")
    (over,) = state.ledger.entries
    slow = replace(over, cause=Cause(CauseCode.RANK_FAILED, "its disk is full", node="n1"))
    ledger = replace(state.ledger, entries=(slow,))
    plan = scheduling.plan(replace(state, ledger=ledger))
    assert "n0" in plan.reservations["a"]
    assert "n1" not in plan.reservations["a"]


@pytest.mark.parametrize("age_s", [0.5, 30.0])
def test_failed_pod_frees_nothing_while_its_attempt_ends(age_s: float) -> None:
    """Others crash behind the first; job b, which takes one node, would start on theirs."""
    running = attempts.seen(
        attempts.RUNNING, ranks=(attempts.rank(0), attempts.crash(1, age_s)), bound_age_s=1e4
    )
    behind = replace(attempts.seen(name="b"), job=job("b", replicas=1, submitted_s=9))
    state = attempts.world_of(
        running,
        behind,
        nodes=(node("n0", used={GPU: 8}), node("n1")),
        attempts={("a", 1): ObservedAttempt(pods=attempts.pods("n0 n1!"))},
    )
    assert _started(replace(state, now_s=NOW_S)) == {}


def _crashed(failures: int) -> ClusterState:
    """Rank 1 of job a crashed, as often before; job b wants its nodes, which are all."""
    times_s = tuple(range(NOW_S - failures, NOW_S))
    record = replace(attempts.RUNNING, failure_times_s=times_s)
    running = attempts.seen(
        record, ranks=(attempts.rank(0), attempts.crash(1, 30.0)), bound_age_s=1e4
    )
    behind = replace(attempts.seen(name="b"), job=job("b", replicas=2, submitted_s=9))
    state = attempts.world_of(
        running,
        behind,
        nodes=tuple(node(f"n{at}", "r0", used={GPU: 8}) for at in range(2)),
        levels=("rack",),
        attempts={("a", 1): ObservedAttempt(pods=attempts.pods("n0 n1!"))},
    )
    return replace(state, now_s=NOW_S)


def _once_pods_are_gone(state: ClusterState, *, ago_s: float) -> ClusterState:
    """What the cycle after this one sees so long after the attempt ended."""
    plan = scheduling.plan(state)
    over = replace(
        state.jobs[0], record=plan.records["a"], ranks=(), started=False, ended_age_s=ago_s
    )
    return replace(
        state,
        jobs=(over, state.jobs[1]),
        ledger=plan.ledger,
        nodes=tuple(replace(each, used={}) for each in state.nodes),
        attempts={("a", 1): ObservedAttempt(pods=attempts.pods("n0! n1!"))},
        reservations=plan.reservations,
    )


@pytest.mark.parametrize(("failures", "keeps"), [(0, True), (1, True), (2, False)])
def test_short_back_off_keeps_the_nodes(failures: int, keeps: bool) -> None:
    """It doubles with each failure: 5 s, 10 s, 20 s."""
    state = _once_pods_are_gone(_crashed(failures), ago_s=2.0)
    assert state.jobs[0].record.backoff_s == 5 << failures
    assert _started(state) == ({} if keeps else {"b": ("n0", "n1")})
    held = replace(state.jobs[0], held=PriorityClassNotFound("high", ()))
    assert _started(replace(state, jobs=(held, state.jobs[1]))) == {"b": ("n0", "n1")}
    if keeps:
        later = _once_pods_are_gone(state, ago_s=5.0 * (1 << failures))
        assert _started(later) == {"a": ("n0", "n1")}


def test_pod_that_does_not_end_delays_its_job_for_bounded_time() -> None:
    for ago_s, its in ((pending.ENDING_S - 1.0, None), (pending.ENDING_S + 1.0, ("n2", "n3"))):
        assert _started(_ending("n0~ n1~", ended_age_s=ago_s)).get("a") == its


@pytest.mark.parametrize("unavailable", [Unavailable.UNREADY, Unavailable.LOST])
def test_job_waits_for_no_pod_on_a_dead_node(unavailable: Unavailable) -> None:
    state = _ending("n0! n1~")
    nodes = [
        replace(each, unavailable=unavailable if each.name == "n1" else None)
        for each in state.nodes
    ]
    assert "n1" not in _started(replace(state, nodes=tuple(nodes)))["a"]


def test_held_job_keeps_no_nodes_while_its_pods_end() -> None:
    held = PriorityClassNotFound("high", ())
    assert _started(_ending("n0~ n1~", held=held)) == {"b": ("n2", "n3")}
