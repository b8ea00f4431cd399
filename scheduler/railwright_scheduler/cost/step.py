"""How long a training step takes, and what of.

Every stage of the pipeline does its layers' kernels for each micro-batch; the slowest stage decides
how fast micro-batches follow each other, and filling and draining the pipeline is idle time, less
with interleaved stages (Narayanan et al., 2021). Of what a communicator takes, only as much counts
as nothing else goes on beside; of its groups the slowest decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from railwright_scheduler.communication import derive, parameters, replicas
from railwright_scheduler.communication.graph import Collective, Communicator, Overlap, Traffic
from railwright_scheduler.cost import collectives, geometry, kernels, transformer
from railwright_scheduler.cost.collectives import Group
from railwright_scheduler.cost.hardware import COLLECTIVE_BLOCKS, ISSUE, LAUNCH_S, Device, Machine
from railwright_scheduler.cost.kernels import Pass, Product
from railwright_scheduler.workload import (
    Optimizer,
    Parallelism,
    Precision,
    Recipe,
    Sharding,
    Transformer,
    Workload,
)

OPTIMIZER_BYTES = (2 + 4) + (4 + 4) + 4 + (4 + 4) + (4 * 4 + 3 * 4) + (4 + 2)
"""A parameter's: its gradient widened, unscaled, its norm taken, clipped; Adam's read of gradient,
weight, momentum and variance in 32 bits and write of all but the gradient; the weight narrowed."""

HOST_OPTIMIZER_BYTES = 28
"""A parameter's: its gradient read; Adam's read and write of weight, momentum and variance in 32
bits; the weight written in 16 bits, in one pass (Ren et al., 2021)."""

LOSS_BYTES = (2 + 4) + 4 + (4 + 4) + (4 + 4) + 4 + (4 + 4) + (4 + 4) + (4 + 2)
"""A logit's: widened, the largest found, taken off, exponentiated, summed, divided by the sum; its
gradient; narrowed."""

FUSED_LOSS_BYTES = 2 + (2 + 2) + (2 + 2)
"""A logit's: read for the largest and the sum; read, and its gradient written over it; that scaled
(NVIDIA/TransformerEngine, transformer_engine/common/triton/cross_entropy.py)."""

CASTS = 4
"""To 8 bits, a layer's for attention and for each expert: of what goes into both products forward
and of the gradients of what comes out (NVIDIA/TransformerEngine, pull request 1525)."""

CAST_KERNELS = 3
"""Of one cast: the largest is found, made a scale, and all are scaled by it (NVIDIA/
TransformerEngine, Float8CurrentScalingQuantizer::quantize_impl)."""

NOT_CROWDED: Mapping[str, float] = MappingProxyType({})

MICRO_BATCHED = ("tensor", "context", "expert", "pipeline")
"""Communicators that each micro-batch waits for."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step by what they are spent on, the largest first; together they are all."""

    parts: tuple[tuple[str, float], ...]

    @property
    def total(self) -> float:
        """Seconds of the whole step."""
        return sum(seconds for _, seconds in self.parts)


@dataclass(frozen=True, slots=True)
class _Layers:
    """Seconds of one micro-batch in all layers of a rank."""

    products: float
    attention: float
    memory: float
    backward: float

    @property
    def total(self) -> float:
        return self.products + self.attention + self.memory


