"""Search for the nodes of all roles of a gang, to start it or to reserve for it.

- Pods of one role are on distinct nodes; pods of two roles may share a node. So each role is placed
  beside what the roles before it take.
- The job's topology constraints hold for the pods of all roles that share them: one domain of the
  required level, one rail order, and ``spread`` counts the nodes of all their pods. Whole segments
  of each role are whole segments of the gang.
- The role with the fewest nodes to spare is placed first. If a later role does not fit beside it,
  the gang is placed again with that role first; if one domain is too small for all, in the next
  domain that could hold each of them.
- Each role is placed as near to the roles before it as it fits. If the gang does not fit that way,
  each role takes the nodes on which it displaces the fewest of the roles after it.

Placing roles one after the other may miss a placement that a joint search would find: with several
resources that search is a vector bin packing problem, which is NP-hard.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from railwright_scheduler import placement
from railwright_scheduler.budget import CALL, SEARCH_WORK, WorkBudget
from railwright_scheduler.cluster import Cluster, Ints, Mask, Taken
from railwright_scheduler.placement import ResolvedConstraints
from railwright_scheduler.policy.candidate import RoleDemand

ORDERS_MAX, DOMAINS_MAX, RAIL_ORDERS_MAX = 3, 3, 3
"""Orders of the roles, domains besides the best, and rail orders that are tried for a gang."""

PLACED, LIMITED, SPARED = (20, 50), (25, 65), (15, 40)
"""Calls, and units for each node of the cluster, of placing one role in one trial; more for each
level where a spread or segments limit what domains may have, and for each later role that it spares
nodes of."""

Allowed = Callable[[int, ResolvedConstraints, Sequence[Taken]], Mask]
"""The nodes that the role of this number may have, beside what other roles of its gang take."""

Choose = Callable[[int, ResolvedConstraints, Mask, Sequence[Taken]], Ints]
"""Of these nodes, which have capacity for it, those that the role of this number gets."""


@dataclass(frozen=True, slots=True)
class UnplacedRole:
    """The number of the role that does not fit beside the others, and the nodes left for it."""

    number: int
    free: int


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """How a gang is placed: the ``order`` of its roles, the constraints of each, the ``domain``
    that the job's constraints are met in (the first role's if None), and whether roles spare the
    nodes of later ones."""

    order: Sequence[int]
    limits: Sequence[ResolvedConstraints]
    domain: Mask | None
    spares: bool


@dataclass(slots=True)
class PartialGang:
    """The roles placed so far, by their numbers; ``shared`` are the nodes of those that share the
    job's topology constraints."""

    nodes: dict[int, Ints] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    shared: list[Ints] = field(default_factory=list)

    def add(self, number: int, demand: RoleDemand, nodes: Ints) -> None:
        """Add a role with its nodes (columns)."""
        self.nodes[number] = nodes
        self.taken.append(demand.taken(nodes))
        if demand.role.shares_topology:
            self.shared.append(nodes)


