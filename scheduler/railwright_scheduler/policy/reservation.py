"""Reserve nodes for the jobs that wait, so that they fill up and large jobs do not starve.

A job that could run on the healthy nodes once other jobs end, but not now, reserves capacity on as
many nodes as it has pods, and no more. Jobs behind it start on the other capacity. A free node that
it reserved stays reserved in the next cycles; a busy one is replaced by one that becomes free, as
the end of a pod cannot be predicted. Pods of no job, such as those of a DaemonSet, are not expected
to end. A job whose pods do not fit on the healthy nodes reserves nothing, as no end of a job would
let it start; a node that was lost a moment ago still counts, as most recover.

A job reserves beside the jobs ahead of it, never the same capacity: if those leave too little, it
reserves once they have started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from railwright_scheduler import placement
from railwright_scheduler.budget import WorkBudget
from railwright_scheduler.cluster import AMOUNT_MAX, Capacity, Cluster, Ints, Mask
from railwright_scheduler.model.snapshot import Job
from railwright_scheduler.placement import ResolvedConstraints
from railwright_scheduler.policy.feasibility import SchedulingSignature

NONE = np.zeros(0, dtype=np.int64)

Demand = Sequence[tuple[int, int]]
"""Of one pod: each resource's row, and the amount."""

_UNRESERVED = np.iinfo(np.int64).max


