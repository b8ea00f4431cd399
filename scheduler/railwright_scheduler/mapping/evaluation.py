"""Evaluate orders of one gang's nodes: candidates, and what a training step takes in each.

What ranks send each other follows from how the job is split, and links are the scarcer the further
out they are. So ranks are laid out to send little far away (``mapper``), by bytes and by what these
are worth to a step. An order is evaluated by the predicted step, and improved where links are
contended that this step waits for (``cost.contention_refinement``), and where nodes are slow
(``cost.stragglers``).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from railwright_scheduler.arrays import Ints
from railwright_scheduler.budget import CALL, ELEMENT, SORTED, UNLIMITED, WorkBudget
from railwright_scheduler.communication import grid as grids
from railwright_scheduler.communication import measured, traffic_matrix
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.cost import contention, contention_refinement, stragglers
from railwright_scheduler.cost.contention import Uplinks, UplinkUse
from railwright_scheduler.cost.hardware import MACHINES
from railwright_scheduler.cost.heterogeneous import GangModel
from railwright_scheduler.cost.in_network_reduction import NetworkReduction
from railwright_scheduler.cost.placement_effects import PlacementEffects, StepPredictor
from railwright_scheduler.cost.stragglers import StragglerPlacement
from railwright_scheduler.mapping import mapper
from railwright_scheduler.mapping.problem import Places, cost
from railwright_scheduler.mapping.request import OrderRequest

TABLE_MAX = 1 << 20
"""Ranks times those that one of them exchanges with at most: beyond it nothing is laid out."""

BYTES_MAX = 1 << 53
"""The largest reported number: every JSON reader can represent it."""

WORTH = 0.99
"""A step must be so much shorter for a gang to span more domains than it has to, or for ranks to
move that could stay."""

LAID_TWICE = 256
"""Larger gangs are laid out by what exchanges are worth only where some are worth nothing."""

CAME = 64
"""Of more nodes that came the ranks that others lost do not change places one by one."""

RELIEFS = 2
"""Often relieved again: what a step waits for may be another communicator then."""

EASED, EASED_NODES, KIND_NODES = 128, 16_384, 16
"""Orders evaluated for where slow nodes are, of so many nodes in all: about a tenth of a second's
worth. Each kind and relative speed of machine is as much work as sixteen nodes."""

KIND, SEATED = 50_000, 2_000
"""Work for each kind and relative speed of machine, and for each stage of each node."""

BRIEFLY = 4
"""The share of evaluations when only the nodes are to be chosen: one in this number."""


@dataclass(frozen=True, slots=True, eq=False)
class EvaluatedOrder:
    """``order[r]`` is the node of node rank r; ``step_us`` is 0 where nothing can be predicted."""

    order: Ints
    step_us: int
    distance: float

    @property
    def rank(self) -> tuple[int, float]:
        """The less the better."""
        return self.step_us, self.distance

    def is_worth_keeping(self, best: EvaluatedOrder) -> bool:
        """Whether ranks need not move for this one."""
        if self.step_us:
            return WORTH * self.step_us <= best.step_us
        return WORTH * self.distance <= best.distance


class OrderEvaluator:
    """Orders of one gang's nodes at ``places``, with the traffic ``sent`` in a step. All methods
    may raise OverBudgetError."""

    def __init__(self, request: OrderRequest, work: WorkBudget = UNLIMITED) -> None:
        self._work = work
        work.spend(CALL * (1 + len(request.tiers)) + KIND * len(request.kinds))
        work.spend(2 * ELEMENT * request.nodes * (1 + len(request.tiers)))
        self._workload, self._segment = request.workload, request.segment
        self._budget = request.budget
        work.spend(measured.work(self._workload))
        communicators = measured.communicators(self._workload)
        work.spend(2 * ELEMENT * sum(each.grid.ranks for each in communicators))
        per_node = request.ranks_per_node
        self._exchanges = {
            each.name: traffic_matrix.between_nodes(each, per_node, work) for each in communicators
        }
        # With equal traffic to all, the place does not matter.
        self._uneven = tuple(
            each.name for each in communicators if not traffic_matrix.is_even(each, per_node)
        )
        grid = grids.dense(self._workload.split, self._workload.recipe.framework)
        self._shape = traffic_matrix.shape(grid, per_node)
        self._per_node, count = per_node, request.nodes
        self._tiers = tuple(
            Uplinks(np.array(each.domains), np.array(each.left), each.oversubscription)
            for each in request.tiers
        )
        self._unshared = tuple(
            replace(tier, capacity=np.array(each.capacity))
            for tier, each in zip(self._tiers, request.tiers, strict=True)
        )
        self.sent = self._together(self._exchanges)
        self.places = _places(self._tiers, count)
        reducing = [(np.array(each.domains), np.array(each.reduces)) for each in request.tiers]
        sums = NetworkReduction(communicators, per_node, reducing, work)

        def steps(its: OrderRequest) -> StepPredictor:
            stands = np.array(its.stands or [0] * count)
            return StepPredictor(
                self._workload,
                communicators,
                its.machines,
                stands,
                between=self._exchanges,
                sums=sums,
                work=work,
            )

        self._steps = steps(request)
        self._even = steps(request.even) if request.even != request else self._steps
        self.machines = self._even.machines

    def candidates(self) -> Iterator[Ints]:
        """The network's own order, and those that send the least far away: of all bytes, and of
        what they are worth to a step."""
        count = self.sent.ranks
        yield np.arange(count)
        if count == self._segment or all(tier.domains.max() == 0 for tier in self._tiers):
            return
        yield from self._mapped(self._together(self._uneven))
        if self.machines:
            line = np.arange(count)
            sent = dict(self._steps.sent(self._effects(line)))
            uneven = [each for name, each in sent.items() if name in self._uneven]
            worth = [each.in_seconds for each in uneven if each.worth_s > 0.0]
            if count <= LAID_TWICE or len(worth) < len(uneven):
                yield from self._mapped(traffic_matrix.together(worth, self._shape, self._work))

    def _mapped(self, exchanged: TrafficMatrix) -> Iterator[Ints]:
        """The order that sends the least of this traffic far away, if there are levels and the
        budget is enough. Segments are mapped as units."""
        if not len(exchanged.weight) or exchanged.table > TABLE_MAX:
            return
        places, ranks = self.places, np.arange(exchanged.ranks)
        if self._segment > 1:
            self._work.spend(CALL + 2 * SORTED * len(exchanged.weight))
            shape = (len(ranks) // self._segment,)
            exchanged = exchanged.merged(ranks // self._segment, shape)
            places = places.only(ranks[:: self._segment])
        where = mapper.assign(exchanged, places, budget=self._budget, work=self._work)
        yield (where[:, np.newaxis] * self._segment + ranks[: self._segment]).ravel()

    def evaluate(self, order: Ints) -> EvaluatedOrder:
        """Predict the step in this order."""
        self._work.spend(CALL + ELEMENT * len(self.sent.weight) * (1 + len(self._tiers)))
        step_s = self._steps.taken_s(self._effects(order))
        return EvaluatedOrder(order, round(step_s * 1e6), cost(self.sent, self.places, order))

    def others_us(self, current: EvaluatedOrder) -> int:
        """How much of the step goes to what other jobs send over the same links."""
        step_s = self._steps.taken_s(self._effects(current.order, self._unshared))
        return current.step_us - round(step_s * 1e6)

    def exposed_us(self, current: EvaluatedOrder) -> int:
        """How much of the step is exposed communication."""
        return round(self._steps.step_time(self._effects(current.order)).exposed * 1e6)

    def slow_us(self, current: EvaluatedOrder) -> int:
        """How much of the step goes to nodes that are slower than most of their kind."""
        step_s = self._even.taken_s(self._even.effects(current.order, self._tiers))
        return max(0, current.step_us - round(step_s * 1e6))

    def uses(self, order: Ints) -> Iterator[list[UplinkUse]]:
        """The gang's traffic over the uplinks of each of its domains, the nearest tier first,
        without other jobs, which is the most it can send. Half of the traffic across a border goes
        out."""
        step_s = self._steps.taken_s(self._effects(order, self._unshared))
        if not self.machines:
            return
        slowest = min(self.machines, key=lambda each: each.network.bandwidth)
        devices = MACHINES[slowest.name].devices
        node_bytes = 2.0 * step_s * devices * slowest.network.bandwidth
        self._work.spend(len(self._unshared) * (4 * CALL + 2 * ELEMENT * len(self.sent.weight)))
        for tier in self._unshared:
            below = np.bincount(tier.domains) * (self._per_node / devices)
            uses = contention.uplinks(self.sent, tier.of(order)) / node_bytes
            yield [*map(UplinkUse, np.minimum(uses, below).tolist(), below.tolist())]

    def refined(self, current: EvaluatedOrder) -> EvaluatedOrder:
        """The same or a better one, with nodes exchanged to relieve what a step waits for."""
        found = current
        if not self._is_refined:
            return found
        for _ in range(RELIEFS):
            effects = self._effects(found.order)
            if max(effects.contention.values(), default=1.0) == 1.0:
                break
            sent = [each for _, each in self._steps.sent(effects)]
            better = self.evaluate(
                contention_refinement.refine(sent, self._tiers, found.order, self._work)
            )
            if better.rank >= found.rank:
                break
            found = better
        return found

    def stayed(self, before: tuple[int, ...]) -> Iterator[EvaluatedOrder]:
        """Every rank where it was, and the others on the nodes that came, in the network's order;
        then with these, or if none came any two, changing places where a step waits for crowded
        uplinks."""
        order = np.array(before)
        came = np.flatnonzero(order < 0)
        order[came] = np.setdiff1d(np.arange(len(order)), order)
        stays = self.evaluate(order)
        yield stays
        if not len(came):
            yield self.refined(stays)
        elif self._is_refined and len(came) <= CAME:
            sent = [each for _, each in self._steps.sent(self._effects(order))]
            yield self.evaluate(
                contention_refinement.place_ranks(sent, self._tiers, order, came, self._work)
            )
        yield from self.place_stragglers([stays])

    def place_stragglers(self, current: Iterable[EvaluatedOrder]) -> Iterator[EvaluatedOrder]:
        """Those of them that are better with slow nodes exchanged to where they are waited for the
        least."""
        if gang := self._steps.gang:
            for each in current:
                better = min(
                    self._straggler_orders(gang, each), key=lambda its: its.rank, default=each
                )
                if better.rank < each.rank:
                    yield better

    def _straggler_orders(
        self, gang: GangModel, current: EvaluatedOrder
    ) -> Iterator[EvaluatedOrder]:
        """Others: all that there are of few nodes."""
        stands, domains = self._steps.stands, self.places.domains
        stood = sum(map(len, gang.stages))
        self._work.spend(CALL + SORTED * domains.size + SEATED * (len(stands) + stood))
        if self._budget and self._segment == 1:
            _, classes = np.unique(np.vstack([stands, domains]), axis=1, return_inverse=True)
            every = [*stragglers.arrangements(current.order, classes.ravel())]
            yield from map(self.evaluate, every)
            if every:
                return
        work = len(stands) + KIND_NODES * len(gang.speed_ranks)
        left = min(EASED, EASED_NODES // work) // (1 if self._budget else BRIEFLY)
        slow, within = gang.speed_ranks[stands], self._segment > 1
        placement = StragglerPlacement(gang, slow, domains, within=within, work=self._work)
        for tried in (placement.orders, placement.exchanges):
            orders = itertools.islice(tried(current.order), left)
            different = [*distinct(orders, current.order)]
            left -= len(different)
            for order in different:
                found = self.evaluate(order)
                current = min(current, found, key=lambda its: its.rank)
                yield found

    @property
    def _is_refined(self) -> bool:
        """Whether it is looked at which links are crowded."""
        if not self.machines or self._segment > 1 or not self._budget:
            return False
        return all(each.table <= TABLE_MAX for each in self._exchanges.values())

    def crossing(self, current: EvaluatedOrder) -> list[int]:
        """Bytes that cross the borders of each tier, the nearest first."""
        return [
            min(BYTES_MAX, round(contention.crossing(self.sent, tier.domains[current.order])))
            for tier in self._tiers
        ]

    def _together(self, names: Iterable[str]) -> TrafficMatrix:
        parts = (self._exchanges[name] for name in names)
        return traffic_matrix.together(parts, self._shape, self._work)

    def _effects(self, order: Ints, uplinks: tuple[Uplinks, ...] | None = None) -> PlacementEffects:
        return self._steps.effects(order, uplinks or self._tiers)


def distinct(orders: Iterable[Ints], first: Ints) -> Iterator[Ints]:
    """Each that is neither this one nor one of those before."""
    found = {first.tobytes()}
    for order in orders:
        if order.tobytes() not in found:
            found.add(order.tobytes())
            yield order


def _places(tiers: tuple[Uplinks, ...], count: int) -> Places:
    """Further out by a switch more each time, and by as much as fewer can leave."""
    distance = [1.0]
    for further, tier in enumerate(tiers, 2):
        distance.append(max(distance[-1], further * tier.oversubscription))
    domains = np.array([tier.domains for tier in tiers], dtype=np.int64)
    return Places(domains.reshape(len(tiers), count), tuple(distance))
