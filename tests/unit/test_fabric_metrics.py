"""Prometheus series of the Fabric and of slow nodes: what is published, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from fixtures import scraping
from railwright_api import names
from railwright_controllers.report import fabric_metrics
from railwright_controllers.report.fabric_metrics import FabricMetrics
from railwright_controllers.watch.fabric import FabricCache
from railwright_kube.projections import Identity
from railwright_topology.relative_speed import EVEN, RelativeSpeed
from railwright_watch.cluster_objects import ClusterObject
from railwright_watch.node_healths import HealthRecord

STATUS = {
    "nodes": 64,
    "domains": [
        {"level": "block", "source": "labels", "count": 2, "smallest": 32, "largest": 32},
        {"level": "rack", "source": "labels", "count": 8, "smallest": 8, "largest": 8},
    ],
    "rails": {"nodes": 60, "aligned": 57},
    "networks": [
        {"source": "ibnetdiscover", "hosts": 64, "rails": 8, "faultCount": 2},
        {"source": "ibnetdiscover", "hosts": 64, "rails": 0, "faultCount": 1},
    ],
    "sources": [
        {"source": "labels", "provenance": "Imported", "nodes": 64},
        {
            "source": "ibnetdiscover",
            "provenance": "Seen",
            "nodes": 60,
            "time": "2026-01-01T00:00:10Z",
        },
    ],
    "agents": {"nodes": 62, "silent": 4},
    "freshness": {"checked": "2026-01-01T00:00:20Z", "oldestReport": "2026-01-01T00:00:01Z"},
    "measuredNodes": 50,
    "slowCount": 5,
    "conflictCount": 6,
    "problemCount": 7,
}
MIDNIGHT_S = 1_767_225_600
"""2026-01-01T00:00:00Z"""


def registry_of(
    status: dict[str, Any] | None, healths: Sequence[HealthRecord] = ()
) -> CollectorRegistry:
    cache, registry = FabricCache(), CollectorRegistry()
    if status is not None:
        cache.change(None, ClusterObject(Identity("uid", names.SINGLETON, "1"), status=status))
    FabricMetrics(registry, cache=cache, healths=lambda: healths)
    return registry


def health(node: str, speed: RelativeSpeed) -> HealthRecord:
    return HealthRecord(f"{node}-uid", node, 1, "", relative_speed=speed)


def test_published_fabric_has_all_series() -> None:
    found = {
        (name.removeprefix("railwright_fabric_"), *dict(labels).values()): value
        for (name, labels), value in scraping.scraped(registry_of(STATUS)).items()
    }
    assert found == {
        ("nodes",): 64,
        ("domains", "block"): 2,
        ("domains", "rack"): 8,
        ("source_nodes", "labels"): 64,
        ("source_nodes", "ibnetdiscover"): 60,
        ("source_timestamp_seconds", "ibnetdiscover"): MIDNIGHT_S + 10,
        ("conflicts",): 6,
        ("problems",): 7,
        ("cabling_faults", "ibnetdiscover"): 3,
        ("miscabled_nodes",): 3,
        ("measured_nodes",): 50,
        ("slow_devices",): 5,
        ("agents", "Reporting"): 58,
        ("agents", "Silent"): 4,
        ("checked_timestamp_seconds",): MIDNIGHT_S + 20,
        ("oldest_report_timestamp_seconds",): MIDNIGHT_S + 1,
    }


def test_fabric_without_status_has_no_series() -> None:
    assert scraping.scraped(registry_of(None)) == {}
    assert scraping.scraped(registry_of({})) == {}


def test_slowest_nodes_have_series() -> None:
    """Nodes of the usual speed have none, so that their number is bounded."""
    slow = [
        health(f"n{index}", RelativeSpeed(products=0.5 + index / 10_000))
        for index in range(fabric_metrics.NODES_MAX + 20)
    ]
    memory = health("memory", RelativeSpeed(memory=0.25))
    registry = registry_of({}, [health("even", EVEN), *slow, memory])
    found = scraping.scraped(registry)
    nodes = {dict(labels)["node_name"] for _, labels in found}
    assert nodes == {"memory", *(each.name for each in slow[: fabric_metrics.NODES_MAX - 1])}
    assert len(found) == 2 * fabric_metrics.NODES_MAX
    name = "railwright_node_relative_speed"
    assert scraping.value(registry, name, node_name="memory", measure="memory") == 0.25
    assert scraping.value(registry, name, node_name="memory", measure="products") == 1
