"""Feasibility, the third stage: whether a job can run on this cluster ever, and what is missing.

Roles that differ only in their job, name or number of pods share one ``SchedulingSignature``, whose
masks over the nodes are computed once for each decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from railwright_scheduler.arrays import Mask
from railwright_scheduler.budget import WorkBudget
from railwright_scheduler.cluster import NODE_AMOUNT_MAX, Cluster, PodRequest
from railwright_scheduler.model.shortages import (
    Exclusion,
    ExclusionCause,
    NeverFits,
    NotEnoughNodes,
    RailsShort,
    Shortage,
)
from railwright_scheduler.model.snapshot import (
    UNKNOWN_DOMAIN,
    Node,
    Role,
    TopologyConstraints,
    Unavailable,
)
from railwright_scheduler.placement.constraints import ANYWHERE, ResolvedConstraints, capacity
from railwright_scheduler.policy import gang_bound
from railwright_scheduler.policy.candidate import Candidate, RoleDemand, SchedulingSignature
from railwright_scheduler.policy.eligibility import Eligibility
from railwright_scheduler.policy.gang_bound import JointBound

Value = TypeVar("Value", str, int)

CAUSES = (ExclusionCause.TAINTED, *map(ExclusionCause, Unavailable))
"""By the number that ``Cluster.unavailable`` has of a candidate that is not open."""


EXCLUSIONS = tuple(ExclusionCause)


class Feasibility:
    """Refuses jobs with a role that the cluster could not run, even empty and healthy. It keeps the
    signatures of the roles met so far."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._eligibility = Eligibility(cluster.nodes)
        self._signatures: dict[object, SchedulingSignature] = {}
        self._verdicts: dict[tuple[int, int, TopologyConstraints], NeverFits] = {}
        self._capacity: dict[tuple[int, ResolvedConstraints], int] = {}
        self._bounds: dict[object, list[JointBound]] = {}

    def check(self, candidate: Candidate, work: WorkBudget) -> Candidate:
        """The candidate with the demand of each role."""
        roles = candidate.job.roles
        demands = [self._demand(*each) for each in zip(roles, candidate.ways, strict=True)]
        found = candidate._replace(demands=demands)
        for demand in demands:
            role = demand.role
            if self._capacity_of(demand.signature, demand.largest) < role.replicas:
                never = self._never_fits(role, demand.signature, demand.largest)
                return found.refused(replace(never, role=role.name) if len(roles) > 1 else never)
        together = self._never_together(demands, work) if len(roles) > 1 else None
        return found if together is None else found.refused(together)

    def _never_together(self, demands: Sequence[RoleDemand], work: WorkBudget) -> NeverFits | None:
        """Why the roles, each of which fits by itself, do not fit beside each other on the cluster,
        empty and healthy; None if that is not known."""
        pods = sum(demand.role.replicas for demand in demands)
        if all(self._capacity_of(each.signature, each.largest) >= pods for each in demands):
            return None
        key = tuple(
            (each.signature.index, each.any_rails, each.role.shares_topology) for each in demands
        )
        if key not in self._bounds:
            self._bounds[key] = gang_bound.joint_bounds(self._cluster, demands, work)
        roles = [each.role for each in demands]
        found = (bound.shortage(roles) for bound in self._bounds[key])
        short = next((each for each in found if each is not None), None)
        if short is None:
            return None
        first = next(each for each in demands if each.role.name == short.roles[0])
        never = self._explain_never(first.role, first.signature, first.largest)
        return replace(never, role=first.role.name, together=short)

    def _demand(self, role: Role, ways: Sequence[ResolvedConstraints]) -> RoleDemand:
        signature = self._signature(role)
        largest = ways[0]
        if len(ways) > 1:
            largest = max(ways, key=lambda way: self._capacity_of(signature, way))
        return RoleDemand(role, signature, ways, largest)

    def _signature(self, role: Role) -> SchedulingSignature:
        """The role's signature. Raises ValueError for a negative request."""
        key = (_pairs(role.per_pod), _pairs(role.selector), role.affinity, role.tolerations)
        signature = self._signatures.get(key)
        if signature is None:
            signature = self._signatures[key] = self._make(role)
        return signature

    def _capacity_of(self, signature: SchedulingSignature, limits: ResolvedConstraints) -> int:
        """The most pods of this signature in one gang, on an empty and healthy cluster."""
        if limits is ANYWHERE:
            return signature.candidates_count
        key = (signature.index, limits)
        held = self._capacity.get(key)
        if held is None:
            meant = self._cluster.meant(signature.candidates, limits)
            held = self._capacity[key] = capacity(self._cluster.domains, meant, limits)
        return held

    def _never_fits(
        self, role: Role, signature: SchedulingSignature, limits: ResolvedConstraints
    ) -> NeverFits:
        """Why the cluster as it stands could not run the role, even empty and healthy."""
        key = (signature.index, role.replicas, role.constraints)
        if key not in self._verdicts:
            self._verdicts[key] = self._explain_never(role, signature, limits)
        return self._verdicts[key]

    def _explain_never(
        self, role: Role, signature: SchedulingSignature, limits: ResolvedConstraints
    ) -> NeverFits:
        shortages = (self._shortage(name, need, signature) for name, need in signature.per_node)
        return NeverFits(
            need=role.replicas,
            per_node=signature.per_node,
            matched=int(np.count_nonzero(signature.matched)),
            unmatched=signature.unmatched,
            tolerated=int(np.count_nonzero(signature.tolerated)),
            candidates=self._capacity_of(signature, limits),
            shortages=tuple(short for short in shortages if short.nodes < role.replicas),
            selector=_pairs(role.selector),
            untolerated=self._eligibility.lasting(role.tolerations, among=signature.matched),
            constraints=role.constraints,
            rails=_rails_short(self._cluster, signature, limits),
        )

    def _make(self, role: Role) -> SchedulingSignature:
        cluster = self._cluster
        requests = [(name, amount) for name, amount in _pairs(role.per_pod) if amount != 0]
        for resource, amount in requests:
            if amount < 0:
                raise ValueError(
                    f"role {role.name}: per_pod[{resource!r}] is {amount}, expected at least 0"
                )
        present = [(name, amount) for name, amount in requests if name in cluster.rows]
        request = PodRequest.of(
            [(cluster.rows[name], min(amount, NODE_AMOUNT_MAX + 1)) for name, amount in present]
        )
        selected = self._eligibility.selected(role.selector)
        matched = selected & self._eligibility.matched(role.affinity)
        tolerated = matched & self._eligibility.tolerated_ever(role.tolerations)
        large = (cluster.allocatable[request.rows] >= request.need).all(axis=0)
        candidates = tolerated & large & (len(present) == len(requests))
        untainted = candidates & self._eligibility.tolerated(role.tolerations)
        return SchedulingSignature(
            index=len(self._signatures),
            per_node=tuple(requests),
            request=request,
            matched=matched,
            unmatched=int(np.count_nonzero(selected & ~matched)),
            tolerated=tolerated,
            candidates=candidates,
            candidates_count=int(np.count_nonzero(candidates)),
            healthy=untainted & (cluster.available | cluster.recently_lost),
            available=untainted & cluster.available,
        )

    def _shortage(self, resource: str, need: int, signature: SchedulingSignature) -> Shortage:
        row = self._cluster.rows.get(resource)
        amounts = (
            np.zeros(0, dtype=np.int64)
            if row is None
            else self._cluster.allocatable[row, signature.tolerated]
        )
        return Shortage(
            resource=resource,
            need=need,
            most=int(amounts.max(initial=0)),
            nodes=int(np.count_nonzero(amounts >= min(need, NODE_AMOUNT_MAX + 1))),
        )


