"""The numbers of a job with aligned rails that waits, where nodes have several rail orders."""

from __future__ import annotations

from dataclasses import replace

from fixtures import GPU, cluster, job, node
from railwright_scheduler.model.reasons import Reason
from railwright_scheduler.model.snapshot import Job, Node, TopologyConstraints
from railwright_scheduler.policy.decide import decide
from railwright_topology.miscabling import Rails

ALIGNED = TopologyConstraints(aligned=True)


def _reason(*jobs: Job, free: dict[str, int]) -> Reason:
    """That of the last job. Rack x has four nodes of one rail order, rack y three of another, and
    rack z five without rails; so many of each are free."""
    racks = {"x": (4, Rails((0, 1))), "y": (3, Rails((1, 0))), "z": (5, None)}
    nodes = [
        _node(f"{rack}{at}", rails, is_free=at < free[rack])
        for rack, (count, rails) in racks.items()
        for at in range(count)
    ]
    ordered = tuple(replace(each, submitted_s=at) for at, each in enumerate(jobs))
    decided = decide(cluster(*nodes, jobs=ordered, levels=("rack",)))
    return next(wait.reason for wait in decided.waiting if wait.job_uid == jobs[-1].uid)


def _node(name: str, rails: Rails | None, *, is_free: bool) -> Node:
    return node(name, name[0], used={} if is_free else {GPU: 8}, rails=rails)


def test_free_nodes_are_those_of_the_freest_rail_order() -> None:
    """Most nodes have the order of rack x, where only one is free."""
    reason = _reason(job(replicas=4, constraints=ALIGNED), free={"x": 1, "y": 2, "z": 5})
    assert "at most 2 available together, 4 if all were free; " in reason.sentence()


def test_best_rack_is_one_with_aligned_rails() -> None:
    reason = _reason(job(replicas=4, constraints=ALIGNED), free={"x": 1, "y": 2, "z": 5})
    assert "; best rack y has 2; " in reason.sentence()


def test_reserved_nodes_of_any_rail_order_block_a_job() -> None:
    """The job ahead has reserved the two free nodes of rack y."""
    ahead = job("ahead", replicas=3, constraints=ALIGNED)
    late = job("late", replicas=2, constraints=ALIGNED)
    assert _reason(ahead, late, free={"x": 1, "y": 2, "z": 5}).sentence() == (
        "needs 2 nodes and 2 are available, but team/ahead is ahead and reserved some of them: it "
        "needs 3 nodes and has 2 available; position 2 in the queue"
    )