def predict(
    model: Transformer,
    split: Parallelism,
    recipe: Recipe,
    machine: Machine,
    crowding: Mapping[str, float] = NOT_CROWDED,
    summed: Collection[str] = (),
    *,
    communicators: tuple[Communicator, ...] | None = None,
) -> StepTime:
    """The step on machines of one kind, which ranks fill one after the other.

    ``communicators`` are those that were measured; without them they are derived.
    ``crowding`` says of communicators how many times longer what they send takes between machines
    than their adapters need, for links that are shared. Of those ``summed`` the switches add up
    what crosses them, wherever it crosses.
    """
    micro_batches = recipe.micro_batches(split)
    layers = _layers(model, split, recipe, machine)
    output_s = _output_s(model, split, recipe, machine)
    left = {
        Overlap.NOTHING: 0.0,
        Overlap.ATTENTION: micro_batches * layers.attention,
        Overlap.PRODUCTS: micro_batches * layers.products,
        Overlap.BACKWARD: layers.backward
        * (micro_batches if recipe.sharding >= Sharding.GRADIENTS else 1),
        Overlap.MICRO_BATCH: micro_batches * layers.total,
        Overlap.OUTPUT: micro_batches * output_s,
    }
    if communicators is None:
        communicators = derive.communicators(model, split, recipe)
    exposed = {}
    for each in communicators:
        its = machine.summing() if each.name in summed else machine
        exposed[each.name] = _exposed_s(each, left, its.crowded(crowding.get(each.name, 1.0)))
    waited_s = sum(exposed.get(name, 0.0) for name in MICRO_BATCHED) / micro_batches
    host_s = _host_s(model, split, recipe, machine, layers, waited_s)
    parts = {
        "matrix products": micro_batches * layers.products,
        "attention": micro_batches * layers.attention,
        "memory": micro_batches * layers.memory,
        "output": micro_batches * output_s,
        "host": micro_batches * host_s,
        "pipeline bubble": (split.pipeline - 1)
        / split.virtual
        * (layers.total + waited_s + host_s),
        "optimizer": _optimizer_s(model, split, recipe, machine),
        **exposed,
    }
    found = sorted(parts.items(), key=lambda part: (-part[1], part[0]))
    return StepTime(tuple((name, seconds) for name, seconds in found if seconds))