def not_enough_nodes(
    cluster: Cluster,
    signature: SchedulingSignature,
    available: Mask,
    limits: ResolvedConstraints,
    *,
    largest: ResolvedConstraints,
) -> NotEnoughNodes:
    """What keeps the candidates of a signature from taking more pods, given those available now:
    under these constraints, and under the ones with the ``largest`` capacity if all were free."""
    meant = cluster.meant(available, limits)
    level, domain, free = _best_domain(cluster, meant)
    return NotEnoughNodes(
        need=0,
        per_node=signature.per_node,
        candidates=capacity(cluster.domains, cluster.meant(signature.candidates, largest), largest),
        free=capacity(cluster.domains, meant, limits),
        best_level=level,
        best_domain=domain,
        best_free=free,
        excluded=_excluded(cluster, signature, available),
        unmatched=signature.unmatched,
        rails=_rails_short(cluster, signature, limits),
    )


def _rails_short(
    cluster: Cluster, signature: SchedulingSignature, limits: ResolvedConstraints
) -> RailsShort | None:
    if not limits.rails:
        return None
    rails, nodes = cluster.miscabled
    miscabled, counts = np.unique(rails[signature.candidates[nodes]], return_counts=True)
    unknown = int(np.count_nonzero(signature.candidates & cluster.railless))
    return RailsShort(tuple(zip(miscabled.tolist(), counts.tolist(), strict=True)), unknown)


def _best_domain(cluster: Cluster, available: Mask) -> tuple[str, str, int]:
    levels = [
        level for level in range(1, cluster.domains.finest + 1) if level != cluster.scale_up_level
    ]
    if not levels:
        return "", "", int(np.count_nonzero(available))
    nearest = levels[-1]
    caps = cluster.domains.total(available.astype(np.int64), nearest)
    best = int(np.argmax(caps))
    node = cluster.nodes[cluster.domains.bounds[nearest][best]]
    return cluster.levels[nearest - 1], _called(node, nearest), int(caps[best])


def _called(node: Node, level: int) -> str:
    """The node's domain with those that it lies in; many sources repeat them in its name."""
    called = ""
    for label in node.domains[:level]:
        step = node.name if label == UNKNOWN_DOMAIN else label
        called = step if step.startswith(f"{called}/") or not called else f"{called}/{step}"
    return called


def _excluded(
    cluster: Cluster, signature: SchedulingSignature, available: Mask
) -> tuple[Exclusion, ...]:
    """Count each candidate that is not available once, for the cause that would remain longest."""
    closed = cluster.unavailable[signature.candidates & ~signature.available]
    found = np.bincount(closed, minlength=len(CAUSES)).tolist()
    counts = dict.fromkeys(EXCLUSIONS, 0) | dict(zip(CAUSES, found, strict=True))
    lacking = signature.available & ~available
    left = cluster.allocatable[signature.request.rows] - cluster.foreign[signature.request.rows]
    small = lacking & np.any(left < signature.request.need, axis=0)
    counts[ExclusionCause.FOREIGN_PODS] = int(np.count_nonzero(small))
    counts[ExclusionCause.BUSY] = int(np.count_nonzero(lacking & ~small))
    return tuple(Exclusion(cause, nodes) for cause, nodes in counts.items() if nodes)


def _pairs(mapping: Mapping[str, Value]) -> tuple[tuple[str, Value], ...]:
    return tuple(sorted(mapping.items())) if len(mapping) > 1 else tuple(mapping.items())
