"""The traffic of placed jobs over the uplinks of each domain, for the placement of another job.

The workload of a job determines its bytes per step and its step time, and so its average traffic.
The step time is that without other jobs on the links, so that the traffic of one job does not
depend on that of others.

After a change of leaders nothing is cached, and thousands of jobs may run. So one scheduling cycle
computes no more than ``TRAFFIC_WORK`` allows, the largest gangs first; the others count as without
traffic until later cycles. With more jobs than ``ASKED_BYTES_MAX`` holds, the smallest never count.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from railwright_scheduler.arrays import Floats, Ints
from railwright_scheduler.budget import TRAFFIC_WORK, OverBudgetError, WorkBudget
from railwright_scheduler.cluster import Cluster
from railwright_scheduler.communication import measured, traffic_matrix
from railwright_scheduler.cost import contention
from railwright_scheduler.cost.contention import Uplinks, UplinkUse
from railwright_scheduler.isolation import Isolation, Stage
from railwright_scheduler.mapping.evaluation import OrderEvaluator
from railwright_scheduler.mapping.request import (
    KEPT_NODE_BYTES,
    OrderRequest,
    Uses,
    build_unshared_request,
)
from railwright_scheduler.model.snapshot import SendingJob
from railwright_scheduler.model.workload import Workload
from railwright_scheduler.remembered import Key, remembered

KEPT_BYTES_MAX, ASKED_BYTES_MAX = 64 << 20, 48 << 20
"""Traffic that is kept, as jobs run on for many decisions, and of that what one decision asks for:
some 10,000 jobs. It asks for less than is kept, so that nothing leaves that the next one asks for,
though that has other jobs."""

JOB_BYTES = 4_096
"""Of a job's traffic, beside that of its nodes: twice what a gang of two nodes was seen to take."""

WORK, WORK_A_NODE = 20_000_000, 500_000
"""What it may take to know what a job sends, once. A job that takes more is taken to send nothing,
as is one that takes more than all jobs may in one cycle."""


class Traffic:
    """What these jobs make of the uplinks of each level, the coarsest first. It is reckoned when it
    is first asked for, as many decisions place nobody who would ask; what was not known before is
    spent from ``work``, that of the cycle."""

    def __init__(
        self,
        cluster: Cluster,
        senders: Iterable[SendingJob],
        isolation: Isolation,
        work: WorkBudget,
    ) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._work = work
        self._bytes_left = ASKED_BYTES_MAX
        self._new = [*senders]
        self._uses: tuple[dict[int, list[UplinkUse]], ...] = tuple({} for _ in cluster.levels)
        # If all traffic may leave the domain, there is no contention.
        self._is_scarce = any(
            (tier.capacity < np.bincount(tier.domains)).any() for tier in cluster.uplinks
        )

    def add(self, job: SendingJob) -> None:
        """One more is placed."""
        self._new.append(job)

    def uses(self) -> Uses:
        """The traffic over the uplinks of each domain with any."""
        if self._new and self._is_scarce:
            columns = {node.name: at for at, node in enumerate(self._cluster.nodes)}
            self._new.sort(key=_largest_first)
            while self._new:
                reckon = functools.partial(self._uses_of, self._new[0], columns)
                uid = self._new[0].job_uid
                size = _size(len(self._new[0].nodes), len(self._uses))
                found: list[tuple[int, int, UplinkUse]] = []
                if is_affordable := size <= self._bytes_left:
                    found = self._isolation.run(Stage.TRAFFIC, uid, reckon, otherwise=found)
                # Nothing is called from here on: a job is counted once, whatever raises.
                if is_affordable:
                    self._bytes_left -= size
                for level, domain, use in found:
                    self._uses[level].setdefault(domain, []).append(use)
                del self._new[0]
        self._new.clear()
        return self._uses

    def busy(self, nodes: Ints) -> Floats:
        """For each node of the cluster, how busy others keep the uplinks it would send through if
        it were one of these (columns, ascending): those of levels of which they span several
        domains. 1 is all the time."""
        found = np.zeros(len(self._cluster.nodes))
        spans = self._cluster.domains.spans(nodes)
        for tier, uses, spanned in zip(self._cluster.uplinks, self.uses(), spans, strict=True):
            if spanned > 1 and uses:
                share = np.zeros(len(tier.capacity))
                for domain, its in uses.items():
                    share[domain] = math.fsum(each.busy for each in its) / tier.capacity[domain]
                found = np.maximum(found, share[tier.domains])
        return np.minimum(found, 1.0)

    def _uses_of(
        self, job: SendingJob, columns: Mapping[str, int]
    ) -> list[tuple[int, int, UplinkUse]]:
        """What the job makes of uplinks: level, domain, and its use of that domain's. A job that
        lost a node is about to end: it uses none."""
        if not all(name in columns for name in job.nodes):
            return []
        ranked = np.array([columns[name] for name in job.nodes])
        nodes = np.sort(ranked)
        request = build_unshared_request(job.workload, job.ranks_per_node, self._cluster, nodes)
        work = WorkBudget(min(WORK + WORK_A_NODE * len(nodes), TRAFFIC_WORK))
        order = tuple(np.searchsorted(nodes, ranked).tolist())
        try:
            sent = _sent.within(self._work, work, request, order)
        except OverBudgetError:
            return []
        levels = zip(self._cluster.uplinks, reversed(sent), strict=bool(sent))
        return [
            (level, domain, use)
            for level, (tier, its) in enumerate(levels)
            for domain, use in zip(sorted({*tier.domains[nodes].tolist()}), its, strict=True)
            if use.busy > 0.0
        ]


def crossing(
    workload: Workload, ranks_per_node: int, levels: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Bytes a step that cross the border of each domain of each level, in both directions;
    ``levels`` have the domain of each node rank, numbered from 0."""
    communicators = measured.communicators(workload)
    sent = traffic_matrix.together(
        (traffic_matrix.between_nodes(each, ranks_per_node) for each in communicators),
        (len(levels[0]),) if levels else (),
    )
    found = []
    for domains in levels:
        tier = Uplinks(np.array(domains), np.ones(max(domains) + 1), 1.0)
        found.append(contention.uplinks(sent, tier).round().astype(np.int64).tolist())
    return found


def _largest_first(job: SendingJob) -> tuple[int, str, tuple[str, ...]]:
    return -len(job.nodes), job.job_uid, job.nodes


def _size(nodes: int, tiers: int) -> int:
    """About how many bytes it takes to keep what such a gang sends."""
    return JOB_BYTES + KEPT_NODE_BYTES * nodes * (tiers + 2)


def _key(request: OrderRequest, order: tuple[int, ...]) -> Key:
    return Key((request.key.value, order), _size(request.nodes, len(request.tiers)))


@remembered(KEPT_BYTES_MAX, _key)
def _sent(
    work: WorkBudget, request: OrderRequest, order: tuple[int, ...]
) -> tuple[tuple[UplinkUse, ...], ...]:
    """What a gang makes of its domains' uplinks, the nearest tier first; nothing where its machines
    are not known."""
    return tuple(map(tuple, OrderEvaluator(request, work).uses(np.array(order))))