def misfit(workload: Workload, machine: Machine) -> str:
    """What the workload asks and this machine, or so many of them, cannot do; empty if nothing."""
    model, split, recipe = workload.parts
    if recipe.precision not in machine.device.matmul:
        known = ", ".join(machine.device.matmul)
        return f"multiplies in {known}, not {recipe.precision}"
    limit, nodes = model.chosen_nodes, -(-split.expert // machine.devices)
    if recipe.forwarded and limit and model.chosen > model.experts * limit // max(nodes, limit):
        return (
            f"model.expertsPerToken is {model.chosen}: {limit} of {nodes} nodes have no more than "
            f"{model.experts * limit // nodes} experts"
        )
    return ""


def _exposed_s(communicator: Communicator, left: dict[Overlap, float], machine: Machine) -> float:
    """What of it nothing else goes on beside, and how much longer what does takes for the
    multiprocessors it lacks; as much as goes on beside is no longer ``left``."""
    shapes = geometry.groups(communicator, machine)
    # What a rank copies to its host needs none.
    blocks = COLLECTIVE_BLOCKS if communicator.ranks > 1 else 0
    lacking = blocks / machine.device.multiprocessors
    exposed_s = 0.0
    for overlap in left:
        traffic = [each for each in communicator.traffic if each.overlap is overlap]
        took_s = max(sum(_took_s(each, group, machine) for each in traffic) for group in shapes)
        hidden_s = min(took_s, left[overlap])
        left[overlap] -= hidden_s
        exposed_s += took_s - hidden_s * (1 - lacking)
    return exposed_s


def _took_s(traffic: Traffic, group: Group, machine: Machine) -> float:
    if traffic.routing:
        return traffic.count * collectives.dispatch_s(traffic.size, traffic.routing, group)
    link = group.inside if group.nodes == 1 else group.network
    match traffic.collective:
        case Collective.ALL_REDUCE:
            once_s = collectives.all_reduce_s(traffic.size, group)
        case Collective.REDUCE_SCATTER:
            once_s = collectives.reduce_scatter_s(traffic.size, group)
        case Collective.ALL_GATHER:
            once_s = collectives.all_gather_s(traffic.size, group)
        case Collective.ALL_TO_ALL | Collective.DISPATCH:
            once_s = collectives.all_to_all_s(traffic.size, group)
        case Collective.RING | Collective.SEND:
            once_s = collectives.send_s(traffic.size, link)
        case Collective.PUSH | Collective.PULL:
            once_s = collectives.served_s(traffic.size, traffic.clients, traffic.servers, link)
        case Collective.COPY:
            once_s = LAUNCH_S + traffic.size / machine.host.copy
        case Collective.LOAD:
            once_s = machine.devices * traffic.size / machine.host.load
        case Collective.STORE:
            once_s = machine.devices * traffic.size / machine.host.store
    return traffic.count * once_s


def _layers(model: Transformer, split: Parallelism, recipe: Recipe, machine: Machine) -> _Layers:
    layer = transformer.layer(model, split, recipe)
    device = machine.device
    forward = _pass(layer.forward, recipe, device, device.attention)
    backward = _pass(layer.backward, recipe, device, device.attention_back)
    again = [forward] * (recipe.passes - 2)
    passes = [forward, backward, *again]
    count = parameters.layers(model, split)
    products, attention, memory = (count * sum(part) for part in zip(*passes, strict=True))
    return _Layers(products, attention, memory, count * sum(map(sum, [backward, *again])))


def _pass(
    work: Pass, recipe: Recipe, device: Device, attention: float
) -> tuple[float, float, float]:
    products_s = sum(kernels.product_s(each, device, recipe.precision) for each in work.products)
    attention_s = kernels.attention_s(work.attention, attention) if work.attention else 0.0
    return products_s, attention_s, sum(kernels.memory_s(each, device) for each in work.traffic)


def _host_s(
    model: Transformer,
    split: Parallelism,
    recipe: Recipe,
    machine: Machine,
    layers: _Layers,
    waited_s: float,
) -> float:
    """How much longer the host takes for a micro-batch than the device.

    It can be ahead of the device but for the passes forward, each of which it waits in for what the
    router found, to know how much to send (NVIDIA/Megatron-LM, megatron/core/transformer/moe/
    token_dispatcher.py: cuda_sync_point). As much is issued going forward as going back.
    """
    issued_s = _issued_s(model, split, recipe, machine)
    if recipe.overlap_experts:
        return max(0.0, issued_s - layers.total - waited_s)
    busy = layers.total - layers.backward + waited_s / 2, layers.backward + waited_s / 2
    return sum(max(0.0, issued_s / 2 - each) for each in busy)


def _issued_s(model: Transformer, split: Parallelism, recipe: Recipe, machine: Machine) -> float:
    """How long the host takes to issue the kernels of one micro-batch's layers.

    Those of layers without experts are few and large; experts' are many and small.
    """
    if not model.experts:
        return 0.0
    layer_s: float = ISSUE.beside if recipe.overlap_experts else ISSUE.alone
    if recipe.precision is Precision.FP8:
        layer_s += CASTS * (model.experts // split.expert + 1) * CAST_KERNELS * ISSUE.cast
    return parameters.layers(model, split) * layer_s * ISSUE.clock / machine.host.clock


def _output_s(model: Transformer, split: Parallelism, recipe: Recipe, machine: Machine) -> float:
    """The last stage's logits and loss, forward and backward: in 16 bits, whatever layers are in
    (DeepSeek-V3 Technical Report, 2024, 3.3.1; so do Megatron Core and Transformer Engine)."""
    logits = Product(recipe.tokens(split), model.vocabulary // split.tensor, model.hidden)
    products_s = sum(
        kernels.product_s(each, machine.device, Precision.HALF)
        for each in (logits, *logits.gradients)
    )
    each = FUSED_LOSS_BYTES if recipe.fused_loss else LOSS_BYTES
    return products_s + kernels.memory_s(each * logits.m * logits.n, machine.device)


def _optimizer_s(model: Transformer, split: Parallelism, recipe: Recipe, machine: Machine) -> float:
    share = replicas.updated(parameters.held(model, split), split, recipe)
    if recipe.optimizer is Optimizer.DEVICE:
        return kernels.memory_s(OPTIMIZER_BYTES * share, machine.device)
    return HOST_OPTIMIZER_BYTES * machine.devices * share / machine.host.memory
