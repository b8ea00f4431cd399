"""Choose the nodes of a gang with a workload, and the ranks on each.

Problem: choose nodes and the order of ranks on them so that a training step takes the least time.

Idea: the parallelism of a job determines its traffic, and links further out have less bandwidth. So
ranks are mapped to send few bytes far away (``mapping``), weighted by their effect on the step. The
best mappings and the network's order are refined by exchanges of nodes where a step waits for
contended links or slow nodes. The order with the least predicted step time is taken; among equal
ones the one that sends the least far away. The nodes are those in the fewest domains, or, if it
pays, an even share of each domain, or complete rings and planes of the rank grid.

Ranks that were placed before stay unless it pays to move them. A replacement node takes the ranks
of the lost one, or swaps with a remaining one. If all ranks are mapped again, equal racks are
swapped so that the most ranks stay in place.

Ranks of one node stay together and in order: scripts may rely on consecutive local ranks, and only
the node rank changes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from railwright_scheduler.budget import CHOSEN, OverBudgetError, WorkBudget
from railwright_scheduler.cluster import Cluster, Ints
from railwright_scheduler.communication import grid as grids
from railwright_scheduler.communication import measured, traffic_matrix
from railwright_scheduler.mapping import mapper
from railwright_scheduler.mapping.evaluation import WORTH, EvaluatedOrder, OrderEvaluator
from railwright_scheduler.mapping.minimal_movement import minimize_movement
from railwright_scheduler.mapping.request import MappingRequest, Uses, build_request
from railwright_scheduler.model.placement_score import (
    CrossDomainBytes,
    PlacementScore,
    PredictedStep,
)
from railwright_scheduler.model.snapshot import Role
from railwright_scheduler.model.workload import Workload
from railwright_scheduler.remembered import Key, remembered

KEPT_BYTES_MAX = 32 << 20
"""Cached results: a gang that waits for others to be bound is mapped again in every cycle."""

CHOICE = 2_000
"""Work for another choice of nodes, for each node of the cluster."""

CHOSEN_NODES = 1_024
"""Larger gangs get the nodes in the fewest domains: other choices would take seconds to
evaluate."""

BUDGET_A_NODE, BUDGET_A_PAIR = 500, 8
"""Pairs current for each node of a gang, about a millisecond's worth, and for each two of a small
one."""

JOB = 64
"""What it takes to place a job beside its nodes, in nodes."""

PORTIONS = 3
"""Other choices looked at."""

RELIEVED, RELIEVED_NODES = 2, 1_024
"""Of the orders looked at, so many are made better where links are crowded, of so many nodes in
all: on larger gangs the few exchanges that there is time for would make no difference."""

ROUNDED = 1e-9
"""Sums of the same distances in another order differ by less."""


@dataclass(frozen=True, slots=True, eq=False)
class RankedNodes:
    """``nodes`` (columns) are in the order of ranks; it has no ``score`` beside the network's
    where it is not known what the job does."""

    nodes: Ints
    score: PlacementScore | None = None


def placed(
    role: Role, cluster: Cluster, choices: Iterable[Ints], *, uses: Uses = ()
) -> RankedNodes:
    """One of these ``choices`` of nodes (columns, ascending), the first of which spans the fewest
    domains; another must be worth it. ``uses`` is what others make of the uplinks meanwhile. It is
    the first in the network's order if finding a better one would be too much work."""
    first, *others = choices
    if role.workload is None or not _held(role.workload, cluster, first).has_traffic:
        return RankedNodes(first)
    work = WorkBudget()
    try:
        best = _best(role, cluster, first, others, uses=uses, work=work) if others else first
        return _ordered(role, cluster, best, uses=uses, work=work)
    except OverBudgetError:
        other_devices = _other_devices(role.workload, cluster, first)
        return RankedNodes(first, PlacementScore((), other_devices=other_devices, over_budget=True))


def _best(
    role: Role, cluster: Cluster, best: Ints, others: list[Ints], *, uses: Uses, work: WorkBudget
) -> Ints:
    """The choice of nodes that is worth it, of as many as there is work for."""
    assert role.workload is not None
    # What was recorded of some devices and what is derived for others do not compare.
    together = np.unique(np.concatenate([best, *others]))
    comparable = replace(role, workload=_held(role.workload, cluster, together))
    with work.search(CHOSEN):
        work.spend(CHOICE * len(others) * len(cluster.nodes))
        found = _map_request(work, build_request(comparable, cluster, best, budget=0, uses=uses))
        for nodes in others:
            its = _map_request(work, build_request(comparable, cluster, nodes, budget=0, uses=uses))
            as_near = cluster.domains.spans(nodes) == cluster.domains.spans(best)
            if its.is_shorter_than(found) or (as_near and its.sends_less_than(found)):
                best, found = nodes, its
    return best


