"""Prometheus series of the Fabric and of slow nodes.

They are computed at each scrape from what the controllers have published. The number of series is
bounded by that of sources, levels, and ``NODES_MAX`` slow nodes.
"""

from __future__ import annotations

import collections
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from operator import itemgetter
from typing import Any

from prometheus_client import CollectorRegistry

from railwright_controllers.watch.fabric import FabricCache
from railwright_conversion import times
from railwright_kube.metrics import Sample, ScrapedMetrics
from railwright_topology.relative_speed import EVEN
from railwright_watch.node_healths import HealthRecord

NODES_MAX = 500
"""Slow nodes with series of their own, the slowest first."""

GAUGES: dict[str, tuple[str, ...]] = {
    "fabric_nodes": ("Nodes of the Fabric.",),
    "fabric_domains": ("Domains of a level of the Fabric.", "level"),
    "fabric_source_nodes": ("Nodes that a source of topology information covers.", "source"),
    "fabric_source_timestamp_seconds": (
        "Unix time of the last write to the file of a source, or of its oldest measurement.",
        "source",
    ),
    "fabric_conflicts": ("Conflicts between sources.",),
    "fabric_problems": ("Errors in files and nodes.",),
    "fabric_cabling_faults": ("Cabling faults that a source shows.", "source"),
    "fabric_miscabled_nodes": ("Nodes with a rail that leads to a switch of another rail.",),
    "fabric_measured_nodes": ("Nodes whose devices were benchmarked.",),
    "fabric_slow_devices": ("Devices that are slower than most of their kind.",),
    "fabric_agents": (
        "Node agents that reported since the controllers started, by state: Silent are those "
        "without a report for fifteen minutes.",
        "state",
    ),
    "fabric_checked_timestamp_seconds": (
        "Unix time at which the controllers last compared the Fabric with its sources.",
    ),
    "fabric_oldest_report_timestamp_seconds": (
        "Unix time of the oldest one of the agents' last reports.",
    ),
    "node_relative_speed": (
        "Speed of the slowest device of a node over that of most devices of its kind, in matrix "
        "products and in memory copies. Only nodes that are slower than most have "
        f"it, at most {NODES_MAX}.",
        "node_name",
        "measure",
    ),
}
"""The gauges without their prefix: what each is, and its labels."""


@dataclass(eq=False, repr=False)
class FabricMetrics(ScrapedMetrics):
    """Collects the series. ``healths`` are all NodeHealths as last read."""

    registry: CollectorRegistry
    _: KW_ONLY
    cache: FabricCache
    healths: Callable[[], Iterable[HealthRecord]]

    gauges = GAUGES

    def __post_init__(self) -> None:
        self.registry.register(self)

    def samples(self) -> Iterator[Sample]:
        """The current values. May be called in another thread than the event loop's."""
        published = self.cache.published
        yield from (*_fabric(published), *_sources(published), *_slow(list(self.healths())))


def _fabric(status: Mapping[str, Any]) -> Iterator[Sample]:
    """The samples of the status of the Fabric."""
    numbers = {
        "fabric_nodes": status.get("nodes"),
        "fabric_conflicts": status.get("conflictCount"),
        "fabric_problems": status.get("problemCount"),
        "fabric_measured_nodes": status.get("measuredNodes"),
        "fabric_slow_devices": status.get("slowCount"),
    }
    if rails := status.get("rails"):
        numbers["fabric_miscabled_nodes"] = rails["nodes"] - rails["aligned"]
    freshness = status.get("freshness") or {}
    for name, field in (("checked", "checked"), ("oldest_report", "oldestReport")):
        if field in freshness:
            numbers[f"fabric_{name}_timestamp_seconds"] = times.parse(freshness[field])
    yield from ((name, value, ()) for name, value in numbers.items() if value is not None)
    for level in status.get("domains") or ():
        yield "fabric_domains", level["count"], (level["level"],)
    if agents := status.get("agents"):
        silent = agents.get("silent", 0)
        yield "fabric_agents", agents["nodes"] - silent, ("Reporting",)
        yield "fabric_agents", silent, ("Silent",)


def _sources(status: Mapping[str, Any]) -> Iterator[Sample]:
    """The samples of each source, which may report several networks."""
    faults: collections.Counter[str] = collections.Counter()
    for network in status.get("networks") or ():
        faults[network["source"]] += network.get("faultCount", 0)
    for source, count in faults.items():
        yield "fabric_cabling_faults", count, (source,)
    for each in status.get("sources") or ():
        yield "fabric_source_nodes", each["nodes"], (each["source"],)
        if "time" in each:
            time_s = times.parse(each["time"])
            yield "fabric_source_timestamp_seconds", time_s, (each["source"],)


def _slow(healths: Iterable[HealthRecord]) -> Iterator[Sample]:
    """The samples of the slowest nodes."""
    slow = (
        (min(speed.products, speed.memory), each.name, speed)
        for each in healths
        if (speed := each.relative_speed) != EVEN
    )
    for _, node, speed in heapq.nsmallest(NODES_MAX, slow, key=itemgetter(0, 1)):
        yield "node_relative_speed", speed.products, (node, "products")
        yield "node_relative_speed", speed.memory, (node, "memory")
