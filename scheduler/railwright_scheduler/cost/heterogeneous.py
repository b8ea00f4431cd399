"""The step time on heterogeneous machines: of several kinds, or slower than most of their kind.

Problem: the cost of a slow machine depends on its ranks. All replicas wait for the slowest one, but
a pipeline stage with less work than others has slack.

Idea: while micro-batches follow each other, the slowest stage decides the rate, and a stage is as
slow as its slowest rank. So the step is computed with each stage as the slowest one, with the work
of its slowest rank and the waits of its own groups; the longest of these steps counts. To fill and
drain the pipeline a micro-batch stays on each other stage as long as on the slowest of its ranks.
Only the last stage computes logits, and stages may have fewer layers (``shares``): that is their
slack. A group whose ranks are on several kinds of machines communicates as in
``collectives.joined``.

Cost: all is worked out once for each kind and relative speed of machine, not for each rank. On
machines that are all alike it is what ``step.predict`` says: the last stage decides, as it is taken
to have as many layers as any.

Not modelled: a stage with slack may hide its sends in it; a very slow stage hides the filling and
draining of others, which matters with few micro-batches (with four of them on four stages, one at
40 %, the predicted step is 19 % too long); and if the host is the bottleneck, slower devices hide
more communication, which makes such a step a little shorter here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from railwright_scheduler.arrays import Ints, Mask
from railwright_scheduler.budget import CALL, ELEMENT, SORTED, UNLIMITED, WorkBudget
from railwright_scheduler.communication import grid, parameters
from railwright_scheduler.communication.graph import Communicator
from railwright_scheduler.communication.grid import Axis
from railwright_scheduler.cost import collectives, step, work
from railwright_scheduler.cost.collectives import Group
from railwright_scheduler.cost.hardware import Machine
from railwright_scheduler.cost.step import CommunicationTime, StepTime
from railwright_scheduler.cost.work import Work
from railwright_scheduler.model.workload import Framework, Parallelism, Transformer, Workload

DECIDING = 8
"""Stages looked at, those with the most to do: any of them may decide how long a step takes."""

KIND, STAGE, JOINED = 150_000, 25_000, 15_000
"""Work for each kind and relative speed of machine, in the beginning; for each stage, and for each
group of unlike machines and each of these, whenever a step is predicted."""

_ANY = -1
"""The stage of a group that is in all of them."""


@dataclass(frozen=True, slots=True, eq=False)
class _Groups:
    """The different groups of a communicator by the node rank of each of their ranks, a row each,
    which are on so many ``nodes``, so many ranks ``per_node``; and the stage each is in."""

    ranks: Ints
    nodes: Ints
    per_node: Ints
    stage: Ints


@dataclass(frozen=True, slots=True)
class _Stage:
    """One that may decide, and what its slowest rank does."""

    stage: int
    own: Work


def predict(
    workload: Workload,
    machines: Sequence[Machine],
    stands: Sequence[int],
    communicators: tuple[Communicator, ...],
) -> StepTime:
    """The step with node rank ``r`` on ``machines[stands[r]]``, without link contention."""
    found = GangModel(workload, machines, communicators)
    return found.predicted(np.array(stands), step.NO_CONTENTION, ())


class GangModel:
    """A job on these unlike machines, each with as many devices as a node has ranks. It has the
    node ranks of each of its ``stages`` and what ``shares`` of layers these have; ``speed_ranks``
    numbers machines, beginning with the fastest."""

    def __init__(
        self,
        workload: Workload,
        machines: Sequence[Machine],
        communicators: tuple[Communicator, ...],
        budget: WorkBudget = UNLIMITED,
    ) -> None:
        groups = sum(each.grid.ranks // each.ranks for each in communicators)
        ranks = sum(each.grid.ranks for each in communicators)
        budget.spend(KIND * len(machines) + 10 * ELEMENT * len(machines) ** 2)
        budget.spend(4 * ELEMENT * ranks + 2 * SORTED * groups + 3 * CALL * workload.split.pipeline)
        self._budget = budget
        self._split, self._recipe = workload.split, workload.recipe
        self._machines, self._communicators = machines, communicators
        self._works = [work.of(*workload.parts, each) for each in machines]
        per_node = machines[0].devices
        self.stages = stages(workload, per_node)
        model, split, recipe = workload.parts
        self.shares = shares(model, split, recipe.framework)
        self.speed_ranks = _speed_ranks(self._works, machines)
        self._dominated = _dominated(self._works)
        self._in_node = _first([each.name for each in machines])
        self._across = _first([(each.name, each.network.bandwidth) for each in machines])
        self._groups = [_groups(each, per_node) for each in communicators]

    def predicted(
        self, stands: Ints, contention: Mapping[str, float], summed: Collection[str]
    ) -> StepTime:
        """The step with node rank ``r`` on machine ``stands[r]``; otherwise as
        ``step.predict``."""
        sent = [
            self._sent(at, stands, contention.get(each.name, 1.0), each.name in summed)
            for at, each in enumerate(self._communicators)
        ]
        self._budget.spend(STAGE * len(self.stages))
        by_stage = [*zip(*sent, strict=True)] or [()] * len(self.stages)
        held = [self._slowest(np.unique(stands[ranks])) for ranks in self.stages]
        self._budget.spend(STAGE * sum(map(len, held)))
        filling_s = [self._longest_s(*its) for its in zip(held, by_stage, strict=True)]
        optimizer_s = max(self._works[at].optimizer for at in np.unique(stands).tolist())
        steps = (
            step.taken(
                replace(each.own, optimizer=optimizer_s),
                self._split,
                self._recipe,
                by_stage[each.stage],
                filling_s=math.fsum(filling_s[: each.stage] + filling_s[each.stage + 1 :])
                / self._split.virtual,
                computes_output=each.stage == len(held) - 1,
            )
            for each in self._deciding(held)
        )
        return max(steps, key=lambda each: each.total)

    def _slowest(self, machines: Ints) -> tuple[int, ...]:
        """Those of them that none of the others is slower than in everything."""
        self._budget.spend(CALL + ELEMENT * len(machines) ** 2)
        dominated = self._dominated[np.ix_(machines, machines)].any(axis=1)
        return tuple(machines[~dominated].tolist())

    def _longest_s(self, machines: Iterable[int], sent: Sequence[CommunicationTime]) -> float:
        """How long a micro-batch is on the slowest rank of a stage."""
        works = (self._works[at] for at in machines)
        return max(step.micro_batch_s(its, self._split, self._recipe, sent) for its in works)

    def _deciding(self, held: Sequence[tuple[int, ...]]) -> list[_Stage]:
        """The stages with the most to do; of equal ones the last."""
        found: dict[tuple[object, ...], tuple[float, _Stage]] = {}
        for stage, (its, share) in enumerate(zip(held, self.shares, strict=True)):
            last = stage == len(held) - 1
            for machine in its:
                own = self._works[machine].on(share) if share < 1.0 else self._works[machine]
                busy_s = own.layers + (own.output if last else 0.0)
                found[machine, share, last, *its] = busy_s, _Stage(stage, own)
        ranked = sorted(found.values(), key=lambda each: (-each[0], -each[1].stage))
        return [each for _, each in ranked[:DECIDING]]

    def _sent(self, at: int, stands: Ints, times: float, adds: bool) -> list[CommunicationTime]:
        """What each stage waits for of one communicator: with each micro-batch for its own groups,
        in the end for all."""
        communicator = self._communicators[at]
        stood = [*self._stood(at, stands, times, adds)]
        if communicator.name not in step.MICRO_BATCHED:
            every = [group for _, group in stood]
            return [step.communication_time(communicator, every)] * len(self.stages)
        return [
            step.communication_time(
                communicator, [group for its, group in stood if its in (stage, _ANY)]
            )
            for stage in range(len(self.stages))
        ]

    def _stood(
        self, at: int, stands: Ints, times: float, adds: bool
    ) -> Iterator[tuple[int, Group]]:
        """The different groups of one communicator, each with its stage: inside nodes those of
        one kind are alike, and across them those whose adapters are."""
        groups = self._groups[at]
        cells = groups.ranks.size + len(groups.ranks) * len(self._machines)
        self._budget.spend(CALL + 4 * ELEMENT * cells + SORTED * len(groups.ranks))
        stand = stands[groups.ranks]
        alone = groups.nodes[:, np.newaxis] == 1
        stand = np.where(alone, self._in_node[stand], self._across[stand])
        member = np.zeros((len(groups.ranks), len(self._machines)), dtype=np.int64)
        member[np.arange(len(groups.ranks))[:, np.newaxis], stand] = 1
        rows = np.column_stack([groups.stage, groups.nodes, groups.per_node, member])
        distinct, _ = grid.distinct_rows(rows)
        self._budget.spend(len(distinct) * (JOINED + ELEMENT * len(self.stages)))
        self._budget.spend(JOINED * int(distinct[:, 3:].sum()))
        for stage, nodes, per_node, *there in sorted(map(tuple, distinct.tolist())):
            members = [
                (its.reducing() if adds else its).contended(times)
                for its, is_there in zip(self._machines, there, strict=True)
                if is_there
            ]
            machine = collectives.joined(members)
            yield stage, Group(machine, nodes, per_node)


def shares(model: Transformer, split: Parallelism, framework: Framework) -> tuple[float, ...]:
    """Of the layers of the stage that has the most those of each, where they are not shared evenly.

    The last stage is taken to have the most. DeepSpeed gives the first ones a layer more
    (deepspeed/runtime/utils.py, partition_uniform). Elsewhere the first and the last have fewer,
    for what else they do: the first one layer if two lack or more (as in Llama 3, Grattafiori et
    al., 2024, 3.3.2).
    """
    most = parameters.layers(model, split)
    lacking = split.pipeline * most - model.layers
    lacks = [0] * split.pipeline
    if framework is Framework.DEEPSPEED:
        lacks[split.pipeline - lacking :] = [1] * lacking
    elif lacking > 1:
        lacks[0] = 1
    lacks[-1] = 0
    return tuple(1.0 - each / most for each in lacks)


def stages(workload: Workload, per_node: int) -> tuple[Ints, ...]:
    """The node ranks of each stage of the pipeline."""
    ranks = grid.dense(workload.split, workload.recipe.framework)
    axes = (axis for axis, _ in ranks.axes if axis is not Axis.PIPELINE)
    return tuple(np.unique(row) for row in ranks.groups(*axes) // per_node)


def _groups(communicator: Communicator, per_node: int) -> _Groups:
    groups = communicator.grid.groups(*communicator.axes)
    stage = _stages_of(groups[:, 0], communicator)
    rows, _ = grid.distinct_rows(np.column_stack([stage, np.sort(groups // per_node, axis=1)]))
    shapes = collectives.shapes(rows[:, 1:])
    return _Groups(rows[:, 1:], shapes[:, 0], shapes[:, 1], rows[:, 0])


def _stages_of(ranks: Ints, communicator: Communicator) -> Ints:
    """The stage that each of these ranks is in, if groups are in one."""
    before = 1
    for axis, size in communicator.grid.axes:
        if axis is Axis.PIPELINE and axis not in communicator.axes:
            return ranks // before % size
        before *= size
    return np.full(len(ranks), _ANY)


def _first(keys: Sequence[object]) -> Ints:
    """For each the first that has the same key."""
    return np.array([keys.index(key) for key in keys])


def _dominated(works: Sequence[Work]) -> Mask:
    """Whether the machine of a column is slower than that of a row in everything; of equal ones the
    first is."""
    parts = np.array(
        [
            [its.products, its.attention, its.memory, its.backward, its.output, its.issued]
            for its in works
        ]
    )
    many = np.array([its.multiprocessors for its in works])
    slower = (parts[np.newaxis] >= parts[:, np.newaxis]).all(axis=2)
    slower &= many[np.newaxis] <= many[:, np.newaxis]
    return slower & (~slower.T | np.tri(len(works), k=-1, dtype=np.bool_))


def _speed_ranks(works: Sequence[Work], machines: Sequence[Machine]) -> Ints:
    """By what they compute, then by what they send."""
    layers_s = np.array([its.layers for its in works])
    sent = np.array([float(each.network.bandwidth) for each in machines])
    return np.argsort(np.lexsort((-sent, layers_s)))
