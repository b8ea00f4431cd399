"""Place all roles of a gang on nodes that are free now, so that all of them fit or none starts: the
stage that selects nodes.

A gang of one role is placed by ``NodeSelector`` alone, one of several roles by ``GangSearch``. If
that finds no nodes, but would reserve nodes that are all free now, the gang starts on these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from railwright_scheduler.budget import WorkBudget
from railwright_scheduler.cluster import Cluster, Ints, Mask, Taken
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.placement import ResolvedConstraints
from railwright_scheduler.policy.candidate import Candidate, Effect, RoleDemand
from railwright_scheduler.policy.free_nodes import FreeNodes
from railwright_scheduler.policy.gang_search import GangSearch, Trial, UnplacedRole
from railwright_scheduler.policy.ranks import RankedNodes
from railwright_scheduler.policy.reservation import Reservations
from railwright_scheduler.policy.selection import NodeSelector


class GangPlacer:
    """Refuses gangs whose roles do not fit beside each other."""

    def __init__(
        self,
        cluster: Cluster,
        selector: NodeSelector,
        free_nodes: FreeNodes,
        reservations: Reservations,
    ) -> None:
        self._cluster = cluster
        self._selector = selector
        self._free_nodes = free_nodes
        self._reservations = reservations

    def check(self, candidate: Candidate, work: WorkBudget) -> Candidate:
        """The candidate with its nodes and their ranks."""
        job, cluster = candidate.job, self._cluster
        demands = candidate.demands
        placed = self._place(demands, candidate.limits, work)
        if isinstance(placed, UnplacedRole):
            reserved = self._reservations.choose(job, demands, work)
            if not reserved or not self._free_nodes.could_start_on(demands, reserved):
                short = self._free_nodes.shortage(job, demands[placed.number])
                short = replace(short, free=placed.free, is_beside_roles=True)
                return candidate._replace(reserved=reserved).refused(short, Effect.RESERVES)
            placed = self._mapped_on(reserved, [each.largest for each in demands], demands, work)
        columns = np.concatenate([found.nodes for found in placed])
        names = tuple(cluster.nodes[column].name for column in columns.tolist())
        # The pods of one role are on nodes of their own.
        own = np.unique(columns) if len(placed) > 1 else np.sort(columns)
        spans = cluster.domains.spans(own)
        score = next((found.score for found in placed if found.score is not None), None)
        if score is not None and work.is_cut:
            score = replace(score, over_budget=True)
        admit = Admit(job.uid, job.attempt, names, spans, score)
        return candidate._replace(nodes=tuple(found.nodes for found in placed), admit=admit)

    def _place(
        self,
        demands: Sequence[RoleDemand],
        limits: Sequence[ResolvedConstraints],
        work: WorkBudget,
    ) -> tuple[RankedNodes, ...] | UnplacedRole:
        """The nodes of each role under these constraints, in the order of its pods. Each role has
        capacity by itself."""
        if len(demands) == 1:
            allowed = self._free_nodes.allowed(demands[0].signature, limits[0])
            return (self._selector.select(demands[0].role, allowed, limits[0], work),)

        def allowed_of(number: int, its: ResolvedConstraints, taken: Sequence[Taken]) -> Mask:
            return self._free_nodes.allowed(demands[number].signature, its, taken)

        def choose(number: int, its: ResolvedConstraints, near: Mask, _: Sequence[Taken]) -> Ints:
            return self._selector.select_unmapped(demands[number].role, near, its, work)

        search = GangSearch(self._cluster, demands, allowed_of, choose, work)
        found = search.find(limits)
        if isinstance(found, UnplacedRole):
            return found
        return self._mapped(search, *found, demands, work)

    def _mapped(
        self,
        search: GangSearch,
        trial: Trial,
        nodes: tuple[Ints, ...],
        demands: Sequence[RoleDemand],
        work: WorkBudget,
    ) -> tuple[RankedNodes, ...]:
        """The gang that fits, with the ranks of the role that trains mapped: on other nodes if the
        roles after it fit beside these too, else on those that were found."""
        if all(each.role.workload is None for each in demands):
            return tuple(RankedNodes(its) for its in nodes)
        ranked: dict[int, RankedNodes] = {}

        def choose(number: int, its: ResolvedConstraints, near: Mask, _: Sequence[Taken]) -> Ints:
            ranked[number] = self._selector.select(demands[number].role, near, its, work)
            return ranked[number].nodes

        if not isinstance(search.place(trial, choose), UnplacedRole):
            return tuple(ranked[number] for number in range(len(demands)))
        return self._mapped_on(nodes, trial.limits, demands, work)

    def _mapped_on(
        self,
        nodes: Sequence[Ints],
        limits: Sequence[ResolvedConstraints],
        demands: Sequence[RoleDemand],
        work: WorkBudget,
    ) -> tuple[RankedNodes, ...]:
        """These nodes of each role, with the ranks of the role that trains mapped."""
        found: list[RankedNodes] = []
        for its, its_limits, demand in zip(nodes, limits, demands, strict=True):
            ranked = RankedNodes(its)
            if demand.role.workload is not None:
                own = np.zeros(len(self._cluster.nodes), dtype=np.bool_)
                own[its] = True
                ranked = self._selector.select(demand.role, own, its_limits, work)
            found.append(ranked)
        return tuple(found)
