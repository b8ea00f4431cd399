"""Free capacity, the fourth stage: each role by itself fits on the nodes that are free now and that
no job ahead has reserved."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.budget import WorkBudget
from railwright_scheduler.cluster import Capacity, Cluster, Taken
from railwright_scheduler.model.reasons import BlockedByReservation
from railwright_scheduler.model.shortages import NotEnoughNodes
from railwright_scheduler.model.snapshot import Job
from railwright_scheduler.placement.constraints import ANYWHERE, ResolvedConstraints, capacity
from railwright_scheduler.policy import feasibility
from railwright_scheduler.policy.candidate import (
    Candidate,
    Effect,
    RoleDemand,
    SchedulingSignature,
)
from railwright_scheduler.policy.reservation import UNRESERVED, Reservations
from railwright_scheduler.policy.selection import NodeSelector

_NEVER = np.iinfo(np.int64).max

WAYS_MAX = 4
"""Rail orders that are evaluated for a start: those in which a job has the most free nodes. Each
costs as much as a job of its own, and a site that is cabled by hand may have one for each node."""

WAYS_CHECKED_MAX = 64
"""Rail orders of which it is found out whether the job has capacity there at all."""


class FreeNodes:
    """The nodes that jobs could have now. Results are kept until a job starts."""

    def __init__(
        self,
        cluster: Cluster,
        capacity: Capacity,
        selector: NodeSelector,
        reservations: Reservations,
    ) -> None:
        self._cluster = cluster
        self._capacity = capacity
        self._selector = selector
        self._reservations = reservations
        self._missing: dict[tuple[int, ResolvedConstraints], NotEnoughNodes] = {}
        self._most_free: dict[tuple[int, ResolvedConstraints], ResolvedConstraints] = {}
        self._free: dict[tuple[int, ResolvedConstraints], int] = {}
        self._refused: dict[tuple[int, ResolvedConstraints], int] = {}
        self._first: dict[tuple[int, ResolvedConstraints], tuple[int, int]] = {}

    def check(self, candidate: Candidate, work: WorkBudget) -> Candidate:
        """The candidate with the constraints under which each role could start by itself."""
        if candidate.awaits_own_pods:
            return candidate.refused(None, Effect.RESERVES)
        chosen: list[ResolvedConstraints] = []
        for demand in candidate.demands:
            limits = self._startable_way(demand, work)
            if limits is None:
                return candidate.refused(self._why_not(candidate.job, demand), Effect.RESERVES)
            chosen.append(limits)
        return candidate._replace(limits=chosen)

    def allowed(
        self,
        signature: SchedulingSignature,
        limits: ResolvedConstraints,
        taken: Sequence[Taken] = (),
    ) -> Mask:
        """The nodes that it could have now, under these constraints, beside what is reserved or
        ``taken`` by other roles of its gang."""
        holds = self._capacity.unreserved.holds(signature.request, taken)
        return self._cluster.meant(signature.available & holds, limits)

    def available(
        self,
        signature: SchedulingSignature,
        limits: ResolvedConstraints,
        taken: Sequence[Taken] = (),
    ) -> Mask:
        """As ``allowed``, whether nodes are reserved or not."""
        holds = self._capacity.free.holds(signature.request, taken)
        return self._cluster.meant(signature.available & holds, limits)

    def could_start_on(self, demands: Sequence[RoleDemand], nodes: Sequence[Ints]) -> bool:
        """Whether each role could have its nodes now, beside the others."""
        taken: list[Taken] = []
        for demand, its in zip(demands, nodes, strict=True):
            if not self.allowed(demand.signature, demand.any_rails, taken)[its].all():
                return False
            taken.append(demand.taken(its))
        return True

    def count(self, candidate: Candidate, reserved: Sequence[Ints]) -> int:
        """How many nodes the job could have without the reservations of others; of several roles,
        how many of the ``reserved`` ones."""
        demands = candidate.demands
        if len(demands) == 1:
            return self._free_for(demands[0].signature, self._most_free_way(demands[0]))
        nodes, busy = np.zeros((2, len(self._cluster.nodes)), dtype=np.bool_)
        taken: list[Taken] = []
        for demand, its in zip(demands, reserved, strict=False):
            nodes[its] = True
            busy[its] |= ~self.available(demand.signature, demand.any_rails, taken)[its]
            taken.append(demand.taken(its))
        return int(np.count_nonzero(nodes & ~busy))

    def shortage(self, job: Job, demand: RoleDemand) -> NotEnoughNodes:
        """The shortage of this role of the job."""
        return replace(
            self._not_enough(demand, self._most_free_way(demand)),
            need=demand.role.replicas,
            constraints=demand.role.constraints,
            role=demand.role.name if len(job.roles) > 1 else "",
        )

    def forget(self) -> None:
        """Compute anew what depends on what is free."""
        self._first.clear()
        self._free.clear()
        self._missing.clear()
        self._most_free.clear()

    def _startable_way(self, demand: RoleDemand, work: WorkBudget) -> ResolvedConstraints | None:
        """The constraints under which the role, by itself, could start now; None if under none."""
        role, signature, ways = demand.role, demand.signature, demand.ways
        key = signature.index, demand.largest
        if len(ways) == 1 and role.replicas >= self._refused.get(key, _NEVER):
            # What is free beside reservations only shrinks in a cycle.
            return None
        freest = self._freest(demand)
        limits = self._selector.best_way(
            role, freest, lambda way: self.allowed(signature, way), work
        )
        allowed = self.allowed(signature, limits)
        if capacity(self._cluster.domains, allowed, limits) >= role.replicas:
            return limits
        if len(ways) == 1:
            self._refused[signature.index, limits] = role.replicas
        return None

    def _freest(self, demand: RoleDemand) -> Sequence[ResolvedConstraints]:
        """The rail orders to evaluate: of those that have capacity for the role, if there are any,
        those with the most free nodes."""
        signature, ways, replicas = demand.signature, demand.ways, demand.role.replicas
        if len(ways) <= WAYS_MAX:
            return ways
        free = self._cluster.by_rails(self.allowed(signature, demand.any_rails))

        def has_capacity(way: ResolvedConstraints) -> bool:
            if free[way.rails] < replicas:
                return False
            allowed = self.allowed(signature, way)
            return capacity(self._cluster.domains, allowed, way) >= replicas

        freest = sorted(ways, key=lambda way: -int(free[way.rails]))
        able = filter(has_capacity, freest[:WAYS_CHECKED_MAX])
        chosen = list(itertools.islice(able, WAYS_MAX)) or freest[:WAYS_MAX]
        return [way for way in ways if way in chosen]

    def _why_not(self, job: Job, demand: RoleDemand) -> NotEnoughNodes | BlockedByReservation:
        """Why this role of the job cannot start, by itself."""
        role, signature, limits = demand.role, demand.signature, self._most_free_way(demand)
        free = self._free_for(signature, limits)
        position = UNRESERVED
        if free >= role.replicas:
            position = self._first_position(signature, limits)
        if position == UNRESERVED:
            return self.shortage(job, demand)
        return self._blocked(position, need=role.replicas, free=free)

    def are_reserved(self, demands: Sequence[RoleDemand]) -> bool:
        """Whether jobs ahead have reserved nodes that one of these roles could have now."""
        free = (self.available(each.signature, each.any_rails) for each in demands)
        return any(map(self._reservations.are_on, free))

    def blocked(
        self, demands: Sequence[RoleDemand], nodes: Sequence[Ints]
    ) -> BlockedByReservation | None:
        """The refusal of a gang on these free nodes of each role; None if it can start on them."""
        positions, taken = list[int](), list[Taken]()
        for demand, its in zip(demands, nodes, strict=True):
            positions.append(self._reservations.first_position(demand.signature, its, taken))
            taken.append(demand.taken(its))
        if min(positions) == UNRESERVED:
            return None
        free = [self.available(each.signature, each.any_rails) for each in demands]
        need = len(np.unique(np.concatenate(list(nodes))))
        return self._blocked(min(positions), need=need, free=int(np.logical_or.reduce(free).sum()))

    def _blocked(self, position: int, *, need: int, free: int) -> BlockedByReservation:
        waiting = self._reservations.waiting
        first, first_free, first_need = waiting[position]
        return BlockedByReservation(
            position=len(waiting) + 1,
            first=f"{first.namespace}/{first.name}",
            first_need=first_need,
            first_free=first_free,
            need=need,
            free=free,
        )

    def _first_position(self, signature: SchedulingSignature, limits: ResolvedConstraints) -> int:
        """The position of the first job whose reservation blocks a node for this signature. What is
        reserved stays so in a cycle: only the nodes of later reservations are looked at again."""
        unreserved = self._capacity.unreserved
        first, seen = self._first.get((signature.index, limits), (UNRESERVED, -1))
        if seen < unreserved.version:
            available = self.available(signature, limits)
            nodes = unreserved.changed(seen) if seen >= 0 else np.arange(len(available))
            nodes = nodes[available[nodes]]
            first = min(first, self._reservations.first_position(signature, nodes))
            self._first[signature.index, limits] = first, unreserved.version
        return first

    def _most_free_way(self, demand: RoleDemand) -> ResolvedConstraints:
        """Of the constraints that the role may start under those under which it could have the most
        nodes now, reserved or not."""
        if len(demand.ways) == 1:
            return demand.largest
        key = demand.signature.index, demand.any_rails
        if key not in self._most_free:
            free = self._cluster.by_rails(self.available(demand.signature, demand.any_rails))
            ways = sorted(demand.ways, key=lambda way: -int(free[way.rails]))[:WAYS_CHECKED_MAX]
            self._most_free[key] = max(ways, key=lambda way: self._free_for(demand.signature, way))
        return self._most_free[key]

    def _free_for(self, signature: SchedulingSignature, limits: ResolvedConstraints) -> int:
        """How many nodes, reserved or not, one gang could have now."""
        key = (signature.index, limits)
        if key not in self._free:
            available = self.available(signature, limits)
            self._free[key] = capacity(self._cluster.domains, available, limits)
        return self._free[key]

    def _not_enough(self, demand: RoleDemand, limits: ResolvedConstraints) -> NotEnoughNodes:
        """The shortage of the role under these constraints, until the next job starts."""
        signature, largest = demand.signature, demand.largest
        missing = self._missing.get((signature.index, largest))
        if missing is None:
            missing = feasibility.not_enough_nodes(
                self._cluster,
                signature,
                self.available(signature, ANYWHERE),
                limits,
                largest=largest,
            )
            self._missing[signature.index, largest] = missing
        return missing
