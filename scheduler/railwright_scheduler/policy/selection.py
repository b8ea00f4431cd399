"""Select the nodes of one gang.

``NodeSelector`` takes the nodes that a job may have now, and finds the set that spans the fewest
domains, and a few others on which a step may be shorter. Which of them the gang gets, and in which
order, its mapping decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from railwright_scheduler import placement
from railwright_scheduler.arrays import Floats, Ints, Mask
from railwright_scheduler.budget import WorkBudget
from railwright_scheduler.cluster import Capacity, Cluster
from railwright_scheduler.mapping.request import Uses
from railwright_scheduler.model.snapshot import Role
from railwright_scheduler.placement import LevelLimit, ResolvedConstraints
from railwright_scheduler.policy import node_speeds, ranks
from railwright_scheduler.policy.fastest_first import choose_fastest
from railwright_scheduler.policy.link_traffic import Traffic

FASTER = 2
"""Degrees of the slowest nodes that a gang is looked at without, beside without any slow ones."""

LOUDNESS = 64
"""The number of degrees of uplink load that order equal domains."""


class NodeSelector:
    """Selects nodes by what is free and by the traffic of the jobs that run, as of now."""

    def __init__(self, cluster: Cluster, capacity: Capacity, traffic: Traffic) -> None:
        self._cluster = cluster
        self._capacity = capacity
        self._traffic = traffic

    def best_way(
        self,
        role: Role,
        ways: Sequence[ResolvedConstraints],
        allowed: Callable[[ResolvedConstraints], Mask],
        work: WorkBudget,
    ) -> ResolvedConstraints:
        """Of these ways in which a job could start that in which it spans the fewest domains; of
        equal ones that without slow nodes, then that in which it has the most of the nodes that it
        had. The first one, if it can start in none. ``allowed`` has the nodes of each way."""
        if len(ways) == 1:
            return ways[0]
        count, slow = role.replicas, node_speeds.degrees(role, self._cluster)
        domains = self._cluster.domains
        had, free_capacity = frozenset(role.before), self._weighted_capacity(role, slow)

        def rank(limits: ResolvedConstraints) -> tuple[bool, tuple[int, ...], int, int]:
            free = allowed(limits)
            if placement.capacity(domains, free, limits) < count:
                return True, (), 0, 0
            rather = self._preferred(free, limits, count)
            nodes = choose_fastest(domains, rather, free_capacity, slow, count, limits, work)
            kept = sum(self._cluster.nodes[column].name in had for column in nodes.tolist())
            return False, domains.spans(nodes), int(slow[nodes].max()), -kept

        return min(ways, key=rank)

    def select(
        self, role: Role, allowed: Mask, limits: ResolvedConstraints, work: WorkBudget
    ) -> Ints:
        """The nodes (columns, ascending) that suit the role best, whatever its ranks send. There
        must be capacity."""
        allowed = self._preferred(allowed, limits, role.replicas)
        domains, slow = self._cluster.domains, self._cluster.slowdown
        free_capacity = self._weighted_capacity(role, slow)
        return choose_fastest(domains, allowed, free_capacity, slow, role.replicas, limits, work)

    def _preferred(self, allowed: Mask, limits: ResolvedConstraints, count: int) -> Mask:
        """Only the nodes of scale-up domains, where one of these is preferred and holds the job."""
        scale_up_level = self._cluster.scale_up_level
        if limits.rather != scale_up_level:
            return allowed
        within = limits._replace(within=max(limits.within, scale_up_level), scale_up_only=True)
        in_scale_up_domains = self._cluster.meant(allowed, within)
        held = placement.capacity(self._cluster.domains, in_scale_up_domains, within) >= count
        return in_scale_up_domains if held else allowed

    def choices(
        self, role: Role, allowed: Mask, limits: ResolvedConstraints, work: WorkBudget
    ) -> list[Ints]:
        """The sets of nodes (columns, ascending) to map the role's ranks onto, the one that spans
        the fewest domains first. There must be capacity."""
        allowed = self._preferred(allowed, limits, role.replicas)
        domains, count = self._cluster.domains, role.replicas
        slow = node_speeds.degrees(role, self._cluster)
        free_capacity = self._weighted_capacity(role, slow)
        first = choose_fastest(domains, allowed, free_capacity, slow, count, limits, work)
        if not self._spans(role):
            return [first]
        busy = self._traffic.busy(first)
        if busy.any():
            free_capacity = self._weighted_capacity(role, slow, busy)
            first = choose_fastest(domains, allowed, free_capacity, slow, count, limits, work)
        others = (
            choose_fastest(domains, nodes, free_capacity, slow, count, its, work)
            for nodes, its in self._others(role, first, allowed, limits, slow=slow, busy=busy)
            if placement.capacity(domains, nodes, its) >= count
        )
        return [first, *others]

    def uses(self, role: Role) -> Uses:
        """What other jobs make of the uplinks that the role could send over."""
        return self._traffic.uses() if self._spans(role) else ()

    def _spans(self, role: Role) -> bool:
        """Whether it matters to the role which nodes are near each other."""
        return role.has_traffic and role.replicas > 1 and self._cluster.domains.finest > 0

    def _others(
        self,
        role: Role,
        first: Ints,
        allowed: Mask,
        limits: ResolvedConstraints,
        *,
        slow: Ints,
        busy: Floats,
    ) -> Iterator[tuple[Mask, ResolvedConstraints]]:
        """Other sets to choose from: portions of the job that suit it better in each domain, and
        nodes that are better than some of ``first``."""
        domains = self._cluster.domains
        if role.replicas > ranks.CHOSEN_NODES:
            return
        spans = (1, *domains.spans(first))
        # What it rather has and got is not given up for others.
        kept = max(level for level in range(limits.rather + 1) if spans[level] == 1)
        limits = limits._replace(within=max(limits.within, kept))
        if limits.segment == 1:
            for size in ranks.portions(role, spans[domains.finest]):
                yield allowed, limits._replace(segments=(LevelLimit(domains.finest, size),))
        for mask in self._better_masks(first, slow, busy):
            yield allowed & mask, limits

    def _better_masks(self, first: Ints, slow: Ints, busy: Floats) -> Iterator[Mask]:
        """Nodes that are better in one respect: in domains with in-network reduction, or with twice
        the uplink bandwidth, or with uplinks less than half as busy; nodes of which none is slow,
        or as slow as the slowest; nodes of one kind."""
        summed = self._cluster.summed
        if summed.any() and not summed[first].all():
            yield summed
        wide = self._cluster.wide(self._cluster.domains.spans(first))
        narrowest = float(wide[first].min())
        if narrowest < 1.0:
            yield wide >= 2.0 * narrowest
        busiest = float(busy[first].max())
        if busiest > 0.0:
            yield busy < busiest / 2
        degrees = [degree for degree in np.unique(slow[first]).tolist() if degree > 0]
        for degree in sorted({*degrees[:1], *degrees[-FASTER:]}):
            yield slow < degree
        if len(kinds := {self._cluster.nodes[column].machine for column in first.tolist()}) > 1:
            machines = np.array([node.machine for node in self._cluster.nodes])
            for kind in sorted(kinds - {""}):
                yield machines == kind

    def _weighted_capacity(self, role: Role, slow: Ints, busy: Floats | None = None) -> Ints:
        """Free capacity of each node, weighted to order equal domains; the least goes first. Slow
        nodes and nodes whose uplinks are busy count as if they had more, and the nodes of the last
        attempt less than any other as fast."""
        free_capacity = self._capacity.free_capacity
        if busy is None and not role.before and not slow.any():
            return free_capacity
        more = np.zeros(len(free_capacity), dtype=np.int64)
        if busy is not None:
            more = np.ceil(LOUDNESS * busy).astype(np.int64)
        if role.before:
            before = frozenset(role.before)
            had = np.array([node.name in before for node in self._cluster.nodes], dtype=np.bool_)
            more = np.where(had, 0, 1 + more)
        more += (LOUDNESS + 2) * slow
        return free_capacity + more * (int(free_capacity.max(initial=0)) + 1)
