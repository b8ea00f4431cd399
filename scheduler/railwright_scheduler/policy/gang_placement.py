"""Place all roles of a gang, one after the other, so that all of them fit or none starts.

A gang of one role is placed by ``NodeSelector`` alone. In a gang of several roles:

- Pods of one role are on distinct nodes; pods of two roles may share a node. So each role is placed
  beside what the roles before it take.
- The job's topology constraints hold for the pods of all roles that share them: one domain of the
  required level and one rail order for all, and ``spread`` counts all of their pods. Whole segments
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
from dataclasses import dataclass, replace

import numpy as np

from railwright_scheduler import placement
from railwright_scheduler.budget import WorkBudget
from railwright_scheduler.cluster import Cluster, Ints, Mask, Taken
from railwright_scheduler.placement import ResolvedConstraints
from railwright_scheduler.policy.feasibility import RoleDemand, SchedulingSignature
from railwright_scheduler.policy.ranks import RankedNodes
from railwright_scheduler.policy.selection import NodeSelector
from railwright_scheduler.policy.shared_constraints import beside_shared

ORDERS_MAX, DOMAINS_MAX = 3, 3
"""Orders of the roles, and domains besides the best, that are tried before a gang waits."""

ATTEMPTS_MAX = 2 * ORDERS_MAX * (1 + DOMAINS_MAX)
"""Attempts that this makes, each with and without sparing the nodes of later roles."""

Allowed = Callable[[SchedulingSignature, ResolvedConstraints, Sequence[Taken]], Mask]
"""The nodes that a role may have now, beside what other roles of its gang take."""


@dataclass(frozen=True, slots=True, eq=False)
class UnplacedRole:
    """The role that does not fit beside the others of its gang, and the nodes left for it."""

    demand: RoleDemand
    free: int


@dataclass(slots=True)
class _Gang:
    """What the roles placed so far take; ``shared`` are the nodes of pods under the job's topology
    constraints, one for each pod."""

    taken: list[Taken]
    shared: list[Ints]
    placed: dict[int, RankedNodes]


class GangPlacer:
    """Places gangs by what is free now."""

    def __init__(self, cluster: Cluster, selector: NodeSelector, allowed: Allowed) -> None:
        self._cluster = cluster
        self._selector = selector
        self._allowed = allowed

    def place(
        self,
        demands: Sequence[RoleDemand],
        limits: Sequence[ResolvedConstraints],
        work: WorkBudget,
    ) -> tuple[RankedNodes, ...] | UnplacedRole:
        """The nodes of each role under these constraints, in the order of its pods. Each role has
        capacity by itself."""
        if len(demands) == 1:
            allowed = self._allowed(demands[0].signature, limits[0], ())
            return (self._selector.select(demands[0].role, allowed, limits[0], work),)
        limits = _one_rail_order(demands, limits)
        orders = [self._scarcest_first(demands, limits)]
        domains = [None, *itertools.islice(self._domains(demands, limits), DOMAINS_MAX)]
        unplaced: list[UnplacedRole] = []
        for order in orders:
            for domain, spares in itertools.product(domains, (False, True)):
                found = self._attempt(order, demands, limits, domain, work, spares=spares)
                if not isinstance(found, UnplacedRole):
                    return self._mapped(found, order, demands, limits, domain, work, spares=spares)
                unplaced.append(found)
                first = next(at for at in order if demands[at] is found.demand)
                other = [first, *(at for at in order if at != first)]
                if other not in orders and len(orders) < ORDERS_MAX:
                    orders.append(other)
        return unplaced[0]

    def _attempt(
        self,
        order: Sequence[int],
        demands: Sequence[RoleDemand],
        limits: Sequence[ResolvedConstraints],
        domain: Mask | None,
        work: WorkBudget,
        *,
        spares: bool,
        maps: bool = False,
    ) -> tuple[RankedNodes, ...] | UnplacedRole:
        """Place the roles in this order. Only with ``maps`` are ranks mapped: that takes far
        longer, and most attempts of a gang that waits fail."""
        gang = _Gang([], [], {})
        for position, at in enumerate(order):
            demand, its = demands[at], limits[at]
            allowed = self._allowed(demand.signature, its, gang.taken)
            if demand.role.shares_topology:
                allowed = allowed if domain is None else allowed & domain
                allowed = beside_shared(self._cluster, allowed, its, gang.shared)
            free = placement.capacity(self._cluster.domains, allowed, its)
            if free < demand.role.replicas:
                return UnplacedRole(demand, free)
            if spares:
                later = [(demands[other], limits[other]) for other in order[position + 1 :]]
                allowed = self._sparing(allowed, demand, its, later, gang)
            near = self._nearest(allowed, its, gang, demand.role.replicas)
            role = demand.role if maps else replace(demand.role, workload=None)
            found = self._selector.select(role, near, its, work)
            gang.placed[at] = found
            gang.taken.append(demand.taken(found.nodes))
            if demand.role.shares_topology:
                gang.shared.append(found.nodes)
        return tuple(gang.placed[at] for at in range(len(demands)))

    def _mapped(
        self,
        found: tuple[RankedNodes, ...],
        order: Sequence[int],
        demands: Sequence[RoleDemand],
        limits: Sequence[ResolvedConstraints],
        domain: Mask | None,
        work: WorkBudget,
        *,
        spares: bool,
    ) -> tuple[RankedNodes, ...]:
        """The gang that fits, with the ranks of the role that trains mapped: on other nodes if the
        roles after it fit beside these too, else on those that were found."""
        trains = next((at for at, its in enumerate(demands) if its.role.workload is not None), None)
        if trains is None:
            return found
        mapped = self._attempt(order, demands, limits, domain, work, spares=spares, maps=True)
        if not isinstance(mapped, UnplacedRole):
            return mapped
        own = np.zeros(len(self._cluster.nodes), dtype=np.bool_)
        own[found[trains].nodes] = True
        again = self._selector.select(demands[trains].role, own, limits[trains], work)
        return (*found[:trains], again, *found[trains + 1 :])

    def _scarcest_first(
        self, demands: Sequence[RoleDemand], limits: Sequence[ResolvedConstraints]
    ) -> list[int]:
        """The roles by how many nodes they have to spare."""

        def spare(at: int) -> tuple[int, int]:
            allowed = self._allowed(demands[at].signature, limits[at], ())
            return int(np.count_nonzero(allowed)) - demands[at].role.replicas, at

        return sorted(range(len(demands)), key=spare)

    def _domains(
        self, demands: Sequence[RoleDemand], limits: Sequence[ResolvedConstraints]
    ) -> Iterator[Mask]:
        """The domains that could hold each role by itself, the smallest first."""
        shared = [at for at, demand in enumerate(demands) if demand.role.shares_topology]
        level = max((limits[at].within for at in shared), default=0)
        if not level or len(shared) < 2:
            return
        domains = self._cluster.domains
        able = np.ones(len(domains.bounds[level]) - 1, dtype=np.bool_)
        size = np.zeros(len(able), dtype=np.int64)
        for at in shared:
            allowed = self._allowed(demands[at].signature, limits[at], ())
            caps = placement.caps(domains, allowed, limits[at])[level]
            able &= caps >= demands[at].role.replicas
            size += caps
        smallest = np.flatnonzero(able)[np.argsort(size[able], kind="stable")]
        for domain in smallest.tolist():
            yield domains.of_node[level] == domain

    def _sparing(
        self,
        allowed: Mask,
        demand: RoleDemand,
        limits: ResolvedConstraints,
        later: Sequence[tuple[RoleDemand, ResolvedConstraints]],
        gang: _Gang,
    ) -> Mask:
        """Of these nodes those on which the fewest later roles lose their place, as many as the
        role needs; all if these do not meet its constraints."""
        columns = np.flatnonzero(allowed)
        beside = [*gang.taken, demand.taken(columns)]
        lost = np.zeros(len(columns), dtype=np.int64)
        for other, its in later:
            before = self._allowed(other.signature, its, gang.taken)
            after = self._allowed(other.signature, its, beside)
            lost += (before & ~after)[columns]
        chosen = np.zeros_like(allowed)
        chosen[columns[np.argsort(lost, kind="stable")[: demand.role.replicas]]] = True
        free = placement.capacity(self._cluster.domains, chosen, limits)
        return chosen if free >= demand.role.replicas else allowed

    def _nearest(self, allowed: Mask, limits: ResolvedConstraints, gang: _Gang, count: int) -> Mask:
        """Of these nodes those in the domains of the roles before, at the finest level at which
        they suffice."""
        if not gang.placed:
            return allowed
        domains = self._cluster.domains
        nodes = np.concatenate([found.nodes for found in gang.placed.values()])
        for level in range(domains.finest, 0, -1):
            of_node = domains.of_node[level]
            near = allowed & np.isin(of_node, of_node[nodes])
            if placement.capacity(domains, near, limits) >= count:
                return near
        return allowed


def _one_rail_order(
    demands: Sequence[RoleDemand], limits: Sequence[ResolvedConstraints]
) -> list[ResolvedConstraints]:
    """The constraints, with the rail order of the first role that shares the job's for all such
    roles."""
    shared = (at for at, demand in enumerate(demands) if demand.role.shares_topology)
    rails = next((limits[at].rails for at in shared), 0)
    return [
        replace(its, rails=rails) if demand.role.shares_topology else its
        for demand, its in zip(demands, limits, strict=True)
    ]
