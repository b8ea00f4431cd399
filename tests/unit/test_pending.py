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

NODES = 64


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
    """It keeps the free nodes from the job behind it for as long."""
    assert _started(_ending("n0~ n1~")) == {}
    assert _started(_ending("n0! n1~")) == {}
    assert _started(_ending("n0! n1!"))["a"] == ("n0", "n1")


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
