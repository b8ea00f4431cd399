"""The mapping request of one gang: its workload, and the nodes it can use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.cluster import Cluster
from railwright_scheduler.communication import measured
from railwright_scheduler.cost import contention, step
from railwright_scheduler.cost.contention import Uplinks, UplinkUse
from railwright_scheduler.cost.hardware import MACHINES, Machine
from railwright_scheduler.model.snapshot import Role
from railwright_scheduler.model.workload import Workload
from railwright_scheduler.remembered import Key
from railwright_topology.relative_speed import EVEN, RelativeSpeed

KEPT_BYTES, KEPT_NODE_BYTES = 8_192, 64
"""Of a request and its result, and of each node at each tier: numbers in tuples, twice."""


Uses = Sequence[Mapping[int, Sequence[UplinkUse]]]
"""The use of each domain's uplinks by other jobs, the coarsest level first."""


@dataclass(frozen=True, slots=True)
class RequestTier:
    """``domains`` has that of each node, ``capacity`` how many nodes can send out of each domain at
    full speed, and ``left`` how many of those while other jobs send too; ``reduces`` is whether the
    switches of each domain reduce in the network."""

    domains: tuple[int, ...]
    capacity: tuple[float, ...]
    left: tuple[float, ...]
    reduces: tuple[bool, ...]
    oversubscription: float


@dataclass(frozen=True, slots=True)
class OrderRequest:
    """A job and the nodes to map its ranks onto, in the network's order; the nearest tier is the
    first. ``kinds`` are the names of their machines, each with its relative speed, and ``stands``
    that of each node; it is empty if all are of one. ``before`` has the node of each rank in the
    attempt before, -1 if it is none of these; it is empty without one. ``budget`` is the number of
    pairs that may be evaluated."""

    workload: Workload
    nodes: int
    ranks_per_node: int
    segment: int
    kinds: tuple[tuple[str, RelativeSpeed], ...]
    stands: tuple[int, ...]
    tiers: tuple[RequestTier, ...]
    before: tuple[int, ...]
    budget: int

    @property
    def key(self) -> Key:
        """The cache key of its result."""
        size = KEPT_BYTES + KEPT_NODE_BYTES * self.nodes * (len(self.tiers) + 2)
        request = replace(self, workload=replace(self.workload, profile=None))
        return Key((request, self.workload.key), size)

    @property
    def machines(self) -> tuple[Machine, ...]:
        """Of these kinds, with as many devices as a node has ranks; none unless all kinds are known
        and can run the job."""
        found = [
            MACHINES[name].at_speed(relative_speed).of(self.ranks_per_node)
            for name, relative_speed in self.kinds
            if name in MACHINES and MACHINES[name].devices >= self.ranks_per_node
        ]
        unsupported = any(step.unsupported_reason(self.workload, each) for each in found)
        return () if unsupported or len(found) < len(self.kinds) else tuple(found)

    @property
    def even(self) -> OrderRequest:
        """The same if all machines were as fast as most of their kind."""
        names = sorted({name for name, _ in self.kinds})
        stands = (names.index(self.kinds[its][0]) for its in self.stands)
        kinds = tuple((name, EVEN) for name in names)
        return replace(self, kinds=kinds, stands=tuple(stands) if len(names) > 1 else ())

    @property
    def share(self) -> float:
        """Of a node's adapters those that the gang has; 0 where not all machines are known."""
        devices = [MACHINES[name].devices if name in MACHINES else 0 for name, _ in self.kinds]
        return self.ranks_per_node / max(devices) if all(devices) else 0.0


def build_request(
    role: Role, cluster: Cluster, nodes: Ints, *, budget: int, uses: Uses = ()
) -> OrderRequest:
    """Map a job that has a workload onto these nodes (columns, ascending), beside what others
    make of the uplinks."""
    assert role.workload is not None
    request = build_unshared_request(role.workload, role.ranks_per_pod, cluster, nodes)
    if any(uses) and (share := request.share):
        uplinks = zip(request.tiers, reversed(cluster.uplinks), reversed(uses), strict=True)
        tiers = tuple(_beside(*each, nodes=nodes, share=share) for each in uplinks)
        request = replace(request, tiers=tiers)
    before, segment = _before(role, cluster, nodes), role.constraints.segment
    return replace(request, segment=segment, before=before, budget=budget)


def build_unshared_request(
    workload: Workload, ranks_per_node: int, cluster: Cluster, nodes: Ints
) -> OrderRequest:
    """The same request without other traffic and without a search."""
    workload = measured.held(workload, cluster.devices(nodes))
    its = [cluster.nodes[column] for column in nodes.tolist()]
    found = {(node.machine, node.relative_speed) for node in its}
    kinds = sorted(found, key=lambda kind: (kind[0], astuple(kind[1])))
    at = {kind: number for number, kind in enumerate(kinds)}
    stands = tuple(at[node.machine, node.relative_speed] for node in its) if len(kinds) > 1 else ()
    levels = zip(cluster.uplinks, cluster.reducing, strict=True)
    tiers = tuple(_tier(*each, nodes=nodes) for each in levels)[::-1]
    return OrderRequest(
        workload, len(nodes), ranks_per_node, 1, tuple(kinds), stands, tiers, (), budget=0
    )


def _before(role: Role, cluster: Cluster, nodes: Ints) -> tuple[int, ...]:
    """Which of these nodes each rank was on in the attempt before; -1 for none of them."""
    if len(role.before) != len(nodes):
        return ()
    at = {cluster.nodes[column].name: place for place, column in enumerate(nodes.tolist())}
    return tuple(at.get(name, -1) for name in role.before)


def _tier(uplinks: Uplinks, reduces: Mask, *, nodes: Ints) -> RequestTier:
    """The domains of these nodes, numbered anew."""
    named, domains = np.unique(uplinks.domains[nodes], return_inverse=True)
    capacity, sums = tuple(uplinks.capacity[named].tolist()), tuple(reduces[named].tolist())
    return RequestTier(tuple(domains.tolist()), capacity, capacity, sums, uplinks.oversubscription)


def _beside(
    tier: RequestTier,
    uplinks: Uplinks,
    uses: Mapping[int, Sequence[UplinkUse]],
    *,
    nodes: Ints,
    share: float,
) -> RequestTier:
    """The same with what others leave, for a gang that has this share of its nodes' adapters."""
    named = np.unique(uplinks.domains[nodes]).tolist()
    counts = np.bincount(tier.domains).tolist()
    found = (
        min(capacity, contention.left(capacity, count * share, uses[domain]) / share)
        if domain in uses
        else capacity
        for domain, capacity, count in zip(named, tier.capacity, counts, strict=True)
    )
    return replace(tier, left=tuple(found))
