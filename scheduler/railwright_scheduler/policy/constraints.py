"""A job's constraints in levels of the tree that nodes stand in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from railwright_scheduler.cluster import Cluster
from railwright_scheduler.model.decisions import TierMissing
from railwright_scheduler.model.snapshot import NO_CONSTRAINTS, TIERS, TopologyConstraints
from railwright_scheduler.placement import ResolvedConstraints


def resolve(
    constraints: TopologyConstraints, cluster: Cluster
) -> ResolvedConstraints | TierMissing:
    """What they come down to, or which tier there is none of."""
    if constraints == NO_CONSTRAINTS:
        return ResolvedConstraints()
    levels: dict[str, int] = {}
    for tier in (
        constraints.required,
        constraints.preferred,
        constraints.segment_tier,
        constraints.spread_tier,
    ):
        level = _level(tier, cluster)
        if level is None:
            return TierMissing(tier, cluster.levels)
        levels[tier] = level
    finest = cluster.domains.finest
    asked = ResolvedConstraints(
        within=min(levels[constraints.required], finest),
        rather=min(levels[constraints.preferred], finest),
        segment=max(1, constraints.segment),
        segment_level=min(levels[constraints.segment_tier], finest),
        islands=cluster.island in (levels[tier] for tier in _restrictive_tiers(constraints)),
    )
    # Beyond the finest level of the tree every node is alone in its domain: one node is all that a
    # job can have, whether or not the names of its domains are known.
    if levels[constraints.required] > finest or (
        asked.segment > 1 and levels[constraints.segment_tier] > finest
    ):
        return replace(asked, spread=1, spread_level=0)
    if constraints.spread:
        return replace(
            asked, spread=constraints.spread, spread_level=levels[constraints.spread_tier]
        )
    return asked


def _restrictive_tiers(constraints: TopologyConstraints) -> list[str]:
    """The tiers that restrict which nodes a job may have; a segment of one node restricts none."""
    tiers = [
        constraints.required,
        constraints.spread_tier,
        constraints.segment_tier if constraints.segment > 1 else "",
    ]
    return [tier for tier in tiers if tier]


def for_each_rail_order(limits: ResolvedConstraints, cluster: Cluster) -> list[ResolvedConstraints]:
    """The same for each way in which nodes have their adapters on rails: ranks of one number have
    one rail only on nodes that have them alike. Where none do, the first way is that of no node."""
    ways = np.unique(cluster.aligned[cluster.aligned > 0]).tolist()
    return [replace(limits, rails=way) for way in ways or [1]]


def _level(tier: str, cluster: Cluster) -> int | None:
    """Its level in the tree: 0, the whole cluster, for no tier; None if there is none like it."""
    if not tier:
        return 0
    if tier in cluster.levels:
        return cluster.levels.index(tier) + 1
    nearest_first = [
        level for level in range(cluster.domains.finest, 0, -1) if level != cluster.island
    ]
    return dict(zip(TIERS, nearest_first, strict=False)).get(tier)
