"""Prometheus series of the nodes and their devices, computed at each scrape.

The nodes are those of the last scheduling cycle, which calls this.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from railwright_scheduler import assume
from railwright_scheduler.cluster_state import ClusterState
from railwright_scheduler.model.snapshot import Node, Unavailable, is_device
from railwright_scheduler.plan import Plan

RESOURCES_MAX = 32
"""Kinds of devices with series of their own, the most frequent first."""

AVAILABLE = "Available"


class FleetMetrics(Collector):
    """Collects the series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._cycle: tuple[ClusterState, Plan] | None = None
        registry.register(self)

    def __repr__(self) -> str:
        return "<FleetMetrics>"

    def record(self, state: ClusterState, plan: Plan) -> None:
        """Take in a cycle."""
        self._cycle = state, plan

    def describe(self) -> Iterable[Metric]:
        """The names of the series, which the registry checks for duplicates."""
        return _families().values()

    def collect(self) -> Iterable[Metric]:
        """The series. May be called in another thread than the event loop's."""
        nodes, families = _nodes(self._cycle), _families()
        states = collections.Counter(node.unavailable for node in nodes)
        for unavailable in (None, *Unavailable) if nodes else ():
            families["nodes"].add_metric((_state(unavailable),), states[unavailable])
        all_devices = _devices(node.allocatable for node in nodes)
        used = _devices(node.used for node in nodes)
        lost = _devices(node.allocatable for node in nodes if node.unavailable is not None)
        for resource, count in all_devices.most_common(RESOURCES_MAX):
            families["devices"].add_metric((resource,), count)
            families["devices_used"].add_metric((resource,), used[resource])
            families["devices_unavailable"].add_metric((resource,), lost[resource])
        return families.values()


def _nodes(cycle: tuple[ClusterState, Plan] | None) -> Sequence[Node]:
    """The nodes once the plan of the cycle is carried out."""
    if cycle is None:
        return ()
    state, plan = cycle
    double_booked = frozenset(booking.node for booking in plan.double_bookings)
    return assume.subtract_assumed(state, plan.ledger.entries, double_booked)


def _families() -> dict[str, GaugeMetricFamily]:
    texts = {
        "nodes": ("Nodes by state: Available, or why no pod is placed on them.", "state"),
        "devices": ("Devices of all nodes, by resource.", "resource"),
        "devices_used": ("Devices that pods hold, or are about to, by resource.", "resource"),
        "devices_unavailable": ("Devices of nodes that are not available.", "resource"),
    }
    return {
        name: GaugeMetricFamily(f"railwright_{name}", text, labels=(label,))
        for name, (text, label) in texts.items()
    }


def _state(unavailable: Unavailable | None) -> str:
    if unavailable is None:
        return AVAILABLE
    return "".join(word.capitalize() for word in unavailable.value.split("-"))


def _devices(amounts: Iterable[Mapping[str, int]]) -> collections.Counter[str]:
    """The sum of the devices in these amounts."""
    found: collections.Counter[str] = collections.Counter()
    for each in amounts:
        for resource, count in each.items():
            if is_device(resource):
                found[resource] += count
    return found
