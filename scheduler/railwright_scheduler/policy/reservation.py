"""Reserve nodes for the jobs that wait, so that they fill up and large jobs do not starve.

A job that could run on the healthy nodes once other jobs end, but not now, reserves capacity on as
many nodes as it has pods, and no more. Jobs behind it start on the other capacity. The reservation
meets the job's constraints, and has as many free nodes as any other that does: a busy node is
replaced by one that becomes free, as the end of a pod cannot be predicted, and free nodes only by
more of them. Of such reservations it is the one with the most nodes of the last cycle, so it stays
as it is while none has more free nodes, and each node of it that becomes free brings the job closer
to its start. For a gang of several roles this holds as far as its search finds it. Pods of no job,
such as those of a DaemonSet, are not expected to end. A job whose pods do not fit on the healthy
nodes reserves nothing, as no end of a job would let it start; a node that was lost a moment ago
still counts, as most recover.

A job reserves beside the jobs ahead of it, never the same capacity: if those leave too little, it
reserves once they have started.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.budget import SEARCH_WORK, WorkBudget
from railwright_scheduler.cluster import NODE_AMOUNT_MAX, Capacity, Cluster, Taken
from railwright_scheduler.model.reasons import BlockedByReservation, Reason
from railwright_scheduler.model.shortages import NotEnoughNodes
from railwright_scheduler.model.snapshot import Job, Role
from railwright_scheduler.placement.constraints import ResolvedConstraints, capacity
from railwright_scheduler.placement.heaviest import heaviest
from railwright_scheduler.policy.candidate import RoleDemand, SchedulingSignature
from railwright_scheduler.policy.gang_search import GangSearch, UnplacedRole

RowAmounts = Sequence[tuple[int, int]]
"""The request of one pod: each resource's row, and the amount."""

Select = Callable[[Role, Mask, ResolvedConstraints, WorkBudget], Ints]
"""Of these nodes, those that suit a role best."""


UNRESERVED = int(np.iinfo(np.int64).max)
"""The position of no job."""


@dataclass(frozen=True, slots=True, eq=False)
class _Target:
    """A role to reserve nodes for: what it had reserved (``prior``), and what it could have now,
    beside other roles (``startable``)."""

    demand: RoleDemand
    prior: Mask
    startable: Mask