def _ordered(
    role: Role, cluster: Cluster, nodes: Ints, *, uses: Uses, work: WorkBudget
) -> RankedNodes:
    """These nodes with the ranks on them that make a step short."""
    assert role.workload is not None
    budget = min(mapper.BUDGET, BUDGET_A_NODE * len(nodes), BUDGET_A_PAIR * len(nodes) ** 2)
    asked = build_request(role, cluster, nodes, budget=budget, uses=uses)
    found = _map_request(work, asked)
    crossing = zip(cluster.levels, found.crossing[::-1], strict=True)
    crossings = tuple(CrossDomainBytes(level, *sizes) for level, sizes in crossing)
    order = np.array(found.order)
    moved = int(np.count_nonzero(order != np.array(asked.before or found.order)))
    is_measured = asked.workload.profile is not None
    other_devices = _other_devices(role.workload, cluster, nodes)
    is_cut = found.is_cut or work.is_cut
    score = PlacementScore(crossings, found.predicted, moved, is_measured, other_devices, is_cut)
    return RankedNodes(nodes[order], score)


def _held(workload: Workload, cluster: Cluster, nodes: Ints) -> Workload:
    return measured.held(workload, cluster.devices(nodes))


def _other_devices(workload: Workload, cluster: Cluster, nodes: Ints) -> tuple[str, ...]:
    """Those of these nodes' that the job's profile was not taken on."""
    return workload.profile.lacks(cluster.devices(nodes)) if workload.profile is not None else ()


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


@dataclass(frozen=True, slots=True)
class MappingResult:
    """``crossing`` has each tier, the nearest first: as placed, and in the network's order."""

    order: tuple[int, ...]
    crossing: tuple[tuple[int, int], ...]
    distance: float
    predicted: PredictedStep | None
    is_cut: bool

    @property
    def step_us(self) -> int:
        """0 where nothing can be predicted."""
        return self.predicted.placed_us if self.predicted else 0

    def is_shorter_than(self, other: MappingResult) -> bool:
        """Whether a step is, by so much that it is worth to span more domains."""
        return 0 < self.step_us < WORTH * other.step_us

    def sends_less_than(self, other: MappingResult) -> bool:
        """Whether it sends less far away, and no step is longer for it by so much."""
        return self.distance < other.distance and not other.is_shorter_than(self)


def _key(request: MappingRequest) -> Key:
    return request.key


@remembered(KEPT_BYTES_MAX, _key)
def _map_request(work: WorkBudget, request: MappingRequest) -> MappingResult:
    gang = OrderEvaluator(request, work)
    orders = gang.candidates()
    network = gang.evaluate(next(orders))
    candidates, refined, placed = [network], list[EvaluatedOrder](), list[EvaluatedOrder]()
    with work.search():
        candidates += map(gang.evaluate, _others(orders, network.order))
        candidates.sort(key=lambda each: each.rank)
        most = min(RELIEVED, RELIEVED_NODES // request.nodes)
        refined += (gang.refined(each) for each in candidates[:most])
        placed += gang.place_stragglers([*refined, *candidates][: max(1, most)])
    best, *rest = sorted([*placed, *refined, *candidates], key=lambda each: each.rank)
    if request.before and request.segment == 1:
        with work.search():
            for stayed in gang.stayed(request.before):
                if stayed.is_worth_keeping(best):
                    best, rest = stayed, [best, *rest]
                    break
            best = _resembling(gang, request, best)
    crossing = tuple(zip(gang.crossing(best), gang.crossing(network), strict=True))
    predicted = None
    if gang.machines:
        next_best = rest[0] if rest else best
        machines = tuple(each.name for each in gang.machines)
        steps_us = best.step_us, network.step_us, next_best.step_us
        predicted = PredictedStep(machines, *steps_us, gang.others_us(best), gang.slow_us(best))
    nodes = tuple(best.order.tolist())
    return MappingResult(nodes, crossing, best.distance, predicted, work.is_cut)


def _others(orders: Iterable[Ints], first: Ints) -> Iterator[Ints]:
    """Each that is neither this one nor one of those before."""
    found = {first.tobytes()}
    for order in orders:
        if order.tobytes() not in found:
            found.add(order.tobytes())
            yield order


def _resembling(
    gang: OrderEvaluator, request: MappingRequest, current: EvaluatedOrder
) -> EvaluatedOrder:
    """The same, with equal domains and their nodes changing places so that the most ranks stay."""
    if not request.tiers:
        return current
    nearest = request.tiers[0]
    _, first = np.unique(nearest.domains, return_index=True)
    around = ([tier.domains[at] for tier in request.tiers[1:]] for at in first.tolist())
    sizes = np.bincount(nearest.domains).tolist()
    descriptions = zip(sizes, nearest.capacity, nearest.left, nearest.reduces, around, strict=True)
    kinds = [(*its, *outer) for *its, outer in descriptions]
    domains, before = np.array(nearest.domains), np.array(request.before)
    found = gang.evaluate(minimize_movement(current.order, before, domains, kinds))
    as_near = found.distance <= current.distance * (1.0 + ROUNDED)
    return found if as_near and found.step_us <= current.step_us else current
