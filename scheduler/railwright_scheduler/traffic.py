"""What jobs that are placed already send over each domain's uplinks, while another one is placed.

Of a job that says what it does it is known how many bytes it sends in a step, and how long a step
takes: what that makes on average is what it is taken to send all the time. How long is reckoned as
if it had the links to itself, so that no job's traffic hangs on another's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from railwright_scheduler import layouts
from railwright_scheduler.cluster import Cluster, Ints
from railwright_scheduler.communication import derive, exchanges
from railwright_scheduler.cost import crowding
from railwright_scheduler.cost.crowding import Uplinks
from railwright_scheduler.cost.sharing import Use
from railwright_scheduler.layouts import Layouts, Uses
from railwright_scheduler.mapping.problem import Weights
from railwright_scheduler.question import Question
from railwright_scheduler.snapshot import Running
from railwright_scheduler.workload import Workload

REMEMBERED = 4_096
"""Jobs whose traffic is kept: they run on for many decisions."""


class Traffic:
    """What these jobs make of the uplinks of each level, the coarsest first. It is reckoned when it
    is first asked for, as many decisions place nobody who would ask."""

    def __init__(self, cluster: Cluster, running: Iterable[Running]) -> None:
        self._cluster = cluster
        self._new = [*running]
        self._uses: tuple[dict[int, list[Use]], ...] = tuple({} for _ in cluster.levels)
        # Where all that nodes send may leave, nobody is in anybody's way.
        self._is_scarce = any(
            (tier.room < np.bincount(tier.domains)).any() for tier in cluster.uplinks
        )

    def add(self, job: Running) -> None:
        """One more is placed."""
        self._new.append(job)

    def uses(self) -> Uses:
        """Of each domain whose uplinks anybody sends through."""
        if self._new and self._is_scarce:
            columns = {node.name: at for at, node in enumerate(self._cluster.nodes)}
            for job in self._new:
                # A job that lost a node is about to end.
                if all(name in columns for name in job.nodes):
                    self._take(job, np.array([columns[name] for name in job.nodes]))
        self._new.clear()
        return self._uses

    def busy(self, nodes: Ints) -> Weights:
        """For each node of the cluster, how busy others keep the uplinks it would send through if
        it were one of these (columns, ascending): those of levels of which they span several
        domains. 1 is all the time."""
        found = np.zeros(len(self._cluster.nodes))
        spans = self._cluster.domains.spans(nodes)
        for tier, uses, spanned in zip(self._cluster.uplinks, self.uses(), spans, strict=True):
            if spanned > 1 and uses:
                share = np.zeros(len(tier.room))
                for domain, its in uses.items():
                    share[domain] = math.fsum(each.sending for each in its) / tier.room[domain]
                found = np.maximum(found, share[tier.domains])
        return np.minimum(found, 1.0)

    def _take(self, job: Running, ranked: Ints) -> None:
        nodes = np.sort(ranked)
        asked = layouts.unshared(job.workload, job.ranks_per_node, self._cluster, nodes)
        sent = _sent(asked, tuple(np.searchsorted(nodes, ranked).tolist()))
        levels = zip(self._uses, self._cluster.uplinks, reversed(sent), strict=bool(sent))
        for uses, tier, its in levels:
            for domain, use in zip(np.unique(tier.domains[nodes]).tolist(), its, strict=True):
                if use.sending > 0.0:
                    uses.setdefault(domain, []).append(use)


def crossing(
    workload: Workload, ranks_per_node: int, levels: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Bytes a step that cross the border of each domain of each level, in both directions;
    ``levels`` have the domain of each node rank, numbered from 0."""
    communicators = derive.communicators(*workload.parts)
    sent = exchanges.together(
        (exchanges.between_nodes(each, ranks_per_node) for each in communicators),
        (len(levels[0]),) if levels else (),
    )
    found = []
    for domains in levels:
        tier = Uplinks(np.array(domains), np.ones(1), 1.0)
        load = crowding.uplinks(sent, tier).round().astype(np.int64).tolist()
        found.append([*load, *[0] * (max(domains) + 1 - len(load))])
    return found


@functools.lru_cache(maxsize=REMEMBERED)
def _sent(question: Question, order: tuple[int, ...]) -> tuple[tuple[Use, ...], ...]:
    """What a gang makes of its domains' uplinks, the nearest tier first; nothing where its machines
    are not known."""
    return tuple(map(tuple, Layouts(question).uses(np.array(order))))
