"""Which jobs ask for an attempt, and from where they come."""

from __future__ import annotations

from dataclasses import replace

from fixtures import GPU, attempts, cluster, job, node
from fixtures.trained_jobs import workload_of
from railwright_scheduler import pending
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.cluster_state import ObservedAttempt
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
