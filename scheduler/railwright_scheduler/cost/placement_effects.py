"""What the order of a gang's nodes does to a step: how crowded shared links are, whose sums
switches take over, and which machine each rank is on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from railwright_scheduler.arrays import Ints
from railwright_scheduler.budget import CALL, ELEMENT, UNLIMITED, WorkBudget
from railwright_scheduler.communication.graph import Communicator
from railwright_scheduler.communication.traffic_matrix import TrafficMatrix
from railwright_scheduler.cost import contention, step
from railwright_scheduler.cost.contention import Uplinks
from railwright_scheduler.cost.contention_refinement import WeightedTraffic
from railwright_scheduler.cost.hardware import Machine
from railwright_scheduler.cost.heterogeneous import GangModel
from railwright_scheduler.cost.in_network_reduction import NetworkReduction
from railwright_scheduler.cost.step import StepTime
from railwright_scheduler.model.workload import Workload

PREDICTED, SENT = 200_000, 10_000
"""Work for a step on machines of one kind, and for each kind of operation in it."""


@dataclass(frozen=True, slots=True, eq=False)
class PlacementEffects:
    """How many times longer communicators take for links that are shared, of which the switches
    add up what crosses them, and the machine of each node rank."""

    contention: Mapping[str, float]
    summed: frozenset[str]
    stands: Ints


class StepPredictor:
    """The step time on these heterogeneous machines, of which node ``n`` is number ``stands[n]``;
    ``between`` has the traffic between the nodes of each communicator. There is no prediction
    without machines."""

    def __init__(
        self,
        workload: Workload,
        communicators: tuple[Communicator, ...],
        machines: Sequence[Machine],
        stands: Ints,
        *,
        between: Mapping[str, TrafficMatrix],
        sums: NetworkReduction,
        work: WorkBudget = UNLIMITED,
    ) -> None:
        ranks = sum(each.grid.ranks for each in communicators)
        work.spend(CALL + 4 * ELEMENT * ranks)
        self._work, self._operations = work, sum(len(each.traffic) for each in communicators)
        self.machines, self.stands = tuple(machines), stands
        self._workload, self._communicators = workload, communicators
        self._between, self._sums = between, sums
        self.gang = (
            GangModel(workload, machines, communicators, work) if len(machines) > 1 else None
        )

    def effects(self, order: Ints, tiers: tuple[Uplinks, ...]) -> PlacementEffects:
        """With ``order[r]`` the node of node rank ``r``, below these uplinks."""
        pairs = sum(len(its.weight) for its in self._between.values())
        calls = len(self._between) * (1 + len(tiers))
        self._work.spend(3 * CALL * calls + ELEMENT * pairs * (1 + len(tiers)))
        there = tuple(tier.of(order) for tier in tiers)
        times = {name: contention.contention(its, there) for name, its in self._between.items()}
        return PlacementEffects(times, self._sums.by_switches(order), self.stands[order])

    def taken_s(self, effects: PlacementEffects) -> float:
        """Seconds of a step; 0 if nothing is predicted."""
        return self.step_time(effects).total

    def step_time(self, effects: PlacementEffects) -> StepTime:
        """The step by its parts; without any if nothing is predicted."""
        if not self.machines:
            return StepTime(())
        if self.gang:
            return self.gang.predicted(effects.stands, effects.contention, effects.summed)
        self._work.spend(PREDICTED + SENT * self._operations)
        return step.predict(
            *self._workload.parts,
            self.machines[0],
            effects.contention,
            effects.summed,
            communicators=self._communicators,
        )

    def sent(self, effects: PlacementEffects) -> Iterator[tuple[str, WeightedTraffic]]:
        """What each communicator's crowd costs a step: as it is, or if it were twice as large, as
        what is hidden now may be waited for then."""
        step_s = self.taken_s(effects)
        for name, its in self._between.items():
            if len(its.weight):
                times = effects.contention[name]
                others = (
                    replace(effects, contention={**effects.contention, name: other})
                    for other in (1.0, 2.0 * times)
                )
                less_s, more_s = (self.taken_s(each) for each in others)
                now_s = (step_s - less_s) / (times - 1.0) if times > 1.0 else 0.0
                yield name, WeightedTraffic(its, max(now_s, (more_s - step_s) / times))
