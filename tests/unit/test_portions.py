"""Gangs in portions: an even share of the domains, rings and planes of the grid of ranks."""

from __future__ import annotations

from fixtures import job, node
from railwright_scheduler import Snapshot, decide
from railwright_scheduler.model.workload import (
    Framework,
    Parallelism,
    Recipe,
    Transformer,
    Workload,
)
from railwright_topology.links import Links

MODEL = Transformer(
    layers=32,
    hidden=4096,
    heads=32,
    kv_heads=32,
    head_size=128,
    feed_forward=4 * 4096,
    vocabulary=51_200,
)
RECIPE = Recipe(2048, 1, 64, framework=Framework.MEGATRON_PIPELINE_FIRST)


def test_gang_that_its_rings_do_not_divide_is_placed() -> None:
    """Seven nodes of four rings and three servers do not come in segments of four."""
    work = Workload(MODEL, Parallelism(data=4, servers=3), RECIPE)
    asked = job("a", replicas=7, ranks_per_pod=1, workload=work)
    where = [("b0", "r0", 1), ("b0", "r1", 4), ("b1", "r2", 4)]
    nodes = tuple(
        node(f"{rack}-{at}", block, rack, machine="DGX A100")
        for block, rack, count in where
        for at in range(count)
    )
    links = (Links(2.0), Links(4.0))
    found = decide(Snapshot(("block", "rack"), nodes, ("default",), (asked,), links=links))
    assert [len(admit.nodes) for admit in found.admitted] == [7]
