"""Map the ranks of a gang: which of several sets of nodes it takes, and the node of each rank.

Problem: choose nodes and the order of ranks on them so that a training step takes the least time.

Idea: the parallelism of a job determines its traffic, and links further out have less bandwidth. So
ranks are mapped to send few bytes far away (``mapper``), weighted by their effect on the step. The
best mappings and the network's order are refined by exchanges of nodes where a step waits for
contended links or slow nodes. The order with the least predicted step time is taken; among equal
ones the one that sends the least far away. The nodes are those in the fewest domains, or, if it
pays, an even share of each domain, or complete rings and planes of the rank grid.

Ranks that were placed before stay unless it pays to move them. A replacement node takes the ranks
of the lost one, or swaps with a remaining one. If all ranks are mapped again, equal racks are
swapped so that the most ranks stay in place.

Ranks of one node stay together and in order: scripts may rely on consecutive local ranks, and only
the node rank changes.

The request has all that the result depends on, so it can be computed anywhere; a gang can start
without a result, in the network's order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.ma  # numpy loads it in the first mapping, when the mapper opens no file

from railwright_scheduler.budget import CHOSEN, OverBudgetError, WorkBudget
from railwright_scheduler.mapping import evaluation
from railwright_scheduler.mapping.evaluation import BYTES_MAX, WORTH, EvaluatedOrder, OrderEvaluator
from railwright_scheduler.mapping.minimal_movement import minimize_movement
from railwright_scheduler.mapping.request import OrderRequest
from railwright_scheduler.model.placement_score import PredictedStep
from railwright_scheduler.remembered import Key, remembered

KEPT_BYTES_MAX = 32 << 20
"""Cached results: choices are compared again when others of them change, and what computes mappings
at once maps a gang that waits in each cycle."""

CHOICE = 2_000
"""Work for another choice of nodes, for each node of the cluster."""

RELIEVED, RELIEVED_NODES = 2, 1_024
"""Of the orders looked at, so many are made better where links are crowded, of so many nodes in
all: on larger gangs the few exchanges that there is time for would make no difference."""

ROUNDED = 1e-9
"""Sums of the same distances in another order differ by less."""


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """Nodes that the gang can have, which span so many domains of each level, the coarsest first.
    ``compared`` is for the comparison with other choices, ``mapped`` for the order of ranks."""

    spans: tuple[int, ...]
    compared: OrderRequest
    mapped: OrderRequest


@dataclass(frozen=True, slots=True)
class MappingRequest:
    """A gang, and the ``choices`` of nodes that it has in a cluster of so many nodes. The first
    spans the fewest domains; another must be worth it."""

    choices: tuple[NodeChoice, ...]
    cluster_nodes: int


@dataclass(frozen=True, slots=True)
class MappingResult:
    """The number of the choice to take, and the order of ranks on it. If the search ``is_cut``,
    more work could have found a better one."""

    choice: int
    order: OrderResult
    is_cut: bool


@dataclass(frozen=True, slots=True)
class OrderResult:
    """The best order that was found on these nodes. ``crossing`` has each tier, the nearest first:
    as placed, and in the network's order."""

    order: tuple[int, ...]
    crossing: tuple[tuple[int, int], ...]
    distance: float
    predicted: PredictedStep | None
    is_cut: bool

    @property
    def step_us(self) -> int:
        """0 where nothing can be predicted."""
        return self.predicted.placed_us if self.predicted else 0

    def is_shorter_than(self, other: OrderResult) -> bool:
        """Whether a step is, by so much that it is worth to span more domains."""
        return 0 < self.step_us < WORTH * other.step_us

    def sends_less_than(self, other: OrderResult) -> bool:
        """Whether it sends less far away, and no step is longer for it by so much."""
        return self.distance < other.distance and not other.is_shorter_than(self)


def fits(request: MappingRequest, result: MappingResult) -> bool:
    """Whether a gang can start with it, wherever it was computed: an order has all nodes of a
    choice once and keeps its segments together, and no number is out of range. Whatever the order,
    the nodes of a choice satisfy all other constraints."""
    if not 0 <= result.choice < len(request.choices):
        return False
    mapped, found = request.choices[result.choice].mapped, result.order
    if len(found.crossing) != len(mapped.tiers):
        return False
    numbers = [each for tier in found.crossing for each in tier]
    numbers += found.predicted.times_us if found.predicted else ()
    machines = tuple(each.name for each in mapped.even.machines)
    return (
        sorted(found.order) == list(range(mapped.nodes))
        and _segments(mapped, found.order) == _segments(mapped, range(mapped.nodes))
        and (found.predicted.machines if found.predicted else None) == (machines or None)
        and all(0 <= each <= BYTES_MAX for each in numbers)
        and 0 <= found.distance < math.inf
    )


def _segments(request: OrderRequest, order: Sequence[int]) -> Counter[tuple[int, ...]]:
    """The domains of each of the largest segments, node by node. Smaller segments are parts of
    these, and the domains of further tiers follow from the nearest."""
    nearest = [request.tiers[0].domains[node] for node in order] if request.tiers else []
    starts = range(0, len(nearest), request.segment)
    return Counter(tuple(nearest[first : first + request.segment]) for first in starts)


def map_ranks(request: MappingRequest) -> MappingResult | None:
    """The nodes and the order on which a step takes the least time; None if finding any order is
    too much work."""
    work = WorkBudget()
    try:
        choice = _best_choice(request, work) if len(request.choices) > 1 else 0
        order = _best_order(work, request.choices[choice].mapped)
    except OverBudgetError:
        return None
    return MappingResult(choice, order, order.is_cut or work.is_cut)


def _best_choice(request: MappingRequest, work: WorkBudget) -> int:
    """The choice of nodes that is worth it, of as many as there is work for."""
    first, *others = request.choices
    best, spans = 0, first.spans
    with work.search(CHOSEN):
        work.spend(CHOICE * len(others) * request.cluster_nodes)
        found = _best_order(work, first.compared)
        for number, choice in enumerate(others, 1):
            its = _best_order(work, choice.compared)
            as_near = choice.spans == spans
            if its.is_shorter_than(found) or (as_near and its.sends_less_than(found)):
                best, spans, found = number, choice.spans, its
    return best


def _key(request: OrderRequest) -> Key:
    return request.key


@remembered(KEPT_BYTES_MAX, _key)
def _best_order(work: WorkBudget, request: OrderRequest) -> OrderResult:
    gang = OrderEvaluator(request, work)
    orders = gang.candidates()
    network = gang.evaluate(next(orders))
    candidates, refined, placed = [network], list[EvaluatedOrder](), list[EvaluatedOrder]()
    with work.search():
        candidates += map(gang.evaluate, evaluation.distinct(orders, network.order))
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
        parts_us = gang.others_us(best), gang.slow_us(best), gang.exposed_us(best)
        predicted = PredictedStep(machines, *steps_us, *parts_us)
    nodes = tuple(best.order.tolist())
    return OrderResult(nodes, crossing, best.distance, predicted, work.is_cut)


def _resembling(
    gang: OrderEvaluator, request: OrderRequest, current: EvaluatedOrder
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
