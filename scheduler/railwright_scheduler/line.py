"""The line of waiting jobs: who may start, and who keeps which nodes for whom.

A job that could run on this cluster, but not now, has a claim on every node it could ever use. Jobs
behind it start only on nodes that nobody ahead has a claim on. So a big job is not starved by a
stream of small ones, and jobs for unlike nodes do not hold each other up. The price is idle nodes
while a big job gathers its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from railwright_scheduler import fastest, fit, placement, ranks, slowness
from railwright_scheduler.cluster import Capacity, Cluster, Ints, Mask
from railwright_scheduler.decisions import Admit, Behind, GangsAhead, NotEnoughNodes
from railwright_scheduler.fit import Shape
from railwright_scheduler.mapping.problem import Weights
from railwright_scheduler.placement import Limits
from railwright_scheduler.ranks import Placed
from railwright_scheduler.snapshot import Job, Running
from railwright_scheduler.traffic import Traffic

EFFORT_MAX = 512
"""What it may take to place the gangs of one decision, in nodes; one alone may take more. About two
seconds' worth."""

FASTER = 2
"""Degrees of the slowest nodes that a gang is looked at without, beside without any slow ones."""

LOUDNESS = 64
"""So many degrees of how busy uplinks are tell equal domains apart."""

_NOBODY = np.iinfo(np.int64).max