class GangSearch:
    """The search for one gang of several roles, which counts its work as ``searched``."""

    def __init__(
        self,
        cluster: Cluster,
        demands: Sequence[RoleDemand],
        allowed: Allowed,
        choose: Choose,
        work: WorkBudget,
    ) -> None:
        self._cluster = cluster
        self._demands = demands
        self._allowed = allowed
        self._choose = choose
        self._work = work
        self._end = work.searched + SEARCH_WORK

    def find(
        self, limits: Sequence[ResolvedConstraints]
    ) -> tuple[Trial, tuple[Ints, ...]] | UnplacedRole:
        """The first trial that places all roles under these constraints, with their nodes. If none
        does within ``SEARCH_WORK``: the role that did not fit in the first one. Of the rail orders
        of ``limits``, all roles that share the job's constraints have the same one."""
        unplaced: list[UnplacedRole] = []
        for its in self._one_rail_order(limits):
            orders = [self._scarcest_first(its)]
            for trial in self._trials(orders, its):
                if unplaced and self._work.searched >= self._end:
                    return unplaced[0]
                nodes = self.place(trial, self._choose)
                if not isinstance(nodes, UnplacedRole):
                    return trial, nodes
                unplaced.append(nodes)
                first = nodes.number
                other = [first, *(number for number in trial.order if number != first)]
                if other not in orders and len(orders) < ORDERS_MAX:
                    orders.append(other)
        return unplaced[0]

    def _trials(
        self, orders: Sequence[Sequence[int]], limits: Sequence[ResolvedConstraints]
    ) -> Iterator[Trial]:
        """The trials with these orders of the roles, which may become more meanwhile."""
        domains = [None, *itertools.islice(self._domains(orders[0], limits), DOMAINS_MAX)]
        for order in orders:
            for domain, spares in itertools.product(domains, (False, True)):
                yield Trial(order, limits, domain, spares)

    def place(self, trial: Trial, choose: Choose) -> tuple[Ints, ...] | UnplacedRole:
        """The nodes of each role (columns, as chosen), or the first that does not fit."""
        gang = PartialGang()
        for position, number in enumerate(trial.order):
            demand, limits = self._demands[number], trial.limits[number]
            later = trial.order[position + 1 :] if trial.spares else ()
            self._count(limits, spared=len(later))
            allowed = self._allowed(number, limits, gang.taken)
            if demand.role.shares_topology:
                allowed = allowed if trial.domain is None else allowed & trial.domain
                allowed = self._beside_shared(allowed, limits, gang.shared)
            free = placement.capacity(self._cluster.domains, allowed, limits)
            if free < demand.role.replicas:
                return UnplacedRole(number, free)
            if later:
                allowed = self._sparing(allowed, number, later, trial.limits, gang)
            near = self._nearest(allowed, limits, gang, demand.role.replicas)
            gang.add(number, demand, choose(number, limits, near, gang.taken))
        return tuple(gang.nodes[number] for number in range(len(self._demands)))

    def _count(self, limits: ResolvedConstraints, *, spared: int) -> None:
        """Count the work of placing one role."""
        levels = 0 if limits.takes_all else len(self._cluster.domains.bounds)
        nodes = len(self._cluster.nodes)
        for times, (calls, units) in ((1, PLACED), (levels, LIMITED), (spared, SPARED)):
            self._work.searched += times * (calls * CALL + nodes * units)

    def _one_rail_order(
        self, limits: Sequence[ResolvedConstraints]
    ) -> Iterator[Sequence[ResolvedConstraints]]:
        """The constraints of each role, with one rail order for all roles that share the job's:
        that of the first of them, then the others that one of them could start under, those first
        that leave the most nodes to the role with the fewest."""
        demands = self._demands
        shared = [at for at, demand in enumerate(demands) if demand.role.shares_topology]
        chosen = [limits[number].rails for number in shared]
        possible = [way.rails for number in shared for way in demands[number].ways]
        first, *others = [*dict.fromkeys([*chosen, *possible])] or [0]
        if others:
            spare = np.min([self._spare_by_rails(number, limits[number]) for number in shared], 0)
            others.sort(key=lambda rails: -int(spare[rails]))
        for rails in [first, *others[: RAIL_ORDERS_MAX - 1]]:
            yield [
                replace(its, rails=rails) if demand.role.shares_topology else its
                for demand, its in zip(demands, limits, strict=True)
            ]

    def _spare_by_rails(self, number: int, limits: ResolvedConstraints) -> Ints:
        """How many nodes of each rail order the role could have beyond those that it needs."""
        allowed = self._allowed(number, replace(limits, rails=0), ())
        return self._cluster.by_rails(allowed) - self._demands[number].role.replicas

    def _scarcest_first(self, limits: Sequence[ResolvedConstraints]) -> list[int]:
        """The roles by how many nodes they have to spare."""

        def spare(number: int) -> tuple[int, int]:
            allowed = self._allowed(number, limits[number], ())
            return int(np.count_nonzero(allowed)) - self._demands[number].role.replicas, number

        return sorted(range(len(self._demands)), key=spare)

    def _domains(
        self, order: Sequence[int], limits: Sequence[ResolvedConstraints]
    ) -> Iterator[Mask]:
        """The domains that could hold each role by itself. Those that hold all roles of this order,
        each on the first nodes that are left for it, come first, the smallest before others; then
        the largest of the rest."""
        shared = [number for number in order if self._demands[number].role.shares_topology]
        level = max((limits[number].within for number in shared), default=0)
        if not level or len(shared) < 2:
            return
        domains, of_node = self._cluster.domains, self._cluster.domains.of_node[level]
        able = np.ones(len(domains.bounds[level]) - 1, dtype=np.bool_)
        together, size = able.copy(), np.zeros(len(able), dtype=np.int64)
        taken: list[Taken] = []
        for number in shared:
            its, demand = limits[number], self._demands[number]
            caps = placement.caps(domains, self._allowed(number, its, ()), its)[level]
            able &= caps >= demand.role.replicas
            size += caps
            left = self._allowed(number, its, taken)
            together &= placement.caps(domains, left, its)[level] >= demand.role.replicas
            columns = np.flatnonzero(left)
            first = columns[_places(of_node[columns]) < demand.role.replicas]
            taken.append(demand.taken(first))
        together &= able
        rank = np.where(together, size, size.sum() + size.max() - size)
        for domain in np.argsort(rank, kind="stable").tolist():
            if able[domain]:
                yield of_node == domain

    def _beside_shared(
        self, allowed: Mask, limits: ResolvedConstraints, shared: Sequence[Ints]
    ) -> Mask:
        """Of these nodes those that the job's constraints leave once pods of earlier roles are on
        the ``shared`` nodes: in their domain of the required level, and in domains that have such
        nodes no more others than the spread leaves."""
        if not shared:
            return allowed
        domains, nodes = self._cluster.domains, np.unique(np.concatenate(list(shared)))
        if limits.within:
            of_node = domains.of_node[limits.within]
            allowed = allowed & (of_node == of_node[nodes[0]])
        others = allowed.copy()
        others[nodes] = False
        for spread in sorted(limits.spreads, key=lambda each: -each.level):
            of_node = domains.of_node[spread.level]
            used = np.bincount(of_node[nodes], minlength=int(of_node.max(initial=0)) + 1)
            columns = np.flatnonzero(others & (used > 0)[of_node])
            columns = self._whole_segments_first(columns, limits)
            columns = columns[np.argsort(of_node[columns], kind="stable")]
            owner = of_node[columns]
            surplus = columns[_places(owner) >= (spread.pods - used)[owner]]
            allowed = allowed.copy()
            allowed[surplus] = others[surplus] = False
        return allowed

    def _whole_segments_first(self, columns: Ints, limits: ResolvedConstraints) -> Ints:
        """These nodes (ascending, so that those of a domain are together), with those that make up
        whole segments before the rest, so that a cut leaves as many segments as it can."""
        whole = columns
        for segment in sorted(limits.segments, key=lambda each: -each.level):
            owner = self._cluster.domains.of_node[segment.level][whole]
            kept = np.bincount(owner) // segment.pods * segment.pods
            whole = whole[_places(owner) < kept[owner]]
        return np.concatenate([whole, np.setdiff1d(columns, whole)])

    def _sparing(
        self,
        allowed: Mask,
        number: int,
        later: Sequence[int],
        limits: Sequence[ResolvedConstraints],
        gang: PartialGang,
    ) -> Mask:
        """Of these nodes those on which the fewest later roles lose their place, as many as the
        role needs; all if these do not meet its constraints."""
        demand = self._demands[number]
        columns = np.flatnonzero(allowed)
        beside = [*gang.taken, demand.taken(columns)]
        lost = np.zeros(len(columns), dtype=np.int64)
        for other in later:
            before = self._allowed(other, limits[other], gang.taken)
            after = self._allowed(other, limits[other], beside)
            lost += (before & ~after)[columns]
        chosen = np.zeros_like(allowed)
        chosen[columns[np.argsort(lost, kind="stable")[: demand.role.replicas]]] = True
        free = placement.capacity(self._cluster.domains, chosen, limits[number])
        return chosen if free >= demand.role.replicas else allowed

    def _nearest(
        self, allowed: Mask, limits: ResolvedConstraints, gang: PartialGang, count: int
    ) -> Mask:
        """Of these nodes those in the domains of the roles before, at the finest level at which
        they suffice."""
        if not gang.nodes:
            return allowed
        domains = self._cluster.domains
        nodes = np.concatenate(list(gang.nodes.values()))
        for level in range(domains.finest, 0, -1):
            of_node = domains.of_node[level]
            near = allowed & np.isin(of_node, of_node[nodes])
            if placement.capacity(domains, near, limits) >= count:
                return near
        return allowed


def _places(owner: Ints) -> Ints:
    """The place of each element among those of the same owner; ``owner`` is ascending."""
    return np.arange(len(owner)) - np.searchsorted(owner, owner)