class Reservations:
    """What the jobs handled so far in this cycle have reserved.

    ``previous`` has the node names of the last cycle's reservations by job UID.
    """

    def __init__(
        self, cluster: Cluster, capacity: Capacity, previous: Mapping[str, tuple[str, ...]]
    ) -> None:
        self._cluster = cluster
        self._capacity = capacity
        self.previous = previous
        self._columns = (
            {node.name: column for column, node in enumerate(cluster.nodes)} if previous else {}
        )
        self._first = np.full(len(cluster.nodes), _UNRESERVED, dtype=np.int64)
        self._refused: dict[tuple[int, ResolvedConstraints], int] = {}
        self._unsettled: list[tuple[Sequence[int], Demand, int]] = []
        self.by_job: dict[str, tuple[str, ...]] = {}

    def choose(
        self,
        job: Job,
        signature: SchedulingSignature,
        ways: Sequence[ResolvedConstraints],
        work: WorkBudget,
        *,
        returns: bool = False,
    ) -> Ints:
        """The nodes (columns, ascending) to reserve for the job, under the one of these constraints
        that it is nearest to starting under; none where the healthy nodes that earlier reservations
        leave could not hold it. A job that ``returns`` waits only for its own pods to go."""
        ways = [limits for limits in ways if not self._is_refused(job, signature, limits)]
        if not ways:
            return NONE
        startable, kept = self._startable(signature), self._kept(job)
        if returns:
            # Its target was chosen with its own pods gone: they still keep some of its nodes.
            startable = startable | kept
        if len(ways) > 1:
            ways = self._nearest_first(ways, startable, kept, job)
        found = (self._under(job, signature, limits, startable, kept, work) for limits in ways)
        return next((nodes for nodes in found if len(nodes)), NONE)

    def _nearest_first(
        self, ways: Sequence[ResolvedConstraints], startable: Mask, kept: Mask, job: Job
    ) -> Sequence[ResolvedConstraints]:
        """Ways differ in their rails alone."""
        cluster, any_rails = self._cluster, replace(ways[0], rails=0)
        free = cluster.by_rails(cluster.meant(startable, any_rails))
        held = cluster.by_rails(cluster.meant(kept, any_rails))

        def nearness(way: ResolvedConstraints) -> tuple[int, int]:
            return min(int(free[way.rails]), job.num_nodes), int(held[way.rails])

        return sorted(ways, key=nearness)[::-1]

    def _is_refused(
        self, job: Job, signature: SchedulingSignature, limits: ResolvedConstraints
    ) -> bool:
        return job.num_nodes >= self._refused.get((signature.index, limits), _UNRESERVED)

    def _under(
        self,
        job: Job,
        signature: SchedulingSignature,
        limits: ResolvedConstraints,
        startable: Mask,
        kept: Mask,
        work: WorkBudget,
    ) -> Ints:
        domains = self._cluster.domains
        eligible = self._cluster.meant(self._eligible(signature), limits)
        if placement.capacity(domains, eligible, limits) < job.num_nodes:
            # Earlier reservations only grow in a cycle: no larger job of this kind fits either.
            self._refused[signature.index, limits] = job.num_nodes
            return NONE
        if limits.within:
            caps = placement.caps(domains, eligible, limits)
            order = self._fullness(limits.within, caps, job.num_nodes, startable & eligible, kept)
            large = caps[limits.within] >= job.num_nodes
            best = int(np.argmax(np.where(large, order, -1)))
            eligible = eligible & (domains.of_node[limits.within] == best)
        rank = self._rank(startable, kept)
        if limits.segment == 1 and limits.spread >= job.num_nodes:
            nodes = np.flatnonzero(eligible)
            return np.sort(nodes[np.argsort(rank[nodes], kind="stable")[: job.num_nodes]])
        eligible = self._fullest_domains(job, eligible, limits, startable, kept)
        count = job.num_nodes
        return placement.choose(domains, eligible, rank, count=count, limits=limits, work=work)

    def add(self, job: Job, signature: SchedulingSignature, nodes: Ints, *, position: int) -> None:
        """Reserve these nodes for the job at this position of the queue."""
        self._capacity.reserve(nodes, signature.rows, signature.need)
        self._first[nodes] = np.minimum(self._first[nodes], position)
        self.by_job[job.uid] = tuple(self._cluster.nodes[column].name for column in nodes.tolist())

    def keep(self, job: Job, *, position: int) -> None:
        """Keep what the job had reserved in the last cycle, as this one does not evaluate it.
        ``settle`` takes it from what the jobs behind it can have."""
        rows, names = self._cluster.rows, self.previous[job.uid]
        columns = [self._columns[name] for name in names if name in self._columns]
        demand = [
            (rows[resource], min(amount, AMOUNT_MAX + 1))
            for resource, amount in job.per_node.items()
            if resource in rows
        ]
        self._unsettled.append((columns, demand, position))
        self.by_job[job.uid] = names

    def settle(self) -> None:
        """Reserve what was kept, all at once: there may be tens of thousands."""
        pairs = [
            (column, row, amount)
            for columns, demand, _ in self._unsettled
            for column in columns
            for row, amount in demand
        ]
        if pairs:
            self._capacity.reserve_each(*np.array(pairs, dtype=np.int64).T)
        for columns, _, position in self._unsettled:
            for column in columns:
                self._first[column] = min(self._first[column], position)
        self._unsettled.clear()

    def first_position(self, nodes: Mask) -> int | None:
        """The position of the first job with a reservation on any of these nodes."""
        first = int(self._first[nodes].min(initial=_UNRESERVED))
        return None if first == _UNRESERVED else first

    def _eligible(self, signature: SchedulingSignature) -> Mask:
        """The healthy nodes that could take a pod once others end, beside earlier reservations."""
        return signature.healthy & self._capacity.could_hold(signature.rows, signature.need)

    def _kept(self, job: Job) -> Mask:
        """The nodes of the job's last reservation."""
        kept = np.zeros(len(self._cluster.nodes), dtype=np.bool_)
        names = self.previous.get(job.uid, ())
        kept[[self._columns[name] for name in names if name in self._columns]] = True
        return kept

    def _fullness(
        self, level: int, caps: tuple[Ints, ...], most: int, startable: Mask, kept: Mask
    ) -> Ints:
        """The order of a level's domains: by how many nodes each has that the job could have now,
        up to ``most`` of them, then by how many it had reserved."""
        total = self._cluster.domains.total
        now = np.minimum(total(startable.astype(np.int64), level), np.minimum(caps[level], most))
        had = total(kept.astype(np.int64), level)
        found: Ints = now * (len(self._cluster.nodes) + 1) + had
        return found

    def _fullest_domains(
        self, job: Job, eligible: Mask, limits: ResolvedConstraints, startable: Mask, kept: Mask
    ) -> Mask:
        """The nodes of as many domains as the job needs of the level that its segments or its
        spread are about, the fullest first; all nodes where these could not hold it."""
        domains = self._cluster.domains
        level = limits.segment_level if limits.segment > 1 else limits.spread_level
        if not 0 < level <= domains.finest:
            return eligible
        caps = placement.caps(domains, eligible, limits)
        most = job.num_nodes if limits.segment > 1 else limits.spread
        order = np.argsort(
            -self._fullness(level, caps, most, startable & eligible, kept), kind="stable"
        )
        held = np.cumsum(caps[level][order])
        count = int(np.searchsorted(held, job.num_nodes)) + 1
        chosen = eligible & np.isin(domains.of_node[level], order[:count])
        fits = placement.capacity(domains, chosen, limits) >= job.num_nodes
        return chosen if fits else eligible

    def _rank(self, startable: Mask, kept: Mask) -> Ints:
        """What is reserved first: what it has and could take now, what it could take now, what it
        has, then what has the most free capacity. So what has filled up is never given away, and
        a node that does not become free is left for one that does."""
        free_capacity = self._capacity.free_capacity
        rank = 3 + int(free_capacity.max(initial=0)) - free_capacity
        rank[kept] = 2
        rank[startable] = 1
        rank[startable & kept] = 0
        return rank

    def _startable(self, signature: SchedulingSignature) -> Mask:
        """The nodes that could take a pod of this signature now, beside earlier reservations."""
        return signature.open & self._capacity.holds_unreserved(signature.rows, signature.need)
