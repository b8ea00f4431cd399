"""Which job ahead a blocked job waits for, and how many nodes that needs."""

from __future__ import annotations

from dataclasses import replace

from fixtures import GPU, cluster, job, node
from railwright_scheduler.model.reasons import BlockedByReservation
from railwright_scheduler.model.snapshot import Job, Node, Role
from railwright_scheduler.policy.decide import decide


def _blocked(*jobs: Job, nodes: list[Node]) -> BlockedByReservation:
    """The reason of the last job, which the others are ahead of."""
    ordered = tuple(replace(each, submitted_s=at) for at, each in enumerate(jobs))
    reasons = {wait.job_uid: wait.reason for wait in decide(cluster(*nodes, jobs=ordered)).waiting}
    reason = reasons[jobs[-1].uid]
    assert isinstance(reason, BlockedByReservation)
    return reason


def test_job_names_the_first_that_reserved_what_it_lacks() -> None:
    """The first job reserves only CPUs of the free node, and leaves enough of them."""
    free = node("n0", allocatable={GPU: 8, "cpu": 8_000, "pods": 110})
    busy = node("n1", allocatable=free.allocatable, used=free.allocatable)
    reason = _blocked(
        job("cpus", replicas=2, per_pod={"cpu": 4_000}),
        job("gpus", replicas=2, per_pod={GPU: 8, "cpu": 1_000}),
        job("late", per_pod={GPU: 1, "cpu": 1_000}),
        nodes=[free, busy],
    )
    assert (reason.first, reason.position) == ("team/gpus", 3)


def test_node_of_several_roles_ahead_counts_once() -> None:
    """Both roles reserve the same three nodes, of which two are free."""
    nodes = [node(f"n{at}", used={GPU: 8 if at == 2 else 0}) for at in range(3)]
    roles = tuple(Role(3, {GPU: 4}, name=name) for name in "ab")
    reason = _blocked(replace(job("gang"), roles=roles), job("late", per_pod={GPU: 8}), nodes=nodes)
    assert (reason.first_need, reason.first_free) == (3, 2)
    assert "it needs 3 nodes and has 2 available" in reason.sentence()
