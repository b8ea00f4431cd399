"""Resolve a job's topology constraints to levels of the network: the second stage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from railwright_scheduler.budget import WorkBudget
from railwright_scheduler.cluster import Cluster
from railwright_scheduler.model import scale_up_domains
from railwright_scheduler.model.reasons import TierNotFound
from railwright_scheduler.model.snapshot import NO_CONSTRAINTS, TIERS, TopologyConstraints
from railwright_scheduler.placement.constraints import ANYWHERE, LevelLimit, ResolvedConstraints
from railwright_scheduler.policy.candidate import Candidate


class ConstraintResolver:
    """Refuses jobs with constraints on tiers that the network does not have."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._resolved: dict[TopologyConstraints, ResolvedConstraints | TierNotFound] = {}
        self._aligned: dict[ResolvedConstraints, Sequence[ResolvedConstraints]] = {}

    def check(self, candidate: Candidate, _: WorkBudget) -> Candidate:
        """The candidate with the constraints that each role may start under."""
        ways: list[Sequence[ResolvedConstraints]] = []
        for role in candidate.job.roles:
            requested = role.constraints
            limits = self._resolved.get(requested)
            if limits is None:
                levels, finest = self._cluster.levels, self._cluster.domains.finest
                limits = self._resolved[requested] = resolve(requested, levels, finest)
            if isinstance(limits, TierNotFound):
                return candidate.refused(limits)
            ways.append(self._rail_orders(limits) if requested.aligned else [limits])
        return candidate._replace(ways=ways)

    def _rail_orders(self, limits: ResolvedConstraints) -> Sequence[ResolvedConstraints]:
        if limits not in self._aligned:
            self._aligned[limits] = for_each_rail_order(limits, self._cluster)
        return self._aligned[limits]


def resolve(
    constraints: TopologyConstraints, levels: tuple[str, ...], finest: int
) -> ResolvedConstraints | TierNotFound:
    """The constraints by number of level, or the first tier that the network does not have.
    ``finest`` is the last level of the tree of all nodes' domains."""
    if constraints == NO_CONSTRAINTS:
        return ANYWHERE
    numbers: dict[str, int] = {}
    for tier in (
        constraints.required,
        constraints.preferred,
        *(each.tier for each in (*constraints.segments, *constraints.spreads)),
    ):
        level = _level(tier, levels, finest)
        if level is None:
            return TierNotFound(tier, levels)
        numbers[tier] = level
    requested = ResolvedConstraints(
        within=min(numbers[constraints.required], finest),
        rather=min(numbers[constraints.preferred], finest),
        segments=tuple(
            LevelLimit(min(numbers[each.tier], finest), each.nodes) for each in constraints.segments
        ),
        scale_up_only=scale_up_domains.level(levels)
        in (numbers[tier] for tier in _restrictive_tiers(constraints)),
    )
    spreads = tuple(LevelLimit(numbers[each.tier], each.nodes) for each in constraints.spreads)
    # Beyond the finest level of the tree every node is alone in its domain, whether or not the
    # names of its domains are known: one node is all that a job can have.
    if numbers[constraints.required] > finest or any(
        each.nodes > 1 and numbers[each.tier] > finest for each in constraints.segments
    ):
        spreads = (LevelLimit(0, 1), *spreads)
    return requested._replace(spreads=spreads)


def _restrictive_tiers(constraints: TopologyConstraints) -> list[str]:
    """The tiers that restrict which nodes a job may have. A segment of one node does not."""
    tiers = [
        constraints.required,
        *(each.tier for each in constraints.spreads),
        *(each.tier for each in constraints.segments if each.nodes > 1),
    ]
    return [tier for tier in tiers if tier]


def for_each_rail_order(limits: ResolvedConstraints, cluster: Cluster) -> list[ResolvedConstraints]:
    """The constraints for each order in which nodes have their adapters on rails: ranks of one
    number share a rail only on nodes of one order. Without such nodes, the first order matches
    none."""
    ways = np.unique(cluster.aligned[cluster.aligned > 0]).tolist()
    return [limits._replace(rails=way) for way in ways or [1]]


def _level(tier: str, levels: tuple[str, ...], finest: int) -> int | None:
    """The level of a tier: 0, the whole cluster, for no tier; None if there is no such level."""
    if not tier:
        return 0
    if tier in levels:
        return levels.index(tier) + 1
    scale_up = scale_up_domains.level(levels)
    nearest_first = [level for level in range(finest, 0, -1) if level != scale_up]
    return dict(zip(TIERS, nearest_first, strict=False)).get(tier)
