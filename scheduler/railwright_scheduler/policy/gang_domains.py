"""The domains in which to try a gang of several roles: those that could hold it, and the fewest of
the finest level.

What each domain could hold is an estimate: each role gets the first nodes that the roles before it
leave there. ``gang_search`` finds out whether the gang fits by placing it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.budget import CALL, WorkBudget
from railwright_scheduler.cluster import Cluster, Taken
from railwright_scheduler.placement.choose import fewest_domains
from railwright_scheduler.placement.constraints import ResolvedConstraints, level_caps
from railwright_scheduler.placement.domains import places
from railwright_scheduler.policy.candidate import RoleDemand

PLACED, LIMITED, SPARED = (20, 50), (25, 65), (15, 40)
"""Calls, and units for each node of the cluster, of placing one role in one trial; more for each
level where a spread or segments limit what domains may have, and for each later role that it spares
nodes of."""

_EVERYWHERE = np.ones(1, dtype=np.bool_)
"""All nodes, however many there are."""

Allowed = Callable[[int, ResolvedConstraints, Sequence[Taken]], Mask]
"""The nodes that the role of this number may have, beside what other roles of its gang take."""


def count_role(
    work: WorkBudget, cluster: Cluster, limits: ResolvedConstraints, *, spared: int = 0
) -> None:
    """Count the work of placing one role."""
    levels = 0 if limits.takes_all else len(cluster.domains.bounds)
    calls = PLACED[0] + levels * LIMITED[0] + spared * SPARED[0]
    units = PLACED[1] + levels * LIMITED[1] + spared * SPARED[1]
    work.searched += calls * CALL + len(cluster.nodes) * units


class GangDomains:
    """What domains could hold of the roles that share the job's topology constraints, placed in
    this ``order`` under these ``limits``; nothing where fewer than two do."""

    def __init__(
        self,
        cluster: Cluster,
        demands: Sequence[RoleDemand],
        allowed: Allowed,
        work: WorkBudget,
        order: Sequence[int],
        limits: Sequence[ResolvedConstraints],
    ) -> None:
        shared = [number for number in order if demands[number].role.shares_topology]
        self._shared = shared if len(shared) > 1 else []
        self._cluster = cluster
        self._demands = demands
        self._allowed = allowed
        self._work = work
        self._limits = limits
        self._level = max((limits[number].within for number in self._shared), default=0)
        self.as_of_one_role: Mask | None = None
        self._needed = np.array([demands[number].role.replicas for number in self._shared])
        self._counts = np.sort(self._needed)[::-1].cumsum()

    def whole(self) -> Iterator[Mask]:
        """The domains of the level that must hold the gang, of those that could hold each role by
        itself. Those that hold all roles come first, the smallest before others; then the largest
        of the rest."""
        if not self._level or not self._shared:
            return
        of_node, needed = self._cluster.domains.of_node[self._level], self._needed[:, np.newaxis]
        alone, left = self._held(self._level, self._needed, _EVERYWHERE)
        able, size = np.all(alone >= needed, axis=0), alone.sum(axis=0)
        together = able & np.all(left >= needed, axis=0)
        rank = np.where(together, size, size.sum() + size.max() - size)
        for domain in np.argsort(rank, kind="stable").tolist():
            if able[domain]:
                yield of_node == domain

    def fewest(self) -> Iterator[Mask]:
        """The nodes of the fewest finest domains that could hold the gang, within one domain of the
        level that must: those that a gang of one role and as many pods would have, then those that
        it fills one after the other. Nothing where no domain could hold it."""
        if not self._shared or not self._cluster.domains.finest:
            return
        if (self._caps[self._level].max(axis=1) < self._counts).any():
            return
        domains, size = self._cluster.domains, self._finest[0].sum(axis=0)
        least = self._least(domains.finest)
        # Of equal numbers those of more roles: these are nearer to the truth.
        most = int(np.flatnonzero(least == least.max())[-1])
        nodes = fewest_domains(
            domains,
            tuple(caps[most] for caps in self._caps),
            size,
            count=int(self._counts[most]),
            level=self._level,
            work=self._work,
        )
        self.as_of_one_role = nodes
        yield nodes
        of_node = domains.of_node[self._level]
        yield self.filled(of_node == of_node[np.argmax(nodes)])

    def filled(self, among: Mask) -> Mask:
        """Of these nodes those of the finest domains that the gang fills one after the other, those
        first that hold most of the pods that are left; at last the smallest that holds the rest."""
        domains, needed, nodes = self._cluster.domains, self._needed, np.zeros_like(among)
        while needed.any():
            alone, left = self._held(domains.finest, needed, among & ~nodes)
            held, size = np.minimum(left, needed[:, np.newaxis]), alone.sum(axis=0)
            total = held.sum(axis=0)
            order = np.lexsort((size, -total))
            full = (np.cumsum(held[:, order], axis=1) <= needed[:, np.newaxis]).all(axis=0)
            chosen = order[: max(1, int(np.count_nonzero(full & (total[order] > 0))))]
            if not total[chosen[0]]:
                break
            nodes |= domains.nodes_in(chosen, domains.finest)
            needed = np.maximum(0, needed - held[:, chosen].sum(axis=1))
        return nodes

    def least(self, level: int) -> int:
        """The fewest domains of this level that could hold the gang."""
        return int(self._least(level).max(initial=1))

    def _least(self, level: int) -> Ints:
        held = np.sort(self._caps[level], axis=1)[:, ::-1].cumsum(axis=1)
        found: Ints = (held[:, :-1] < self._counts[:, np.newaxis]).sum(axis=1) + 1
        return found

    @functools.cached_property
    def _finest(self) -> tuple[Ints, Ints]:
        return self._held(self._cluster.domains.finest, self._needed, _EVERYWHERE)

    @functools.cached_property
    def _caps(self) -> Sequence[Ints]:
        """How many pods each domain (column) of each level could have of the largest role, of the
        two largest, and so on. Small roles often fit beside large ones, and add pods but no
        nodes."""
        domains, rows = self._cluster.domains, np.argsort(-self._needed, kind="stable")
        needed = self._needed[rows, np.newaxis]
        alone, left = (held[rows] for held in self._finest)
        caps = [np.minimum(left, needed).cumsum(axis=0)]
        for level in range(domains.finest - 1, -1, -1):
            together = np.add.reduceat(caps[0], domains.inner_bounds[level][:-1], axis=1)
            each = np.add.reduceat(alone, domains.finest_bounds[level][:-1], axis=1)
            caps.insert(0, np.minimum(together, np.minimum(each, needed).cumsum(axis=0)))
        return caps

    def _held(self, level: int, needed: Ints, among: Mask) -> tuple[Ints, Ints]:
        """How many pods of each role (rows) each domain of a level could have on these nodes:
        without the other roles, and beside as many pods of those before it as are ``needed``."""
        domains, of_node = self._cluster.domains, self._cluster.domains.of_node[level]
        alone = np.zeros((len(self._shared), len(domains.bounds[level]) - 1), dtype=np.int64)
        left, taken = alone.copy(), list[Taken]()
        for row, number in enumerate(self._shared):
            limits = self._limits[number]
            count_role(self._work, self._cluster, limits)
            rest = allowed = self._allowed(number, limits, ()) & among
            left[row] = alone[row] = level_caps(domains, allowed, limits, level)
            if taken:
                rest = self._allowed(number, limits, taken) & among
                left[row] = level_caps(domains, rest, limits, level)
            if number == self._shared[-1]:
                break
            columns = np.flatnonzero(rest)
            owner = of_node[columns]
            first = columns[places(owner) < np.minimum(left[row], needed[row])[owner]]
            taken.append(self._demands[number].taken(first))
        return alone, left
