"""Place all roles of a gang on nodes that are free now, so that all of them fit or none starts: the
stage that selects nodes.

A gang of one role is placed by ``NodeSelector`` alone, one of several roles by ``GangSearch``. If
that finds no nodes, but would reserve nodes that are all free now, the gang starts on these. If it
is known what the ranks do, there are several gangs to choose from, and ``ranks`` chooses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.budget import SEARCH_WORK, WorkBudget
from railwright_scheduler.cluster import Cluster, Taken
from railwright_scheduler.mapping.gang_mapping import MappingRequest, MappingResult
from railwright_scheduler.model.decisions import Admit
from railwright_scheduler.model.placement_score import PlacementScore
from railwright_scheduler.model.reasons import BlockedByReservation, MappingPending
from railwright_scheduler.model.shortages import NotEnoughNodes
from railwright_scheduler.model.snapshot import Job, Node
from railwright_scheduler.placement.constraints import ResolvedConstraints
from railwright_scheduler.policy import ranks
from railwright_scheduler.policy.candidate import (
    Candidate,
    Effect,
    RoleDemand,
    SchedulingSignature,
)
from railwright_scheduler.policy.free_nodes import FreeNodes
from railwright_scheduler.policy.gang_search import GangSearch, Trial, UnplacedRole
from railwright_scheduler.policy.mappings import Mappings, RequestedMapping, Unmapped, place
from railwright_scheduler.policy.reservation import Reservations
from railwright_scheduler.policy.selection import NodeSelector

Gang = tuple[Ints, ...]
"""The nodes (columns) of each role, in the order of its pods."""

Among = Callable[[SchedulingSignature, ResolvedConstraints, Sequence[Taken]], Mask]
"""The nodes that a role may have under these constraints, beside what other roles of its gang
take."""


class GangPlacer:
    """Refuses gangs whose roles do not fit beside each other."""

    def __init__(
        self,
        cluster: Cluster,
        selector: NodeSelector,
        free_nodes: FreeNodes,
        reservations: Reservations,
        mappings: Mappings,
    ) -> None:
        self._cluster = cluster
        self._selector = selector
        self._free_nodes = free_nodes
        self._reservations = reservations
        self._mappings = mappings

    def check(self, candidate: Candidate, work: WorkBudget) -> Candidate:
        """The candidate with its nodes and their ranks, or with the mapping that it waits for."""
        job, demands = candidate.job, candidate.demands
        requested = self._mappings.of(job.uid)
        gangs = self._requested_gangs(requested, candidate) if requested else None
        if requested and (gangs is None or len(gangs) < len(requested.gangs)):
            requested = None
        if gangs is None:
            found = self._gangs(demands, candidate.limits, work)
            if isinstance(found, UnplacedRole):
                reserved = self._reservations.choose(job, demands, work)
                if not reserved or not self._free_nodes.could_start_on(demands, reserved):
                    reason = self._why_not(candidate, found, work)
                    return candidate._replace(reserved=reserved).refused(reason, Effect.RESERVES)
                found = [reserved]
            gangs = found
        return self._mapped(candidate, gangs, requested, is_cut=work.is_cut)

    def _gangs(
        self,
        demands: Sequence[RoleDemand],
        limits: Sequence[ResolvedConstraints],
        work: WorkBudget,
    ) -> Sequence[Gang] | UnplacedRole:
        """The gangs to choose from under these constraints, the one that spans the fewest domains
        first. Each role has capacity by itself."""
        if len(demands) == 1:
            allowed = self._free_nodes.allowed(demands[0].signature, limits[0])
            choices = self._selector.choices(demands[0].role, allowed, limits[0], work)
            return [(nodes,) for nodes in choices]

        search = self._search(demands, self._free_nodes.allowed, work, is_start=True)
        found = search.find(limits)
        if isinstance(found, UnplacedRole):
            return found
        trial, nodes = found
        # The ranks of the role that trains may be better off in more domains.
        others = self._choices(search, replace(trial, subset=None), demands, work)
        return [nodes, *(gang for gang in others if not _is_same(gang, nodes))]

    def _search(
        self, demands: Sequence[RoleDemand], among: Among, work: WorkBudget, *, is_start: bool
    ) -> GangSearch:
        """A search for the nodes of a gang ``among`` those that each role may have."""

        def allowed(number: int, its: ResolvedConstraints, taken: Sequence[Taken]) -> Mask:
            return among(demands[number].signature, its, taken)

        def select(number: int, its: ResolvedConstraints, near: Mask, _: Sequence[Taken]) -> Ints:
            return self._selector.select(demands[number].role, near, its, work)

        return GangSearch(self._cluster, demands, allowed, select, work, is_start=is_start)

    def _why_not(
        self, candidate: Candidate, unplaced: UnplacedRole, work: WorkBudget
    ) -> BlockedByReservation | NotEnoughNodes:
        """Why the gang does not start, each role of which could by itself."""
        demands, free_nodes = candidate.demands, self._free_nodes
        if free_nodes.are_reserved(demands):
            search = self._search(demands, free_nodes.available, work, is_start=False)
            found = search.find(candidate.limits)
            blocked = isinstance(found, tuple) and free_nodes.blocked(demands, found[1])
            if blocked:
                return blocked
        short = free_nodes.shortage(candidate.job, demands[unplaced.number])
        return replace(short, free=unplaced.free, is_beside_roles=True)

    def _choices(
        self, search: GangSearch, trial: Trial, demands: Sequence[RoleDemand], work: WorkBudget
    ) -> Iterator[Gang]:
        """The gang with each choice of nodes for the role that trains beside which all others fit;
        none if no role trains."""
        training = _training(demands)
        if training is None:
            return
        choices: list[Ints] = []

        def place(number: int) -> Gang | UnplacedRole:
            def choose(at: int, its: ResolvedConstraints, near: Mask, _: Sequence[Taken]) -> Ints:
                role = demands[at].role
                if at != training:
                    return self._selector.select(role, near, its, work)
                if not choices:
                    choices.extend(self._selector.choices(role, near, its, work))
                return choices[number]

            return search.place(trial, choose)

        end, number = work.searched + SEARCH_WORK, 0
        while number == 0 or (number < len(choices) and work.searched < end):
            placed = place(number)
            number += 1
            if not isinstance(placed, UnplacedRole):
                yield placed

    @functools.cached_property
    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self._cluster.nodes}

    @functools.cached_property
    def _columns(self) -> dict[str, int]:
        return {name: column for column, name in enumerate(self._nodes)}

    def _requested_gangs(
        self, requested: RequestedMapping, candidate: Candidate
    ) -> Sequence[Gang] | None:
        """The gangs that the job requested a mapping for; the first, whose nodes it has reserved,
        where others took the chosen one's meanwhile; None if it needs others by now."""
        if not (requested.is_of(candidate.job) and requested.stand(self._nodes)):
            return None
        columns = self._columns
        gangs = [
            tuple(np.array([columns[name] for name in names], dtype=np.int64) for names in gang)
            for gang in requested.gangs
        ]
        outcome = requested.outcome
        chosen = outcome.choice if isinstance(outcome, MappingResult) else 0
        can_start = functools.partial(self._free_nodes.could_start_on, candidate.demands)
        if can_start(gangs[chosen]):
            return gangs
        return gangs[:1] if can_start(gangs[0]) else None

    def _mapped(
        self,
        candidate: Candidate,
        gangs: Sequence[Gang],
        requested: RequestedMapping | None,
        *,
        is_cut: bool,
    ) -> Candidate:
        """The candidate with one of the gangs, the nodes of the role that trains in the order of
        its ranks; or refused, as long as it waits for its mapping."""
        job, nodes, score = candidate.job, gangs[0], None
        training = _training(candidate.demands)
        if training is None:
            return candidate._replace(nodes=nodes, admit=self._admit(job, nodes, None))
        role = candidate.demands[training].role
        request = requested.request if requested else None
        if request is None:
            choices, uses = [gang[training] for gang in gangs], self._selector.uses(role)
            request = ranks.mapping_request(role, self._cluster, choices, uses)
        if request is not None:
            outcome = self._mappings.outcome(job.uid, request)
            if outcome is None:
                waits = requested or self._requested(job, gangs, request)
                refused = candidate._replace(reserved=nodes, mapping=waits)
                return refused.refused(MappingPending(job.num_pods), Effect.RESERVES)
            if isinstance(outcome, MappingResult):
                nodes = gangs[outcome.choice]
            assert role.workload is not None
            its = nodes[training]
            score = ranks.score(role.workload, self._cluster, its, request, outcome)
            if isinstance(outcome, MappingResult):
                its = its[np.array(outcome.order.order)]
                nodes = (*nodes[:training], its, *nodes[training + 1 :])
            if is_cut and not score.truncated:
                score = replace(score, truncated=Unmapped.OVER_BUDGET.value)
        return candidate._replace(nodes=nodes, admit=self._admit(job, nodes, score))

    def _requested(
        self, job: Job, gangs: Sequence[Gang], request: MappingRequest
    ) -> RequestedMapping:
        def named(columns: Ints) -> tuple[str, ...]:
            return tuple(self._cluster.nodes[column].name for column in columns.tolist())

        columns = np.unique(np.concatenate([its for gang in gangs for its in gang]))
        places = {node.name: place(node) for node in map(self._cluster.nodes.__getitem__, columns)}
        names = tuple(tuple(map(named, gang)) for gang in gangs)
        return RequestedMapping(request, job.roles, names, places)

    def _admit(self, job: Job, nodes: Gang, score: PlacementScore | None) -> Admit:
        cluster = self._cluster
        columns = np.concatenate(nodes)
        names = tuple(cluster.nodes[column].name for column in columns.tolist())
        # The pods of one role are on nodes of their own.
        own = np.unique(columns) if len(nodes) > 1 else np.sort(columns)
        return Admit(job.uid, job.attempt, names, cluster.domains.spans(own), score)


def _is_same(gang: Gang, other: Gang) -> bool:
    return all(map(np.array_equal, gang, other))


def _training(demands: Sequence[RoleDemand]) -> int | None:
    """The number of the role that has the workload."""
    return next((at for at, each in enumerate(demands) if each.role.workload is not None), None)
