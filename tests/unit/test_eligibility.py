"""What jobs may ask for without a pass over the nodes for each of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fixtures import GPU, cluster, job, node
from fixtures.jobs import with_role
from railwright_scheduler import cluster as clusters
from railwright_scheduler.model.snapshot import Node
from railwright_scheduler.policy.eligibility import Eligibility


class CountedNodes(tuple[Node, ...]):
    """Counts iterations."""

    passes = 0

    def __iter__(self) -> Iterator[Node]:
        type(self).passes += 1
        return super().__iter__()


def test_labels_that_no_node_carries_cost_no_pass() -> None:
    nodes = CountedNodes(node(f"n{i}") for i in range(3))
    index = Eligibility(nodes)
    assert not index.selected({"absent": "x"}).any()
    before = CountedNodes.passes
    for number in range(100):
        assert not index.selected({f"absent-{number}": "x"}).any()
    assert CountedNodes.passes == before


def test_resources_of_single_nodes_have_a_row_if_requested() -> None:
    nodes = [node(f"n{i:03}") for i in range(100)]
    nodes = [
        replace(each, allocatable={**each.allocatable, f"example.com/of-{each.name}": 1})
        for each in nodes
    ]
    asked = with_role(job("a"), per_pod={GPU: 8, "example.com/of-n099": 1})
    laid_out = clusters.of(cluster(*nodes, jobs=(asked,)))
    assert len(laid_out.rows) == clusters.COMMON_MAX + 1
    assert "example.com/of-n099" in laid_out.rows
    assert GPU in list(laid_out.rows)[: laid_out.common]
