"""The nodes of the cluster: their devices and what uses them, their racks, their condition."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from railwright_api import names, quantities, routes
from railwright_cli.api_objects import (
    ConditionView,
    FabricTopology,
    FabricView,
    MetadataView,
    PodView,
)
from railwright_cli.api_server import CORE, ApiServer, Query, Read
from railwright_cli.errors import AccessDeniedError
from railwright_cli.progress import counted_progress
from railwright_conversion import amounts
from railwright_topology.grouping import group
from railwright_topology.sources import hostlist
from railwright_topology.sources.hostlist import HostlistError

NODES_READ_MAX = 1 << 17
"""More names of nodes than an object has space for, unless a host list is made to be large."""

ADAPTERS = re.compile(r"rdma|roce|infiniband|efa|hca|nic\b|sriov|/vf", re.IGNORECASE)
"""Resources that are adapters of the network. Their plugins offer one adapter many times, or all
of a node as one: whether a node is free is for its other devices to say."""

LIVE_PODS = {"fieldSelector": "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"}


class TaintView(Struct, frozen=True):
    """What keeps pods from a node."""

    key: str
    effect: str = ""
    value: str = ""


class NodeSpecView(Struct, frozen=True):
    """What keeps pods from a node."""

    unschedulable: bool = False
    taints: tuple[TaintView, ...] = ()


class NodeStatusView(Struct, frozen=True):
    """What a node has, and whether its kubelet works."""

    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}
    conditions: tuple[ConditionView, ...] = ()


class NodeView(Struct, frozen=True):
    """A node of the cluster."""

    metadata: MetadataView
    spec: NodeSpecView = NodeSpecView()
    status: NodeStatusView = NodeStatusView()

    @property
    def is_reserved(self) -> bool:
        """Whether the control plane keeps it for itself. Nobody describes where such a node is."""
        return any(taint.key == names.CONTROL_PLANE for taint in self.spec.taints)


class RelativeSpeedView(Struct, frozen=True):
    """The speed of a node over that of most of its kind."""

    products: str = ""


class NodeHealthSpecView(Struct, rename="camel", frozen=True):
    """The hardware of a node."""

    hardware: str | None = None
    device: str | None = None
    relative_speed: RelativeSpeedView | None = None
    slow: tuple[str, ...] = ()
    rails: dict[str, object] | None = None


class NodeHealthView(Struct, frozen=True):
    """A NodeHealth."""

    metadata: MetadataView
    spec: NodeHealthSpecView = NodeHealthSpecView()


@dataclass(slots=True)
class NodeUse:
    """A node and what uses it. ``devices`` are those that it has, ``allocatable`` those that pods
    can use. ``used`` is what pods request, in all, by each of the ``jobs``, and by pods of no job
    (``foreign``); it is None if the pods are unknown. ``domains`` are those of the levels, the
    coarsest first."""

    node: NodeView
    devices: Mapping[str, int]
    allocatable: Mapping[str, int]
    domains: tuple[str, ...] = ()
    health: NodeHealthSpecView = field(default_factory=NodeHealthSpecView)
    used: Counter[str] | None = None
    jobs: dict[str, Counter[str]] = field(default_factory=dict)
    foreign: Counter[str] = field(default_factory=Counter)

    @property
    def state(self) -> str:
        """Ready, or what keeps pods from it. Jobs may tolerate a taint."""
        ready = next((each for each in self.node.status.conditions if each.type == "Ready"), None)
        if ready is None or ready.status != "True":
            return "NotReady"
        if self.node.spec.unschedulable:
            return "Cordoned"
        if any(not self.allocatable.get(name) for name in self.accelerators):
            return "NoDevices"
        keeps = [each.key for each in self.node.spec.taints if each.effect != "PreferNoSchedule"]
        # Sites keep other pods off the nodes that have devices by a taint of the device's name.
        return "Tainted" if any(key not in self.devices for key in keeps) else "Ready"

    @property
    def is_available(self) -> bool:
        """Whether jobs can run on it, some of them by tolerating its taints."""
        return self.state in ("Ready", "Tainted")

    @property
    def use(self) -> str | None:
        """Free, Partly or Full: how many of its devices are used. Without devices, whether a job
        runs on it."""
        if self.used is None:
            return None
        if not self.devices:
            return "Full" if self.jobs else "Free"
        counted = [(self.used[name], self.allocatable.get(name, 0)) for name in self.accelerators]
        if not any(used for used, _ in counted):
            return "Free"
        return "Full" if all(used >= count for used, count in counted) else "Partly"

    @property
    def accelerators(self) -> list[str]:
        """Its devices without adapters of the network, if it has others."""
        return accelerators(self.devices)


def accelerators(devices: Iterable[str]) -> list[str]:
    """Of these devices those that are no adapters of the network, if there are any."""
    every = sorted(devices)
    return [name for name in every if not ADAPTERS.search(name)] or every


@dataclass(frozen=True, slots=True)
class ClusterInventory:
    """All nodes by name, the levels of the network, and what the user may not read."""

    nodes: list[NodeUse]
    levels: tuple[str, ...]
    unread: tuple[str, ...]


def read_inventory(server: ApiServer) -> ClusterInventory:
    """Read nodes, pods, the Fabric and NodeHealths. What the user may not read is unknown, but for
    the nodes themselves: that raises RequestError."""
    uses = {node.metadata.name: node_use(node) for node in server.items(f"{CORE}/nodes", NodeView)}
    unread: list[str] = []
    levels = _read_fabric(server, uses, unread)
    for health in visible(server, routes.kind(names.NODE_HEALTHS), NodeHealthView, unread):
        if (use := uses.get(health.metadata.name)) is not None:
            use.health = health.spec
    pods = visible(server, f"{CORE}/pods", PodView, unread, LIVE_PODS)
    if "pods" not in unread:
        _count_pods(uses, pods)
    return ClusterInventory(sorted(uses.values(), key=_name), levels, tuple(unread))


def node_use(node: NodeView) -> NodeUse:
    """A node of which nothing else is known yet."""
    devices = _devices({**node.status.allocatable, **node.status.capacity})
    return NodeUse(node, devices, _devices(node.status.allocatable))


def _read_fabric(server: ApiServer, uses: dict[str, NodeUse], unread: list[str]) -> tuple[str, ...]:
    try:
        found = server.find(routes.one(names.FABRICS, names.SINGLETON), FabricView)
    except AccessDeniedError:
        unread.append(names.FABRICS)
        return ()
    topology = found.status.topology if found is not None else FabricTopology()
    levels = tuple(each.level for each in topology.levels)
    for place in topology.places:
        try:
            found_names = hostlist.expand(place.nodes, NODES_READ_MAX)
        except HostlistError:
            # A later version may write lists that this one cannot read.
            continue
        for name in found_names:
            if name in uses and len(place.domains) == len(levels):
                uses[name].domains = place.domains
    return levels


def _count_pods(uses: dict[str, NodeUse], pods: Iterable[PodView]) -> None:
    by_node = group((pod.spec.node_name, pod) for pod in pods)
    with counted_progress("counting devices of nodes", uses.values()) as each:
        for use in each:
            _count_pods_of(use, by_node.get(use.node.metadata.name, ()))


def _count_pods_of(use: NodeUse, pods: Iterable[PodView]) -> None:
    use.used = Counter()
    for pod in pods:
        requested = amounts.counted(pod.spec)
        use.used.update(requested)
        if label := pod.metadata.labels.get(names.LABEL_JOB_NAME):
            job = f"{pod.metadata.namespace}/{label}"
            use.jobs.setdefault(job, Counter()).update(requested)
        else:
            use.foreign.update(requested)


def visible(
    server: ApiServer,
    path: str,
    kind: type[Read],
    unread: list[str],
    query: Query | None = None,
) -> list[Read]:
    """The objects of a list; none, and its name among the ``unread``, if the user may not list
    them."""
    try:
        return server.items(path, kind, query)
    except AccessDeniedError:
        unread.append(path.rpartition("/")[2])
        return []


def _devices(texts: Mapping[str, str]) -> dict[str, int]:
    """The resources that device plugins report: their names have a slash."""
    counts = {name: device_count(name, text) for name, text in texts.items() if "/" in name}
    return {name: count for name, count in counts.items() if count}


def device_count(name: str, text: str) -> int:
    """A number of devices; what is no whole number counts as 0, as in the operator."""
    try:
        return quantities.amount(name, text)
    except quantities.QuantityError:
        return 0


def _name(use: NodeUse) -> list[tuple[bool, int, str]]:
    """The order of names with numbers: node-2 before node-10."""
    parts = re.findall("[0-9]+|[^0-9]+", use.node.metadata.name)
    return [(part.isdigit(), int(part) if part.isdigit() else 0, part) for part in parts]
