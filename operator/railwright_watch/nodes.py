"""Nodes, as the operator and the controllers hold them.

Each is converted once, when it arrives, into a slotted record of the used fields (``projections``).
Equality ignores the resourceVersion: an update without a change of these fields is no change.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from railwright_api import names
from railwright_conversion import amounts
from railwright_kube import core_v1
from railwright_kube.core_v1 import NodeObject
from railwright_scheduler.model.snapshot import Amounts, Taint

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""The taint of Kubernetes' non-graceful node shutdown."""


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node. Of the devices in its ``capacity``, the healthy ones are ``allocatable``.

    ``unreachable``: its kubelet stopped renewing, so that Ready is Unknown. ``unread`` are
    resources whose allocatable amount could not be read, each with the error. They do not count in
    comparisons, as the amounts do.
    """

    uid: str
    name: str
    rv: int = field(compare=False)
    ready: bool
    cordoned: bool
    taints: tuple[Taint, ...]
    labels: Mapping[str, str]
    allocatable: Amounts
    addresses: tuple[str, ...] = ()
    capacity: Amounts = field(default_factory=dict)
    unreachable: bool = False
    unread: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def out_of_service(self) -> bool:
        """Whether a person or the cloud declared that the machine is off."""
        return any(taint.key == OUT_OF_SERVICE for taint in self.taints)

    @property
    def is_reserved(self) -> bool:
        """Whether the control plane keeps it for itself. Nobody describes where such a node is."""
        return any(taint.key == names.CONTROL_PLANE for taint in self.taints)


def node(found: NodeObject) -> NodeRecord:
    """The record of a Node."""
    metadata, spec, status = found.metadata, found.spec, found.status
    allocatable, unread = amounts.allocatable(status.allocatable)
    labels = {sys.intern(k): sys.intern(v) for k, v in metadata.labels.items()}
    ready = core_v1.condition(status, "Ready").status
    return NodeRecord(
        uid=metadata.uid,
        name=sys.intern(metadata.name),
        rv=int(metadata.resource_version),
        ready=ready == "True",
        cordoned=spec.unschedulable,
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in spec.taints),
        labels=MappingProxyType(labels),
        allocatable=allocatable,
        addresses=tuple(each.address for each in status.addresses),
        capacity=amounts.allocatable(status.capacity)[0],
        unreachable=ready == "Unknown",
        unread=unread,
    )


def with_held_amounts(held: NodeRecord, news: NodeRecord) -> NodeRecord:
    """The new record, with the last readable value of amounts that cannot be read.

    The kubelet passes on whatever a device plugin reports; an amount that is none must neither stop
    the watch nor make a node's devices come and go.
    """
    if not news.unread:
        return news
    kept = {resource: held.allocatable.get(resource, 0) for resource in news.unread}
    return replace(news, allocatable={**news.allocatable, **kept})
