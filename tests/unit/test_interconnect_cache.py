"""Decisions use the topology in the Fabric: the last one that could be read."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest
from msgspec import structs

from fixtures import reporting
from fixtures.observing import Watched
from railwright_operator.watch.interconnect import InterconnectCache
from railwright_topology.fabric import Fabric
from railwright_topology.interconnect import Interconnect
from railwright_topology.links import Links
from railwright_topology.relative_speed import RelativeSpeed
from railwright_watch import cluster_objects
from railwright_watch.cluster_objects import ClusterObject

NARROW = Links(2.0, {"r0": 1.5}, frozenset({"r1"}))
PLACES = {"n0": ("r0",), "n1": ("r0",), "n2": ("r1",)}


def topology(*, nodes: str = "n[0-1]") -> dict[str, Any]:
    domains = [{"name": "r0", "uplinkNodes": "1.5"}, {"name": "r1", "reducing": True}]
    return {
        "levels": [{"level": "rack", "oversubscription": "2.0", "domains": domains}],
        "places": [{"domains": ["r0"], "nodes": nodes}, {"domains": ["r1"], "nodes": "n2"}],
    }


def fabric(*, name: str = "default", **status: Any) -> ClusterObject:
    return cluster_objects.answered(reporting.raw_object(name, status=status))


EVERY_NODE = {"domains": ["r0"], "nodes": "n[0-65535]"}
"""Reading the same names again takes as long as reading others."""


@pytest.fixture
def cache() -> InterconnectCache:
    made = InterconnectCache()
    made.fabric_changed(None, fabric(topology=topology()))
    return made


def test_topology_of_the_fabric_is_read(cache: InterconnectCache) -> None:
    assert cache.interconnect == Interconnect(("rack",), PLACES, (NARROW,))
    cache.fabric_changed(None, fabric(topology=topology(nodes="n[0-1,7]")))
    assert cache.interconnect.place("n7") == ("r0",)


def test_topology_stays_until_there_is_another(cache: InterconnectCache) -> None:
    """The same object: nodes are built again for another."""
    before, held = cache.interconnect, fabric(topology=topology())
    for new in (
        None,
        fabric(name="other", topology={"levels": [], "places": []}),
        fabric(nodes=3),
        fabric(topology=topology(), nodes=4),
    ):
        cache.fabric_changed(held, new)
        assert cache.interconnect is before


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ({"levels": "none"}, "levels"),
        (topology(nodes="n[0-"), "bracket"),
        (topology(nodes="n[0-999999]"), "more names than fit"),
        (topology(nodes="n[0-1],n1"), "4 names of 3 nodes, expected each node once"),
        (topology() | {"places": [EVERY_NODE] * 3}, "more names than fit"),
        (topology() | {"levels": [{"level": "rack", "oversubscription": "1e400"}]}, "1e400"),
        (topology() | {"levels": [{"level": "rack", "oversubscription": "-1"}]}, "oversub"),
        (topology() | {"levels": []}, "n[0-1] has 1 domains, expected one at each of 0 levels"),
    ],
)
def test_unreadable_topology_leaves_the_last_one(
    cache: InterconnectCache, caplog: pytest.LogCaptureFixture, raw: Any, why: str
) -> None:
    before = cache.interconnect
    with caplog.at_level(logging.ERROR):
        cache.fabric_changed(fabric(topology=topology()), fabric(topology=raw))
    assert cache.interconnect is before
    (record,) = caplog.records
    assert record.message == "topology of fabric not read"
    assert why in vars(record)["error"]


def test_only_a_changed_topology_is_news() -> None:
    """Other changes wake no cycle: the controllers write the status every minute."""
    cache, held = InterconnectCache(), fabric(topology=topology(), nodes=3)
    assert cache.is_news(None, held)
    assert cache.is_news(fabric(nodes=3), held)
    assert cache.is_news(held, fabric(topology=topology(nodes="n0"), nodes=3))
    freshness = {"checked": "2026-01-02T03:04:05Z"}
    assert not cache.is_news(held, fabric(topology=topology(), nodes=4, freshness=freshness))
    assert not cache.is_news(held, structs.replace(held, spec={"levels": ["rack"]}))
    assert not cache.is_news(held, fabric(nodes=3))
    assert not cache.is_news(held, None)
    assert not cache.is_news(None, fabric(name="other", topology=topology()))


async def test_new_installation_waits_for_its_first_topology() -> None:
    cache = InterconnectCache()
    assert not cache.is_known
    started_s = time.monotonic()
    await cache.wait_first(0.1)
    assert time.monotonic() - started_s >= 0.1
    waiting = asyncio.create_task(cache.wait_first(30.0))
    cache.fabric_changed(None, fabric(topology=topology()))
    await asyncio.wait_for(waiting, 5)


def test_decisions_take_domains_from_the_fabric_object() -> None:
    seen = Watched(num_nodes=3)
    speed = RelativeSpeed(products=0.5)
    seen.fabric(Fabric(("block",), {"n0": ("b9",)}, (Links(),), relative_speeds={"n1": speed}))
    seen.interconnect.fabric_changed(None, fabric(topology=topology()))
    world = seen.world()
    assert (world.levels, world.links) == (("rack",), (NARROW,))
    assert {node.name: node.domains for node in world.nodes} == PLACES
    assert [node.relative_speed for node in world.nodes][1] == speed
    assert seen.world().nodes[0] is world.nodes[0]
