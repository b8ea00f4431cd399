"""The nodes as a scheduling cycle needs them; one is built again only after a change of it.

A cycle needs every node of the cluster, and few of them changed since the last one. So a
node is kept as long as its record and what its pods hold are the very same objects as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from railwright_conversion import machines
from railwright_operator.watch.pod_index import PodIndex
from railwright_scheduler.model import scale_up_domains
from railwright_scheduler.model.snapshot import Node
from railwright_scheduler.usage import NodeUsage, with_usage
from railwright_topology.interconnect import Interconnect
from railwright_watch.node_healths import HealthRecord
from railwright_watch.nodes import NodeRecord


@dataclass(frozen=True, slots=True)
class _Made:
    record: NodeRecord
    usage: NodeUsage
    health: HealthRecord | None
    node: Node

    def is_of(self, record: NodeRecord, usage: NodeUsage, health: HealthRecord | None) -> bool:
        """Whether nothing changed about the node and its pods."""
        return self.record is record and self.usage is usage and self.health is health


class Machines:
    """The nodes of a cluster by name, with their domains and relative speeds."""

    def __init__(self, nodes: Mapping[str, NodeRecord], pods: PodIndex) -> None:
        self._records = nodes
        self._pods = pods
        self._made: dict[str, _Made] = {}
        self._racks: dict[tuple[str, ...], int | None] = {}
        self._racks_before: dict[tuple[str, ...], int | None] = {}
        self._domains: dict[str, tuple[str, ...]] = {}
        self.interconnect = Interconnect()
        self.by_name: dict[str, NodeRecord] = {}

    def build_nodes(
        self, interconnect: Interconnect, healths: Mapping[str, HealthRecord]
    ) -> tuple[Node, ...]:
        """Build all nodes, sorted by name, with the domains, rails and relative speeds they have
        here. A record of an earlier node of the same name does not count."""
        self.by_name = {record.name: record for record in self._records.values()}
        before, usage_on = self._made, self._pods.usage
        if interconnect is not self.interconnect:
            self.interconnect, before = interconnect, {}
            self._racks.clear()
            self._domains.clear()
        # What no cycle since the last one needed is of attempts and nodes that are gone.
        self._racks, self._racks_before = {}, self._racks
        self._domains = {name: its for name, its in self._domains.items() if name in self.by_name}
        made: dict[str, _Made] = {}
        for name in sorted(self.by_name):
            record, health, held = self.by_name[name], healths.get(name), before.get(name)
            if health is not None and health.node_uid != record.uid:
                health = None
            if held is None or not held.is_of(record, usage_on(name), health):
                held = self._build_node(name, health)
            made[name] = held
        self._made = made
        return tuple(each.node for each in made.values())

    def racks(self, nodes: tuple[str, ...]) -> int | None:
        """The number of domains of the nearest level that these nodes are in."""
        if nodes not in self._racks:
            is_held = nodes in self._racks_before
            self._racks[nodes] = self._racks_before[nodes] if is_held else self._count_racks(nodes)
        return self._racks[nodes]

    def _count_racks(self, nodes: tuple[str, ...]) -> int | None:
        nearest = self.interconnect.nearest
        stood_in = self.interconnect.sizes(nodes, nearest) if nearest >= 0 else ()
        return len(stood_in) or None

    def devices(self, nodes: tuple[str, ...]) -> frozenset[str]:
        """The kinds of devices of these nodes."""
        return frozenset(self._made[name].node.device for name in nodes if name in self._made)

    def _place(self, name: str) -> tuple[str, ...]:
        """The domains of a node, with its scale-up domain resolved."""
        if name not in self._domains:
            self._domains[name] = scale_up_domains.resolve_domains(
                self.interconnect.levels, self.interconnect.place(name)
            )
        return self._domains[name]

    def _build_node(self, name: str, health: HealthRecord | None) -> _Made:
        record, usage, held = self.by_name[name], self._pods.usage(name), self._made.get(name)
        before = held.node if held is not None and held.record.uid == record.uid else None
        found = _node(record, self._place(name), health)
        node = with_usage(found, usage, before=before, capacity=record.capacity)
        return _Made(record, usage, health, before if before == node else node)


def _node(record: NodeRecord, place: tuple[str, ...], health: HealthRecord | None) -> Node:
    found = machines.node(
        record.name,
        place,
        labels=record.labels,
        taints=record.taints,
        allocatable=record.allocatable,
        ready=record.ready,
        cordoned=record.cordoned,
        discovered="" if health is None else health.device,
    )
    if health is None:
        return found
    return replace(found, rails=health.rails, relative_speed=health.relative_speed)
