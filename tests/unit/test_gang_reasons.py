"""Why a gang of several roles waits, where each role by itself would start."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures import GPU, cluster, job, node
from railwright_scheduler.model.reasons import BlockedByReservation, Reason
from railwright_scheduler.model.shortages import NeverFits
from railwright_scheduler.model.snapshot import Job, Node, Role, TopologyConstraints
from railwright_scheduler.policy.decide import decide

RACK = TopologyConstraints(required="rack")


def _gang(*pods: tuple[int, dict[str, int]], constraints: TopologyConstraints | None = None) -> Job:
    """A gang of roles a, b, and so on, each with so many pods with these requests."""
    plain = constraints or TopologyConstraints()
    roles = (
        Role(replicas, per_pod, name=name, constraints=plain)
        for name, (replicas, per_pod) in zip("abcd", pods, strict=False)
    )
    return replace(job("gang"), roles=tuple(roles))


def _reason(*jobs: Job, nodes: list[Node]) -> Reason:
    """That of the last job, which the others are ahead of."""
    ordered = (replace(each, submitted_s=at) for at, each in enumerate(jobs))
    decided = decide(cluster(*nodes, jobs=tuple(ordered), levels=("rack",)))
    return next(wait.reason for wait in decided.waiting if wait.job_uid == jobs[-1].uid)


def test_gang_with_more_pods_than_nodes_hold_never_fits() -> None:
    reason = _reason(_gang((2, {GPU: 8}), (2, {GPU: 8})), nodes=[node(f"n{i}", "") for i in "012"])
    assert isinstance(reason, NeverFits)
    assert reason.sentence() == (
        "roles a, b need 4 pods beside each other; the nodes hold at most 3 pods of these roles, "
        "even if all were free"
    )


def test_gang_with_larger_requests_than_nodes_have_never_fits() -> None:
    """Each two roles fit: a on one node, two of the others on the other one."""
    pods = [(1, {GPU: 8}), (1, {GPU: 4}), (1, {GPU: 4}), (1, {GPU: 4})]
    assert _reason(_gang(*pods), nodes=[node("n0", ""), node("n1", "")]).sentence() == (
        "roles a, b, c, d need 20 nvidia.com/gpu beside each other; the nodes hold at most "
        "16 nvidia.com/gpu of these roles, even if all were free"
    )


def test_gang_that_no_domain_could_hold_never_fits() -> None:
    gang = _gang((2, {GPU: 8}), (2, {GPU: 8}), constraints=RACK)
    nodes = [node(f"{rack}{at}", rack) for rack in "xy" for at in range(3)]
    reason = _reason(gang, nodes=nodes)
    assert isinstance(reason, NeverFits)
    assert "need 4 pods beside each other, all in one domain of rack;" in reason.sentence()
    assert "at most 3 pods" in reason.sentence()


def test_gang_that_fits_once_others_end_waits_for_nodes() -> None:
    nodes = [node(f"n{i}", "", used={GPU: i}) for i in range(4)]
    reason = _reason(_gang((2, {GPU: 8}), (2, {GPU: 8})), nodes=nodes)
    assert not isinstance(reason, NeverFits)


@pytest.mark.parametrize("rack", ["", "x"])
def test_gang_is_blocked_by_a_reservation_of_a_job_ahead(rack: str) -> None:
    """Both roles share a node, and the gang would have both free nodes."""
    nodes = [node("n0", rack), node("n1", rack), node("n2", rack, used={GPU: 8})]
    ahead = job("ahead", replicas=2, per_pod={GPU: 8})
    first = replace(ahead, roles=(replace(ahead.roles[0], replicas=3, per_pod={GPU: 5}),))
    reason = _reason(first, _gang((2, {GPU: 2}), (2, {GPU: 3})), nodes=nodes)
    assert reason == BlockedByReservation(
        position=2, first="team/ahead", first_need=3, first_free=2, need=2, free=2
    )
