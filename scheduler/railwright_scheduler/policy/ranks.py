"""Request the mapping of a gang with a workload, and score what came of it.

The sets of nodes that it could have are chosen by ``selection``; which of them it takes, and the
order of ranks, by ``map_ranks``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from railwright_scheduler.arrays import Ints
from railwright_scheduler.cluster import Cluster
from railwright_scheduler.communication import grid as grids
from railwright_scheduler.communication import measured, traffic_matrix
from railwright_scheduler.mapping import mapper
from railwright_scheduler.mapping.gang_mapping import MappingRequest, NodeChoice
from railwright_scheduler.mapping.request import Uses, build_request
from railwright_scheduler.model.placement_score import CrossDomainBytes, PlacementScore
from railwright_scheduler.model.snapshot import Role
from railwright_scheduler.model.workload import Workload
from railwright_scheduler.policy.mappings import Outcome, Unmapped

CHOSEN_NODES = 1_024
"""Larger gangs get the nodes in the fewest domains: other choices would take seconds to
evaluate."""

BUDGET_A_NODE, BUDGET_A_PAIR = 500, 8
"""Pairs current for each node of a gang, about a millisecond's worth, and for each two of a small
one."""

JOB = 64
"""Fixed work of placing a job, beside that of its nodes, in nodes."""

PORTIONS = 3
"""Other choices looked at."""


def mapping_request(
    role: Role, cluster: Cluster, choices: Sequence[Ints], uses: Uses
) -> MappingRequest | None:
    """The request to map this role's ranks onto one of these ``choices`` of nodes (columns,
    ascending), the first of which spans the fewest domains; None where it is not known what they
    send. ``uses`` is what others make of the uplinks meanwhile."""
    workload = role.workload
    if workload is None or not _held(workload, cluster, choices[0]).has_traffic:
        return None
    # What was recorded of some devices and what is derived for others do not compare.
    comparable = workload
    if len(choices) > 1:
        comparable = _held(workload, cluster, np.unique(np.concatenate(choices)))

    def choice(nodes: Ints) -> NodeChoice:
        budget = min(mapper.BUDGET, BUDGET_A_NODE * len(nodes), BUDGET_A_PAIR * len(nodes) ** 2)
        mapped = build_request(role, cluster, nodes, budget=budget, uses=uses)
        held = _held(comparable, cluster, nodes)
        compared = replace(mapped, workload=held, budget=0)
        return NodeChoice(cluster.domains.spans(nodes), compared, mapped)

    return MappingRequest(tuple(map(choice, choices)), len(cluster.nodes))


def score(
    workload: Workload, cluster: Cluster, nodes: Ints, request: MappingRequest, outcome: Outcome
) -> PlacementScore:
    """The score of these nodes, which are those that the outcome chose."""
    other_devices: tuple[str, ...] = ()
    if workload.profile is not None:
        other_devices = workload.profile.lacks(cluster.devices(nodes))
    if isinstance(outcome, Unmapped):
        return PlacementScore((), other_devices=other_devices, truncated=outcome.value)
    mapped, best = request.choices[outcome.choice].mapped, outcome.order
    crossing = zip(cluster.levels, best.crossing[::-1], strict=True)
    crossings = tuple(CrossDomainBytes(level, *sizes) for level, sizes in crossing)
    moved = int(np.count_nonzero(np.array(best.order) != np.array(mapped.before or best.order)))
    is_measured = mapped.workload.profile is not None
    truncated = Unmapped.OVER_BUDGET.value if outcome.is_cut else ""
    return PlacementScore(crossings, best.predicted, moved, is_measured, other_devices, truncated)


def _held(workload: Workload, cluster: Cluster, nodes: Ints) -> Workload:
    return measured.held(workload, cluster.devices(nodes))


def portions(role: Role, spanned: int) -> tuple[int, ...]:
    """Numbers of nodes that are worth keeping in one domain: an even share of those ``spanned``,
    and rings and planes of the job's grid. Each divides the gang; the largest comes first."""
    if role.workload is None or not role.has_traffic or spanned == 1:
        return ()
    grid = grids.dense(role.workload.split, role.workload.recipe.framework)
    sizes = [size for size in traffic_matrix.shape(grid, role.ranks_per_pod) if size > 1]
    found = {math.prod(part) for part in (*((size,) for size in sizes), *_prefixes(sizes))}
    if role.replicas % spanned == 0:
        found.add(role.replicas // spanned)
    largest_first = sorted(found, reverse=True)
    return tuple(size for size in largest_first if size < role.replicas)[:PORTIONS]


def _prefixes(sizes: list[int]) -> list[list[int]]:
    return [sizes[:count] for count in range(1, len(sizes))]


def effort(role: Role) -> int:
    """How much work it is to place this job, in nodes; 0 where nothing is laid out."""
    return JOB + role.replicas if role.has_traffic and role.replicas > 1 else 0