class Line:
    """What jobs have taken and claimed so far in one decision."""

    def __init__(self, cluster: Cluster, running: Iterable[Running] = ()) -> None:
        self._cluster = cluster
        self._capacity = Capacity(cluster)
        self._traffic = Traffic(cluster, running)
        self._claimed_by = np.full(len(cluster.nodes), _NOBODY, dtype=np.int64)
        self._claimed: set[tuple[int, Limits]] = set()
        self._waiting: list[tuple[Job, int]] = []
        self._usable: dict[int, Mask] = {}
        self._missing: dict[tuple[int, Limits], NotEnoughNodes] = {}
        self._free: dict[tuple[int, Limits], int] = {}
        self._effort = 0
        self._pods = 0
        self._is_full = False

    def nearest(self, job: Job, shape: Shape, ways: Sequence[Limits]) -> Limits:
        """Of these ways in which a job could start that in which it spans the fewest domains; of
        equal ones that without slow nodes, then that in which it has the most of the nodes that it
        had. The first one, if it can start in none."""
        if len(ways) == 1:
            return ways[0]
        domains, slow = self._cluster.domains, slowness.of(job, self._cluster)
        had, room = frozenset(job.before), self._room_beside(job, slow)

        def rank(limits: Limits) -> tuple[bool, tuple[int, ...], int, int]:
            allowed = self._allowed(shape, limits)
            if placement.capacity(domains, allowed, limits) < job.num_nodes:
                return True, (), 0, 0
            rather = self._rather(allowed, limits, job.num_nodes)
            nodes = fastest.chosen(domains, rather, room, slow, count=job.num_nodes, limits=limits)
            kept = sum(self._cluster.nodes[column].name in had for column in nodes.tolist())
            return False, domains.spans(nodes), int(slow[nodes].max()), -kept

        return min(ways, key=rank)

    def start(self, job: Job, shape: Shape, limits: Limits) -> Admit | GangsAhead | None:
        """Give the job its nodes, if enough of them are free and unclaimed; in a later decision, if
        it was much work to place those before it."""
        allowed = self._allowed(shape, limits)
        if placement.capacity(self._cluster.domains, allowed, limits) < job.num_nodes:
            return None
        effort = ranks.effort(job)
        if self._is_full or (effort and self._effort and self._effort + effort > EFFORT_MAX):
            # Nobody goes before the first that has to wait, however small.
            self._is_full = True
            return GangsAhead(need=job.num_nodes, pods=self._pods)
        self._effort += effort
        self._pods += job.num_nodes
        placed = self._placed(job, self._rather(allowed, limits, job.num_nodes), limits)
        names = tuple(self._cluster.nodes[column].name for column in placed.nodes)
        if job.workload is not None and job.num_nodes > 1:
            self._traffic.add(Running(job.workload, job.ranks_per_node, names))
        self._capacity.take(placed.nodes, shape.rows, shape.need)
        self._usable.clear()
        self._free.clear()
        return Admit(
            job_uid=job.uid,
            attempt=job.attempt,
            nodes=names,
            spans=self._cluster.domains.spans(np.sort(placed.nodes)),
            merits=placed.merits,
        )

    def _allowed(self, shape: Shape, limits: Limits) -> Mask:
        """The nodes that it could have now, on these terms."""
        unclaimed = self._usable_by(shape) & (self._claimed_by == _NOBODY)
        return self._cluster.meant(unclaimed, limits)

    def _rather(self, allowed: Mask, limits: Limits, count: int) -> Mask:
        """The nodes on islands alone, where one of these is preferred and can hold the job."""
        island = self._cluster.island
        if limits.rather != island:
            return allowed
        within = replace(limits, within=max(limits.within, island), islands=True)
        on_islands = self._cluster.meant(allowed, within)
        held = placement.capacity(self._cluster.domains, on_islands, within) >= count
        return on_islands if held else allowed

    def _placed(self, job: Job, allowed: Mask, limits: Limits) -> Placed:
        """The nodes that suit the job best, and which ranks each of them gets."""
        domains, count = self._cluster.domains, job.num_nodes
        slow = slowness.of(job, self._cluster)
        room = self._room_beside(job, slow)
        first = fastest.chosen(domains, allowed, room, slow, count=count, limits=limits)
        if job.workload is None or count == 1 or domains.finest == 0:
            return ranks.placed(job, self._cluster, [first])
        busy = self._traffic.busy(first)
        if busy.any():
            room = self._room_beside(job, slow, busy)
            first = fastest.chosen(domains, allowed, room, slow, count=count, limits=limits)
        others = (
            fastest.chosen(domains, nodes, room, slow, count=count, limits=its)
            for nodes, its in self._others(job, first, allowed, limits, slow=slow, busy=busy)
            if placement.capacity(domains, nodes, its) >= count
        )
        choices = itertools.chain([first], others)
        return ranks.placed(job, self._cluster, choices, uses=self._traffic.uses())

    def _others(
        self, job: Job, first: Ints, allowed: Mask, limits: Limits, *, slow: Ints, busy: Weights
    ) -> Iterator[tuple[Mask, Limits]]:
        """From where else to choose: portions of the job that are better for it in each domain;
        domains whose switches add up what crosses them; those whose uplinks are known to let out
        twice as much; those whose uplinks others keep less than half as busy; nodes none of which
        is slow, or as slow as the slowest; and those of one kind."""
        domains = self._cluster.domains
        if job.num_nodes > ranks.CHOSEN_NODES:
            return
        spans = (1, *domains.spans(first))
        # What it rather has and got is not given up for others.
        kept = max(level for level in range(limits.rather + 1) if spans[level] == 1)
        limits = replace(limits, within=max(limits.within, kept))
        if limits.segment == 1:
            for size in ranks.portions(job, spans[domains.finest]):
                yield allowed, replace(limits, segment=size, segment_level=domains.finest)
        summed = self._cluster.summed
        if summed.any() and not summed[first].all():
            yield allowed & summed, limits
        wide = self._cluster.wide(domains.spans(first))
        narrowest = float(wide[first].min())
        if narrowest < 1.0:
            yield allowed & (wide >= 2.0 * narrowest), limits
        busiest = float(busy[first].max())
        if busiest > 0.0:
            yield allowed & (busy < busiest / 2), limits
        degrees = [degree for degree in np.unique(slow[first]).tolist() if degree > 0]
        for degree in sorted({*degrees[:1], *degrees[-FASTER:]}):
            yield allowed & (slow < degree), limits
        if len(kinds := {self._cluster.nodes[column].machine for column in first.tolist()}) > 1:
            machines = np.array([node.machine for node in self._cluster.nodes])
            for kind in sorted(kinds - {""}):
                yield allowed & (machines == kind), limits

    def _room_beside(self, job: Job, slow: Ints, busy: Weights | None = None) -> Ints:
        """As if nodes had the more room the slower they are, and the busier others keep their
        uplinks, and those that it had before less than any other as fast: of equal domains those
        with the least go first."""
        room = self._capacity.room
        if busy is None and not job.before and not slow.any():
            return room
        more = np.zeros(len(room), dtype=np.int64)
        if busy is not None:
            more = np.ceil(LOUDNESS * busy).astype(np.int64)
        if job.before:
            before = frozenset(job.before)
            had = np.array([node.name in before for node in self._cluster.nodes], dtype=np.bool_)
            more = np.where(had, 0, 1 + more)
        more += (LOUDNESS + 2) * slow
        return room + more * (int(room.max(initial=0)) + 1)

    def hold(self, job: Job, shape: Shape, limits: Limits) -> NotEnoughNodes | Behind:
        """Let a job wait that could run but may not start, with its claims."""
        usable = self._usable_by(shape)
        free = self._free_for(shape, limits)
        meant = self._cluster.meant(usable, limits)
        reason: NotEnoughNodes | Behind
        if free < job.num_nodes:
            missing = self._not_enough(shape, usable, limits)
            reason = replace(missing, need=job.num_nodes, terms=job.terms)
        else:
            reason = self._behind(job, meant, free)
        self.keep(job, shape, limits)
        return reason

    def keep(self, job: Job, shape: Shape, limits: Limits) -> None:
        """From here on the job has its claims on what it could use."""
        free = self._free_for(shape, limits)
        self._claim(shape, job, limits)
        self._waiting.append((job, free))

    def _usable_by(self, shape: Shape) -> Mask:
        """The nodes that could take a pod of this shape now, whoever has a claim on them."""
        usable = self._usable.get(shape.index)
        if usable is None:
            usable = shape.open & self._capacity.holds(shape.rows, shape.need)
            self._usable[shape.index] = usable
        return usable

    def _free_for(self, shape: Shape, limits: Limits) -> int:
        """How many of those one gang could have."""
        key = (shape.index, limits)
        if key not in self._free:
            usable = self._cluster.meant(self._usable_by(shape), limits)
            self._free[key] = placement.capacity(self._cluster.domains, usable, limits)
        return self._free[key]

    def _not_enough(self, shape: Shape, usable: Mask, limits: Limits) -> NotEnoughNodes:
        """What the shape lacks; it stays so, as nobody behind gets what its first job claims."""
        missing = self._missing.get((shape.index, limits))
        if missing is None:
            missing = fit.not_enough_nodes(self._cluster, shape, usable, limits)
            self._missing[shape.index, limits] = missing
        return missing

    def _behind(self, job: Job, usable: Mask, free: int) -> Behind:
        first, first_free = self._waiting[int(self._claimed_by[usable].min())]
        return Behind(
            position=len(self._waiting) + 1,
            first=f"{first.namespace}/{first.name}",
            first_need=first.num_nodes,
            first_free=first_free,
            need=job.num_nodes,
            free=free,
        )

    def _claim(self, shape: Shape, job: Job, limits: Limits) -> None:
        if (shape.index, limits) in self._claimed:
            return
        wanted = self._cluster.meant(shape.candidates, limits)
        if limits.within:
            wanted = wanted & self._likeliest(shape, job, limits)
        else:
            self._claimed.add((shape.index, limits))
        self._claimed_by[wanted & (self._claimed_by == _NOBODY)] = len(self._waiting)

    def _likeliest(self, shape: Shape, job: Job, limits: Limits) -> Mask:
        """The domain that has to hold all of a job: of those large enough the one that has the most
        room now. A claim on all of them would keep as much idle as the cluster has."""
        domains, level = self._cluster.domains, limits.within
        large, now = (
            placement.caps(domains, self._cluster.meant(nodes, limits), limits)[level]
            for nodes in (shape.candidates, self._usable_by(shape))
        )
        best = int(np.argmax(np.where(large >= job.num_nodes, now, -1)))
        likeliest: Mask = domains.of_node[level] == best
        return likeliest
