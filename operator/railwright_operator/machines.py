"""The machines as a turn sees them: each made again only where something about it changed.

A turn looks at every node of the cluster, and hardly any of them changed since the last one. So a
node is kept as long as its record and what its pods hold are the very same objects as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from railwright_operator.watch.pod_index import PodIndex
from railwright_operator.watch.records import NodeRecord
from railwright_scheduler.cluster import AMOUNT_MAX
from railwright_scheduler.snapshot import Amounts, Node, Taint, Unavailable
from railwright_topology import tiers

CONDITION_TAINTS = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unschedulable",
    }
)
"""What the control plane adds to a node that is not Ready or cordoned, which the node itself says
already."""


@dataclass(frozen=True, slots=True)
class _Made:
    record: NodeRecord
    used: Amounts
    node: Node


class Machines:
    """The nodes of a cluster by name, and the domains they stand in."""

    def __init__(self, nodes: Mapping[str, NodeRecord], pods: PodIndex) -> None:
        self._records = nodes
        self._pods = pods
        self._made: dict[str, _Made] = {}
        self._racks: dict[tuple[str, ...], int | None] = {}
        self.configured: tuple[str, ...] = ()
        self.by_name: dict[str, NodeRecord] = {}
        self.levels: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Machines {len(self.by_name)} levels={self.levels}>"

    def look(self, configured: Sequence[str]) -> tuple[Node, ...]:
        """All nodes by name; ``configured`` levels that no node carries a label of are left out."""
        self.by_name = {record.name: record for record in self._records.values()}
        labels = (record.labels for record in self.by_name.values())
        levels = tiers.present(configured, labels)
        if levels != self.levels or tuple(configured) != self.configured:
            self.levels, self.configured = levels, tuple(configured)
            self._made.clear()
        made = {name: self._look_at(name) for name in sorted(self.by_name)}
        if made.keys() != self._made.keys():
            self._racks.clear()
        self._made = made
        return tuple(each.node for each in made.values())

    def racks(self, nodes: tuple[str, ...]) -> int | None:
        """How many known domains of the finest level these nodes stand in."""
        if nodes not in self._racks:
            found, levels = self.by_name, self.configured
            paths = [tiers.path(found[name].labels, levels) for name in nodes if name in found]
            counts = tiers.census(paths, levels)
            self._racks[nodes] = counts[-1] or None if counts else None
        return self._racks[nodes]

    def _look_at(self, name: str) -> _Made:
        record, used = self.by_name[name], self._pods.used(name)
        held = self._made.get(name)
        if held is not None and held.record is record and held.used is used:
            return held
        if held is None or held.record.labels != record.labels:
            self._racks.clear()
        return _Made(record, used, _node(record, used, self.levels))


def _node(record: NodeRecord, used: Amounts, levels: Sequence[str]) -> Node:
    unavailable = None
    if not record.ready:
        unavailable = Unavailable.UNREADY
    elif record.cordoned:
        unavailable = Unavailable.CORDONED
    return Node(
        name=record.name,
        domains=tiers.path(record.labels, levels),
        allocatable=_capped(record.allocatable),
        used=_capped(used),
        labels=record.labels,
        taints=tuple(taint for taint in record.taints if not _is_of_a_condition(taint)),
        unavailable=unavailable,
    )


def _is_of_a_condition(taint: Taint) -> bool:
    return taint.key in CONDITION_TAINTS


def _capped(amounts: Amounts) -> Amounts:
    """Anyone may claim anything; more than any node has is taken for as much as one can have."""
    return {name: min(amount, AMOUNT_MAX) for name, amount in amounts.items()}
