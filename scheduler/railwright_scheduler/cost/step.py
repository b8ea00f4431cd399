"""How long a training step takes, and what of.

Every stage of the pipeline does its layers' kernels for each micro-batch; the slowest stage decides
how fast micro-batches follow each other, and filling and draining the pipeline is idle time, less
with interleaved stages (Narayanan et al., 2021). Of what a communicator takes, only as much counts
as nothing else goes on beside; of its groups the slowest decides.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from railwright_scheduler.communication import derive
from railwright_scheduler.communication.graph import Collective, Communicator, Overlap, Transfer
from railwright_scheduler.cost import collectives, work
from railwright_scheduler.cost.collectives import Group
from railwright_scheduler.cost.hardware import COLLECTIVE_BLOCKS, LAUNCH_S, Machine
from railwright_scheduler.cost.work import Work
from railwright_scheduler.model.workload import Parallelism, Recipe, Sharding, Transformer, Workload

NO_CONTENTION: Mapping[str, float] = MappingProxyType({})

MICRO_BATCHED = ("tensor", "context", "expert", "pipeline")
"""Communicators that each micro-batch waits for."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step by what they are spent on, the largest first; together they are all.
    ``exposed`` of them go to communication."""

    parts: tuple[tuple[str, float], ...]
    exposed: float = 0.0

    @property
    def total(self) -> float:
        """Seconds of the whole step."""
        return sum(seconds for _, seconds in self.parts)


@dataclass(frozen=True, slots=True)
class CommunicationTime:
    """How long a communicator takes for what it sends beside each thing that goes on meanwhile; of
    its groups, of so many ``ranks``, the slowest decides."""

    name: str
    ranks: int
    took_s: Mapping[Overlap, float]


def predict(
    model: Transformer,
    split: Parallelism,
    recipe: Recipe,
    machine: Machine,
    contention: Mapping[str, float] = NO_CONTENTION,
    summed: Collection[str] = (),
    *,
    communicators: tuple[Communicator, ...] | None = None,
) -> StepTime:
    """The step on machines of one kind, which ranks fill one after the other.

    ``communicators`` are the measured ones; without them they are derived. ``contention`` is the
    factor by which the traffic of a communicator between machines takes longer on shared links than
    on its adapters. For those in ``summed`` the switches reduce.
    """
    if communicators is None:
        communicators = derive.communicators(model, split, recipe)
    sent = []
    for each in communicators:
        its = machine.reducing() if each.name in summed else machine
        its = its.contended(contention.get(each.name, 1.0))
        sent.append(communication_time(each, collectives.groups(each, its)))
    return taken(work.of(model, split, recipe, machine), split, recipe, sent)


def communication_time(communicator: Communicator, groups: Sequence[Group]) -> CommunicationTime:
    """Seconds of a communicator that has these groups."""
    took_s = {}
    for overlap in Overlap:
        traffic = [each for each in communicator.traffic if each.overlap is overlap]
        took_s[overlap] = max(sum(_took_s(each, its) for each in traffic) for its in groups)
    return CommunicationTime(communicator.name, communicator.ranks, took_s)


def taken(
    own: Work,
    split: Parallelism,
    recipe: Recipe,
    sent: Iterable[CommunicationTime],
    *,
    filling_s: float | None = None,
    computes_output: bool = True,
) -> StepTime:
    """The step for which a stage decides how fast micro-batches follow each other that does
    ``own`` work, and ``computes_output`` or not; the others take ``filling_s`` until all are
    busy and until all have ended, or as long as this one."""
    micro_batches = recipe.micro_batches(split)
    exposed = _exposed(own, split, recipe, sent)
    waited_s = _waited_s(exposed) / micro_batches
    host_s = own.host_s(waited_s, recipe)
    if filling_s is None:
        filling_s = (split.pipeline - 1) / split.virtual * (own.layers + waited_s + host_s)
    parts = {
        "matrix products": micro_batches * own.products,
        "attention": micro_batches * own.attention,
        "memory": micro_batches * own.memory,
        "output": micro_batches * own.output if computes_output else 0.0,
        "host": micro_batches * host_s,
        "pipeline bubble": filling_s,
        "optimizer": own.optimizer,
        **exposed,
    }
    found = sorted(parts.items(), key=lambda part: (-part[1], part[0]))
    return StepTime(
        tuple((name, seconds) for name, seconds in found if seconds), sum(exposed.values())
    )


def micro_batch_s(
    own: Work, split: Parallelism, recipe: Recipe, sent: Iterable[CommunicationTime]
) -> float:
    """How long a micro-batch is on a rank, in all of its layers."""
    waited_s = _waited_s(_exposed(own, split, recipe, sent)) / recipe.micro_batches(split)
    return own.layers + waited_s + own.host_s(waited_s, recipe)


def unsupported_reason(workload: Workload, machine: Machine) -> str:
    """Why machines of this kind cannot run the workload; empty if they can."""
    if workload.model is None:
        return "its model is not described"
    model, split, recipe = workload.parts
    if recipe.precision not in machine.device.matmul:
        supported = ", ".join(machine.device.matmul)
        return f"multiplies in {supported}, not {recipe.precision}"
    limit, nodes = model.chosen_nodes, -(-split.expert // machine.devices)
    if recipe.forwarded and limit and model.chosen > model.experts * limit // max(nodes, limit):
        return (
            f"model.expertsPerToken is {model.chosen}: {limit} of {nodes} nodes have no more than "
            f"{model.experts * limit // nodes} experts"
        )
    return ""


def _exposed(
    own: Work, split: Parallelism, recipe: Recipe, sent: Iterable[CommunicationTime]
) -> dict[str, float]:
    """The exposed part of each communicator: no computation overlaps it."""
    micro_batches = recipe.micro_batches(split)
    left = {
        Overlap.NOTHING: 0.0,
        Overlap.ATTENTION: micro_batches * own.attention,
        Overlap.PRODUCTS: micro_batches * own.products,
        Overlap.BACKWARD: own.backward
        * (micro_batches if recipe.sharding >= Sharding.GRADIENTS else 1),
        Overlap.MICRO_BATCH: micro_batches * own.layers,
        Overlap.OUTPUT: micro_batches * own.output,
    }
    return {each.name: _exposed_s(each, left, own) for each in sent}


def _waited_s(exposed: Mapping[str, float]) -> float:
    return sum(exposed.get(name, 0.0) for name in MICRO_BATCHED)


def _exposed_s(sent: CommunicationTime, left: dict[Overlap, float], own: Work) -> float:
    """What of it nothing else goes on beside, and how much longer what does takes for the
    multiprocessors it lacks; as much as goes on beside is no longer ``left``."""
    # What a rank copies to its host needs none.
    blocks = COLLECTIVE_BLOCKS if sent.ranks > 1 else 0
    lacking = blocks / own.multiprocessors
    exposed_s = 0.0
    for overlap in left:
        took_s = sent.took_s[overlap]
        hidden_s = min(took_s, left[overlap])
        left[overlap] -= hidden_s
        exposed_s += took_s - hidden_s * (1 - lacking)
    return exposed_s


def _took_s(traffic: Transfer, group: Group) -> float:
    if traffic.routing:
        return traffic.count * collectives.dispatch_s(traffic.size, traffic.routing, group)
    machine = group.machine
    match traffic.collective:
        case Collective.ALL_REDUCE:
            once_s = collectives.all_reduce_s(traffic.size, group)
        case Collective.REDUCE_SCATTER | Collective.ALL_GATHER:
            once_s = collectives.reduce_scatter_s(traffic.size, group)
        case Collective.ALL_TO_ALL | Collective.DISPATCH:
            once_s = collectives.all_to_all_s(traffic.size, group)
        case Collective.RING | Collective.SEND:
            once_s = collectives.send_s(traffic.size, group.link)
        case Collective.PUSH | Collective.PULL:
            once_s = collectives.served_s(traffic.size, traffic.servers, group)
        case Collective.COPY:
            once_s = LAUNCH_S + traffic.size / machine.host.copy
        case Collective.LOAD:
            once_s = machine.devices * traffic.size / machine.host.load
        case Collective.STORE:
            once_s = machine.devices * traffic.size / machine.host.store
    return traffic.count * once_s
