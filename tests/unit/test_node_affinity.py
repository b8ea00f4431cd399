"""A waiting job says how many nodes its affinity leaves out; changed labels move no running pod."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from fixtures import GPU, cluster, job, node
from fixtures.attempts import RUNNING, entry, pods, seen, world_of
from fixtures.jobs import with_role
from railwright_api.pod_template import PodSpec
from railwright_conversion import node_affinities
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.cluster_state import ObservedAttempt
from railwright_scheduler.model.node_affinity import (
    NodeAffinity,
    NodeRequirement,
    NodeSelectorTerm,
    SelectorOperator,
)
from railwright_scheduler.plan import plan
from railwright_scheduler.policy.decide import decide

IN_A = NodeAffinity(
    (NodeSelectorTerm((NodeRequirement("zone", SelectorOperator.IN, frozenset("a")),)),)
)
ZONES = [node(f"{zone}{i}", labels={"zone": zone}) for zone in "ab" for i in range(3)]


def why(*nodes: Any, **asked: Any) -> str:
    (wait,) = decide(cluster(*nodes, jobs=(job("j", affinity=IN_A, **asked),))).waiting
    return wait.reason.sentence()


def test_job_gets_only_nodes_that_match() -> None:
    (admit,) = decide(cluster(*ZONES, jobs=(job("j", replicas=3, affinity=IN_A),))).admitted
    assert sorted(admit.nodes) == ["a0", "a1", "a2"]


def test_each_role_has_its_own_affinity() -> None:
    not_in_a = replace(IN_A.selector_terms[0].labels[0], operator=SelectorOperator.NOT_IN)
    elsewhere = NodeAffinity((NodeSelectorTerm((not_in_a,)),))
    (role,) = job("j", replicas=2, affinity=IN_A).roles
    both = replace(job("j"), roles=(role, replace(role, name="other", affinity=elsewhere)))
    (admit,) = decide(cluster(*ZONES, jobs=(both,))).admitted
    assert [name[0] for name in admit.nodes] == ["a", "a", "b", "b"]


def test_reason_counts_nodes_that_do_not_match() -> None:
    assert why(*ZONES, replicas=4) == (
        "needs 4 nodes with 8 nvidia.com/gpu each; at most 3 such nodes exist: replicas <= 3; "
        "3 nodes not counted for its node affinity"
    )
    assert why(*ZONES[3:], selector={"zone": "b"}).endswith(
        "its node affinity matches none of 3 nodes that match the selector"
    )
    assert why(*ZONES[3:]).endswith("its node affinity matches none of 3 nodes")
    busy = [node("a0", labels={"zone": "a"}, used={GPU: 1}), *ZONES[3:]]
    assert "0/1 nodes available; 3 nodes not counted for its node affinity" in why(*busy)


def test_gang_is_planned_again_when_labels_change() -> None:
    attempts = {("a", 1): ObservedAttempt(pods=pods("n0 -"), placed=True)}
    held = seen(job=with_role(seen().job, affinity=IN_A))
    for zone, reason in (("a", ""), ("b", "node n1 does not match the node affinity")):
        nodes = (node("n0", labels={"zone": "a"}), node("n1", labels={"zone": zone}))
        taken = plan(world_of(held, nodes=nodes, entries=(entry(),), attempts=attempts))
        (found,) = taken.ledger.entries
        assert (found.cause.message if found.cause else "").startswith(reason)
        assert bool(found.cause) is bool(reason)


def test_running_pods_stay_when_labels_change() -> None:
    """The next attempt follows the labels as they are then."""
    running = seen(RUNNING, job=with_role(seen().job, affinity=IN_A))
    moved = [node(name, labels={"zone": "b"}, used={GPU: 8}) for name in RUNNING.nodes]
    taken = plan(world_of(running, nodes=(*moved, *ZONES)))
    assert not taken.ledger.entries
    assert taken.records["a"].phase is Phase.RUNNING


@pytest.mark.parametrize(
    "expression",
    [
        {"key": "zone", "operator": "in"},
        {"key": "zone", "operator": "In", "values": ["x" * 64]},
        {"operator": "Exists"},
    ],
)
def test_invalid_expression_is_refused(expression: dict[str, Any]) -> None:
    selector_terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    required = {"nodeAffinity": {node_affinities.REQUIRED: selector_terms}}
    containers = [{"name": "c", "image": "i", "command": ["c"]}]
    with pytest.raises(ValidationError):
        PodSpec.model_validate({"containers": containers, "affinity": required})
