"""Select the nodes of one role.

``NodeSelector`` takes the nodes that a job may have now, and finds the set that spans the fewest
domains, and a few others on which a step may be shorter. Which of them the gang gets, and in which
order, its mapping decides.

Slow nodes are used last among equally near ones. Nodes are slow at different things (compute,
memory, links), and jobs depend on different ones. If a step of the job can be predicted, the
slowdown of a node is by how much a step is longer on nodes like it than on normal nodes of its
kind, in degrees. Otherwise its lowest relative speed counts.

Dropped: a price for slow nodes in the choice of domains. It would have to be weighed against
leaving large domains whole, which matters to small jobs every day, while slow nodes are few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from railwright_scheduler.arrays import Floats, Ints, Mask
from railwright_scheduler.budget import CALL, ELEMENT, SORTED, OverBudgetError, WorkBudget
from railwright_scheduler.cluster import SLOWDOWN_DEGREES, Capacity, Cluster
from railwright_scheduler.cost import step
from railwright_scheduler.cost.hardware import MACHINES
from railwright_scheduler.mapping.request import Uses
from railwright_scheduler.model.snapshot import Role
from railwright_scheduler.model.workload import Workload
from railwright_scheduler.placement.choose import choose
from railwright_scheduler.placement.constraints import LevelLimit, ResolvedConstraints, capacity
from railwright_scheduler.placement.domains import Domains
from railwright_scheduler.policy import ranks
from railwright_scheduler.policy.link_traffic import Traffic
from railwright_scheduler.remembered import Key, remembered
from railwright_topology.relative_speed import EVEN, RelativeSpeed

FASTER = 2
"""Degrees of the slowest nodes that a gang is looked at without, beside without any slow ones."""

LOUDNESS = 64
"""The number of degrees of uplink load that order equal domains."""

OFTEN = 4
"""Attempts to find a faster set than the best so far."""

_CHOICE = 50 * CALL
"""Work of one more choice, beside that of its split and of sorting all nodes."""

KINDS_MAX = 64
"""Where slow nodes are of more kinds, predicting a step on each would take a tenth of a second."""

KEPT_BYTES_MAX, KEPT_BYTES = 4 << 20, 4_096
"""Slowdowns that are kept, and about what each of them takes."""

WORK, PREDICTED = 2_000_000, 500_000
"""What it may take to find the slowdown of one kind, and what it takes to predict a step beside
what grows with ranks."""

ROUNDED = 1e-6
"""Of a degree: what rounding alone makes longer is as fast."""


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
        count, slow = role.replicas, _slowdown(role, self._cluster)
        domains = self._cluster.domains
        had, free_capacity = frozenset(role.before), self._weighted_capacity(role, slow)

        def rank(limits: ResolvedConstraints) -> tuple[bool, tuple[int, ...], int, int]:
            free = allowed(limits)
            if capacity(domains, free, limits) < count:
                return True, (), 0, 0
            rather = self._preferred(free, limits, count)
            nodes = _choose_fastest(domains, rather, free_capacity, slow, count, limits, work)
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
        return _choose_fastest(domains, allowed, free_capacity, slow, role.replicas, limits, work)

    def _preferred(self, allowed: Mask, limits: ResolvedConstraints, count: int) -> Mask:
        """Only the nodes of scale-up domains, where one of these is preferred and holds the job."""
        scale_up_level = self._cluster.scale_up_level
        if limits.rather != scale_up_level:
            return allowed
        within = limits._replace(within=max(limits.within, scale_up_level), scale_up_only=True)
        in_scale_up_domains = self._cluster.meant(allowed, within)
        held = capacity(self._cluster.domains, in_scale_up_domains, within) >= count
        return in_scale_up_domains if held else allowed

    def choices(
        self, role: Role, allowed: Mask, limits: ResolvedConstraints, work: WorkBudget
    ) -> list[Ints]:
        """The sets of nodes (columns, ascending) to map the role's ranks onto, each once, the one
        that spans the fewest domains first. There must be capacity."""
        allowed = self._preferred(allowed, limits, role.replicas)
        domains, count = self._cluster.domains, role.replicas
        slow = _slowdown(role, self._cluster)
        free_capacity = self._weighted_capacity(role, slow)
        first = _choose_fastest(domains, allowed, free_capacity, slow, count, limits, work)
        if not self._spans(role):
            return [first]
        busy = self._traffic.busy(first)
        if busy.any():
            free_capacity = self._weighted_capacity(role, slow, busy)
            first = _choose_fastest(domains, allowed, free_capacity, slow, count, limits, work)
        others = (
            _choose_fastest(domains, nodes, free_capacity, slow, count, its, work)
            for nodes, its in self._others(role, first, allowed, limits, slow=slow, busy=busy)
            if capacity(domains, nodes, its) >= count
        )
        return [*{nodes.tobytes(): nodes for nodes in (first, *others)}.values()]

    def uses(self, role: Role) -> Uses:
        """The use by other jobs of the uplinks that the role could send over."""
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
        spanned = spans[domains.finest]
        for its in self._portions(role, limits, spanned):
            yield allowed, its
        for mask in self._better_masks(first, slow, busy):
            yield allowed & mask, limits
            # Without some nodes of the one domain that it is in, the role is in several.
            for its in self._portions(role, limits, max(2, spanned)):
                yield allowed & mask, its

    def _portions(
        self, role: Role, limits: ResolvedConstraints, spanned: int
    ) -> Iterator[ResolvedConstraints]:
        """The constraints with each portion that is worth keeping in one domain."""
        finest = self._cluster.domains.finest
        for size in ranks.portions(role, spanned) if limits.segment == 1 else ():
            yield limits._replace(segments=(LevelLimit(finest, size),))

    def _better_masks(self, first: Ints, slow: Ints, busy: Floats) -> Iterator[Mask]:
        """Nodes that are better in one respect: in domains with in-network reduction, or with twice
        the uplink bandwidth, or with uplinks less than half as busy; nodes of which none is slow,
        or as slow as the slowest, or as slow in products, memory or rails; nodes of one kind."""
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
        if degrees:
            yield from self._faster_in_each_respect(first)
        if len(kinds := {self._cluster.nodes[column].machine for column in first.tolist()}) > 1:
            machines = np.array([node.machine for node in self._cluster.nodes])
            for kind in sorted(kinds - {""}):
                yield machines == kind

    def _faster_in_each_respect(self, first: Ints) -> Iterator[Mask]:
        """Nodes that are not as slow as the slowest in each respect, and in all of them. Which one
        a step depends on shows only in the gang: a node with few rails costs nothing beside another
        that has as few, and one that is slow in memory still does."""
        speeds = [node.relative_speed for node in self._cluster.nodes]
        each = np.array([(speed.products, speed.memory, speed.rails) for speed in speeds]).T
        faster = [its > its[first].min() for its in each if its[first].min() < 1.0]
        yield from faster
        if len(faster) > 1:
            yield np.logical_and.reduce(faster)

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


def _choose_fastest(
    domains: Domains,
    allowed: Mask,
    free_capacity: Ints,
    slowdown: Ints,
    count: int,
    limits: ResolvedConstraints,
    work: WorkBudget,
) -> Ints:
    """As ``choose.choose``. Among equal domains those with the lowest ``free_capacity`` are
    chosen first; ``slowdown`` is the degree of each node.

    Starting from one set, the search tries sets without its slow nodes, without its slowest ones,
    and without all nodes that are as slow as these, and takes one that spans as few domains of each
    level. Without slow nodes there is one choice. When the work budget is spent, the best set so
    far is taken.
    """

    def choice(nodes: Mask) -> Ints:
        return choose(domains, nodes, free_capacity, count=count, limits=limits, work=work)

    def slow(nodes: Ints) -> tuple[int, int]:
        return int(slowdown[nodes].max()), int(slowdown[nodes].sum())

    best = choice(allowed)
    with work.search(100):
        for _ in range(OFTEN):
            if not slowdown[best].any():
                break
            masks = [*_without_slow(best, allowed, slowdown)]
            work.spend(len(masks) * (_CHOICE + SORTED * len(allowed)))
            able = (mask for mask in masks if capacity(domains, mask, limits) >= count)
            others = [choice(mask) for mask in able]
            as_near = [nodes for nodes in others if domains.spans(nodes) == domains.spans(best)]
            found = min(as_near, key=slow, default=best)
            if slow(found) >= slow(best):
                break
            best = found
    return best


def _without_slow(nodes: Ints, allowed: Mask, slowdown: Ints) -> Iterator[Mask]:
    """All that are allowed but the slow ones of these, and but the slowest of these; and all that
    are not as slow as the slowest of these."""
    slow = slowdown[nodes]
    for left_out in (slow > 0, slow == slow.max()):
        mask = allowed.copy()
        mask[nodes[left_out]] = False
        yield mask
    yield allowed & (slowdown < slow.max())


def _slowdown(role: Role, cluster: Cluster) -> Ints:
    """The degrees of each node; 0 of those that are not slow for this job."""
    workload = role.workload
    if workload is None or workload.model is None or not cluster.slowdown.any():
        return cluster.slowdown
    slow = {
        (node.machine, node.relative_speed): 0
        for node in cluster.nodes
        if node.relative_speed != EVEN
    }
    if len(slow) > KINDS_MAX or any(name not in MACHINES for name, _ in slow):
        return cluster.slowdown
    try:
        for name, speed in slow:
            degrees = _slowdown_on(WorkBudget(WORK), workload, role.ranks_per_pod, name, speed)
            if degrees is None:
                return cluster.slowdown
            slow[name, speed] = degrees
    except OverBudgetError:
        return cluster.slowdown
    its = (slow.get((node.machine, node.relative_speed), 0) for node in cluster.nodes)
    return np.fromiter(its, dtype=np.int64, count=len(cluster.nodes))


def _key(workload: Workload, ranks_per_node: int, name: str, speed: RelativeSpeed) -> Key:
    return Key((workload.key, ranks_per_node, name, speed), KEPT_BYTES)


@remembered(KEPT_BYTES_MAX, _key)
def _slowdown_on(
    work: WorkBudget, workload: Workload, ranks_per_node: int, name: str, speed: RelativeSpeed
) -> int | None:
    """None where no step can be predicted on such machines."""
    work.spend(PREDICTED + ELEMENT * workload.split.ranks)
    kind = MACHINES[name]
    if kind.devices < ranks_per_node or step.unsupported_reason(workload, kind.of(ranks_per_node)):
        return None
    even_s, paced_s = (
        step.predict(*workload.parts, each.of(ranks_per_node)).total
        for each in (kind, kind.at_speed(speed))
    )
    return math.ceil(SLOWDOWN_DEGREES * (1.0 - min(1.0, even_s / paced_s)) - ROUNDED)