class Reservations:
    """What the jobs handled so far in this cycle have reserved.

    ``select`` chooses nodes as for a start. ``previous`` has the node names of the last cycle's
    reservations by job UID; ``waiting`` the jobs that wait for nodes, each with how many it could
    have now without reservations of others, and how many it has reserved.
    """

    def __init__(
        self,
        cluster: Cluster,
        capacity: Capacity,
        select: Select,
        *,
        previous: Mapping[str, tuple[str, ...]],
    ) -> None:
        self._cluster = cluster
        self._capacity = capacity
        self._select = select
        self.previous = previous
        self._node_names = [node.name for node in cluster.nodes]
        self._columns = (
            {name: column for column, name in enumerate(self._node_names)} if previous else {}
        )
        self._nothing = np.zeros(len(cluster.nodes), dtype=np.bool_)
        self.waiting: list[tuple[Job, int, int]] = []
        self._first = np.full(cluster.allocatable.shape, UNRESERVED, dtype=np.int64)
        self._refused: dict[tuple[int, ResolvedConstraints], int] = {}
        self._unsettled: list[tuple[Sequence[int], RowAmounts, int]] = []
        self.by_job: dict[str, tuple[str, ...]] = {}

    def choose(
        self,
        job: Job,
        demands: Sequence[RoleDemand],
        work: WorkBudget,
        *,
        awaits_own_pods: bool = False,
    ) -> tuple[Ints, ...]:
        """The nodes (columns, ascending) to reserve for each role of the job, each under the one of
        its constraints that it is nearest to starting under; none where the healthy nodes that
        earlier reservations leave could not hold all roles. A job that ``awaits_own_pods`` waits
        only for these to go."""
        prior = self._previous_nodes(job)

        def target(number: int, taken: Sequence[Taken] = ()) -> _Target:
            demand, had = demands[number], prior[number]
            startable = self._startable(demand, taken)
            if awaits_own_pods:
                # Its target was chosen with its own pods gone: they still keep some of its nodes.
                startable = startable | had
            return _Target(demand, had, startable)

        if len(demands) == 1:
            nearest = self._nearest(target(0))
            return () if nearest is None else (nearest,)
        chosen: list[tuple[ResolvedConstraints, Mask]] = []
        for number, demand in enumerate(demands):
            ways = self._nearest_first(target(number))
            found = next(filter(None, (self._with_capacity(demand, way) for way, _ in ways)), None)
            if found is None:
                return ()
            chosen.append(found)
        return self._search(demands, [limits for limits, _ in chosen], target, work)

    def _nearest(self, target: _Target) -> Ints | None:
        """The nodes nearest to starting under any of the constraints; None without capacity."""
        best, nearest = (-1, -1), None
        for way, bound in self._nearest_first(target):
            found = self._with_capacity(target.demand, way) if bound > best else None
            if found is not None:
                nodes = self._choose_under(target, *found)
                has = int(target.startable[nodes].sum()), int(target.prior[nodes].sum())
                if has > best:
                    best, nearest = has, nodes
        return nearest

    def _search(
        self,
        demands: Sequence[RoleDemand],
        limits: Sequence[ResolvedConstraints],
        target: Callable[[int, Sequence[Taken]], _Target],
        work: WorkBudget,
    ) -> tuple[Ints, ...]:
        """The nodes of each role that are nearest to starting. Where these would leave too little
        for another role: those that the gang would start on if all were free, so that no gang that
        could start then waits without a reservation."""

        def allowed(number: int, its: ResolvedConstraints, taken: Sequence[Taken]) -> Mask:
            return self._eligible(demands[number], its, taken)

        def nearest(
            number: int, its: ResolvedConstraints, near: Mask, taken: Sequence[Taken]
        ) -> Ints:
            return self._choose_under(target(number, taken), its, near)

        def to_start(number: int, its: ResolvedConstraints, near: Mask, _: Sequence[Taken]) -> Ints:
            return self._select(demands[number].role, near, its, work)

        def as_if_free(
            number: int, its: ResolvedConstraints, near: Mask, taken: Sequence[Taken]
        ) -> Ints:
            free = replace(target(number, taken), prior=self._nothing, startable=near)
            return self._choose_under(free, its, near)

        end = work.searched + SEARCH_WORK
        for choose in (nearest, to_start, as_if_free):
            search = GangSearch(self._cluster, demands, allowed, choose, work, is_start=False)
            found = search.find(limits)
            if not isinstance(found, UnplacedRole):
                return found[1]
            if work.searched >= end:
                break
        return ()

    def _with_capacity(
        self, demand: RoleDemand, limits: ResolvedConstraints
    ) -> tuple[ResolvedConstraints, Mask] | None:
        """These constraints and the eligible nodes, if earlier reservations leave capacity there
        for the role by itself."""
        key, replicas = (demand.signature.index, limits), demand.role.replicas
        if replicas >= self._refused.get(key, UNRESERVED):
            return None
        eligible = self._eligible(demand, limits)
        if capacity(self._cluster.domains, eligible, limits) >= replicas:
            return limits, eligible
        # Earlier reservations only grow in a cycle: no larger role of this kind fits.
        self._refused[key] = replicas
        return None

    def _nearest_first(
        self, target: _Target
    ) -> Sequence[tuple[ResolvedConstraints, tuple[int, int]]]:
        """The ways of the role, and how many nodes at most it could take now under each and has
        under it, the largest first. They differ in their rails alone."""
        cluster, ways = self._cluster, target.demand.ways
        any_rails, replicas = target.demand.any_rails, target.demand.role.replicas
        if len(ways) == 1:
            return [(ways[0], (replicas, replicas))]
        free = cluster.by_rails(cluster.meant(target.startable, any_rails))
        held = cluster.by_rails(cluster.meant(target.prior, any_rails))
        bounds = [
            (way, (min(int(free[way.rails]), replicas), int(held[way.rails]))) for way in ways
        ]
        return sorted(bounds, key=operator.itemgetter(1))[::-1]

    def _choose_under(self, target: _Target, limits: ResolvedConstraints, eligible: Mask) -> Ints:
        """Of these nodes, which have capacity for the role, those nearest to starting."""
        domains, count = self._cluster.domains, target.demand.role.replicas
        rank = self._rank(target.startable, target.prior)
        if not limits.takes_all or limits.within:
            # The most nodes that it could take now, of such the most that it has, then the ranks.
            weights = np.array([rank <= 1, (rank == 0) | (rank == 2), -rank], dtype=np.int64)
            return heaviest(domains, eligible, weights, count=count, limits=limits)
        nodes = np.flatnonzero(eligible)
        if count == 1:
            return nodes[[rank[nodes].argmin()]]
        return np.sort(nodes[np.argsort(rank[nodes], kind="stable")[:count]])

    def add(
        self,
        job: Job,
        demands: Sequence[RoleDemand],
        nodes: Sequence[Ints],
        *,
        free: int,
        awaits_own_pods: bool = False,
    ) -> None:
        """Add the next job that waits, and reserve these nodes of each role, if there are any. For
        one that ``awaits_own_pods``, as many free nodes are reserved beside as they still occupy:
        a pod that does not end must not cost the job what it could have now."""
        position, columns = len(self.waiting), [column for its in nodes for column in its.tolist()]
        self.waiting.append((job, free, len({*columns})))
        if not nodes:
            return
        occupied = [0] * len(demands)
        if awaits_own_pods:
            startable = [self._startable(demand, ()) for demand in demands]
            occupied = [int((~now[its]).sum()) for now, its in zip(startable, nodes, strict=True)]
        for demand, its in zip(demands, nodes, strict=True):
            self._reserve(demand, its, position)
        for demand, count in zip(demands, occupied, strict=True):
            if count:
                spares = np.flatnonzero(self._startable(demand, ()))[-count:]
                self._reserve(demand, spares, position)
        self.by_job[job.uid] = tuple(map(self._node_names.__getitem__, columns))

    def _reserve(self, demand: RoleDemand, nodes: Ints, position: int) -> None:
        self._capacity.reserve(nodes, demand.signature.request)
        reserved = demand.signature.request.rows[:, np.newaxis], nodes
        self._first[reserved] = np.minimum(self._first[reserved], position)

    def carry_over(self, job: Job, reason: Reason | None) -> None:
        """Carry over what a job that this cycle does not evaluate had reserved in the last one,
        when it waited for this ``reason``. ``settle`` takes it from the jobs behind it."""
        free = reason.free if isinstance(reason, NotEnoughNodes | BlockedByReservation) else None
        if job.uid in self.previous:
            self._carry_over(job, position=len(self.waiting))
        elif free is None:
            return
        self.waiting.append((job, free or 0, len({*self.by_job.get(job.uid, ())})))

    def _carry_over(self, job: Job, *, position: int) -> None:
        rows = self._cluster.rows
        for role, names in zip(job.roles, self._names(job), strict=True):
            columns = [self._columns[name] for name in names if name in self._columns]
            amounts = [
                (rows[resource], min(amount, NODE_AMOUNT_MAX + 1))
                for resource, amount in role.per_pod.items()
                if amount and resource in rows
            ]
            self._unsettled.append((columns, amounts, position))
        self.by_job[job.uid] = self.previous[job.uid]

    def _names(self, job: Job) -> list[tuple[str, ...]]:
        """The nodes of each role in the job's last reservation. If its pods are others by now, it
        cannot be told which of them were for which role: they count for the first."""
        names = self.previous.get(job.uid, ())
        if len(names) == job.num_pods:
            return [names[pods] for pods in job.pod_ranges]
        return [names, *([()] * (len(job.roles) - 1))]

    def settle(self) -> None:
        """Reserve what was carried over, all at once: there may be tens of thousands."""
        carried = [
            (column, row, amount, position)
            for columns, amounts, position in self._unsettled
            for column in columns
            for row, amount in amounts
        ]
        if carried:
            columns, rows, amounts, positions = np.array(carried, dtype=np.int64).T
            self._capacity.reserve_each(columns, rows, amounts)
            np.minimum.at(self._first, (rows, columns), positions)
        self._unsettled.clear()

    def first_position(
        self, signature: SchedulingSignature, nodes: Ints, taken: Sequence[Taken] = ()
    ) -> int:
        """The position of the first job that has reserved a resource of which one of these nodes
        (columns) has too little left for this signature, beside what is ``taken``; UNRESERVED if
        none has."""
        short = self._capacity.unreserved.short_of(nodes, signature.request, taken)
        reserved = self._first.take(nodes, axis=1)[signature.request.rows]
        return int(reserved[short].min(initial=UNRESERVED))

    def are_on(self, nodes: Mask) -> bool:
        """Whether jobs have reserved something on one of these nodes."""
        return bool((self._first[:, nodes] != UNRESERVED).any())

    def _eligible(
        self, demand: RoleDemand, limits: ResolvedConstraints, taken: Sequence[Taken] = ()
    ) -> Mask:
        """The healthy nodes that could take a pod under these constraints once others end, beside
        earlier reservations and what other roles of its gang take."""
        signature = demand.signature
        holds = self._capacity.reservable.holds(signature.request, taken)
        return self._cluster.meant(signature.healthy & holds, limits)

    def _previous_nodes(self, job: Job) -> list[Mask]:
        """The nodes of each role in the job's last reservation. The caller must not write to it."""
        if job.uid not in self.previous:
            return [self._nothing] * len(job.roles)
        found = [self._nothing.copy() for _ in job.roles]
        for prior, names in zip(found, self._names(job), strict=True):
            prior[[self._columns[name] for name in names if name in self._columns]] = True
        return found

    def _rank(self, startable: Mask, prior: Mask) -> Ints:
        """What is reserved first: what it has and could take now, what it could take now, what it
        has, then what has the most free capacity. A node that does not become free is left for one
        that does."""
        free_capacity = self._capacity.free_capacity
        rank = np.where(startable, 1, 3 + int(free_capacity.max(initial=0)) - free_capacity)
        if prior.any():
            rank[prior] = np.where(startable[prior], 0, 2)
        return rank

    def _startable(self, demand: RoleDemand, taken: Sequence[Taken]) -> Mask:
        """The nodes that could take a pod of the role now, beside earlier reservations."""
        signature = demand.signature
        return signature.available & self._capacity.unreserved.holds(signature.request, taken)
