"""The work of one rank and its host in a training step, and its time.

Every pipeline stage runs its layers' kernels for each micro-batch; the last one computes the logits
too. Every rank counts with as many layers as the one with the most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from railwright_scheduler.communication import parameters, replicas
from railwright_scheduler.cost import hardware, kernels, transformer
from railwright_scheduler.cost.hardware import Device, Machine
from railwright_scheduler.cost.kernels import Pass, Product
from railwright_scheduler.model.workload import (
    Optimizer,
    Parallelism,
    Precision,
    Recipe,
    Transformer,
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


@dataclass(frozen=True, slots=True)
class Work:
    """Seconds of one micro-batch in all layers of a rank, ``backward`` of them in the backward
    pass; those of the last stage for the logits, and of the host to issue the layers' kernels.
    Those of an ``optimizer`` are for a step. Its device has ``multiprocessors``."""

    products: float
    attention: float
    memory: float
    backward: float
    output: float
    issued: float
    optimizer: float
    multiprocessors: int

    @property
    def layers(self) -> float:
        """Seconds of all kernels of its layers."""
        return self.products + self.attention + self.memory

    def on(self, share: float) -> Work:
        """The same with a share of the layers."""
        return replace(
            self,
            products=share * self.products,
            attention=share * self.attention,
            memory=share * self.memory,
            backward=share * self.backward,
            issued=share * self.issued,
        )

    def host_s(self, waited_s: float, recipe: Recipe) -> float:
        """How much longer the host takes for a micro-batch than the device with its waits.

        The host runs ahead of the device except in forward passes, in which it waits for the
        router's result to determine the sizes of messages (NVIDIA/Megatron-LM, megatron/core/
        transformer/moe/token_dispatcher.py: cuda_sync_point). Both passes issue as many kernels.
        """
        if recipe.overlap_experts:
            return max(0.0, self.issued - self.layers - waited_s)
        busy = self.layers - self.backward + waited_s / 2, self.backward + waited_s / 2
        return sum(max(0.0, self.issued / 2 - each) for each in busy)


def of(model: Transformer, split: Parallelism, recipe: Recipe, machine: Machine) -> Work:
    """Of the rank that has the most layers, on this machine."""
    layer = transformer.layer(model, split, recipe)
    device = machine.device
    forward = _pass(layer.forward, recipe, device, device.attention)
    backward = _pass(layer.backward, recipe, device, device.attention_back)
    again = [forward] * (recipe.passes - 2)
    passes = [forward, backward, *again]
    count = parameters.layers(model, split)
    products, attention, memory = (count * sum(part) for part in zip(*passes, strict=True))
    return Work(
        products,
        attention,
        memory,
        backward=count * sum(map(sum, [backward, *again])),
        output=_output_s(model, split, recipe, machine),
        issued=_issued_s(model, split, recipe, machine),
        optimizer=_optimizer_s(model, split, recipe, machine),
        multiprocessors=device.multiprocessors,
    )


def _pass(
    work: Pass, recipe: Recipe, device: Device, attention: float
) -> tuple[float, float, float]:
    products_s = sum(kernels.product_s(each, device, recipe.precision) for each in work.products)
    attention_s = 0.0
    if work.attention:
        attention_s = kernels.attention_s(work.attention, device, attention)
    moved_s = sum(kernels.memory_s(each, device) for each in work.traffic)
    moved_s += sum(times * kernels.memory_s(size, device) for size, times in work.repeated)
    return products_s, attention_s, moved_s


def _issued_s(model: Transformer, split: Parallelism, recipe: Recipe, machine: Machine) -> float:
    """How long the host takes to issue the kernels of one micro-batch's layers.

    Those of layers without experts are few and large; experts' are many and small.
    """
    if not model.experts:
        return 0.0
    layer_s = hardware.ISSUED_BESIDE_S if recipe.overlap_experts else hardware.ISSUED_S
    if recipe.precision is Precision.FP8:
        kernels_a_layer = CASTS * (model.experts // split.expert + 1) * CAST_KERNELS
        layer_s += kernels_a_layer * hardware.CAST_ISSUED_S
    return parameters.layers(model, split) * layer_s * hardware.ISSUE_CLOCK / machine.host.clock


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
