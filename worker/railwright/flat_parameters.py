"""Optimizers of the older FSDP, whose parameters are flat: torch itself knows what is where.

These first give every parameter a state, by a step with zero gradients. A first step that was
already counted changes what Adam does next, and a checkpoint has no state of an unused layer.
``training_state`` calls this in place of ``optimizer_state``.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.distributed.checkpoint import state_dict as sharded
from torch.distributed.checkpoint.metadata import Metadata

from railwright import collectives, optimizer_state
from railwright.optimizer_state import KEY, Optimizers, parameters_of

_STATE, _GROUPS = "state", "groups"


def are_used(model: torch.nn.Module) -> bool:
    """Whether the model, or a part of it, is wrapped so."""
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and any(
        isinstance(module, fsdp.FullyShardedDataParallel) for module in model.modules()
    )


def collect(model: torch.nn.Module, optimizers: Optimizers) -> dict[str, Any]:
    """What to save of the optimizers; all ranks must call it."""
    with _without_initialization(optimizers):
        return _named(model, optimizers)


def placeholders(
    model: torch.nn.Module, optimizers: Optimizers, saved: Metadata
) -> dict[str, dict[str, Any]]:
    """What to read into; all ranks must call it. The states are new, and gradients gone."""
    # Some make all states when they are constructed, and then never again.
    partial = any(
        parameter not in optimizer.state
        for optimizer in optimizers
        for parameter in parameters_of(optimizer)
    )
    is_partial = any(collectives.from_all(lambda: partial))
    for optimizer in optimizers:
        if is_partial:
            optimizer.state.clear()
        optimizer.zero_grad()
    with _trainable(optimizers):
        state = _named(model, optimizers)
    names = {path[2] for path in optimizer_state.paths(saved).values() if path[1] == _STATE}
    of_saved = {name: its for name, its in state[_STATE].items() if name in names}
    return {KEY: {**state, _STATE: of_saved}}


def put_back(
    model: torch.nn.Module, optimizers: Optimizers, _: Metadata, values: Mapping[str, Any]
) -> None:
    """Load what was read into the optimizers; all ranks must call it."""
    if not optimizers:
        return
    read = values[KEY]
    # torch takes a state without parameters for one of a single optimizer.
    state: dict[str, Any] = {
        _STATE: {**read[_STATE], "": {}},
        "param_groups": [*read[_GROUPS].values()],
    }
    with _trainable(optimizers):
        sharded.set_optimizer_state_dict(
            model, optimizers, state, options=sharded.StateDictOptions(strict=False)
        )


def _named(model: torch.nn.Module, optimizers: Optimizers) -> dict[str, Any]:
    if not optimizers:
        return {_STATE: {}, _GROUPS: {}}
    raw: dict[str, Any] = sharded.get_optimizer_state_dict(model, optimizers)
    return {_STATE: raw[_STATE], _GROUPS: optimizer_state.named_groups(raw["param_groups"])}


@contextlib.contextmanager
def _without_initialization(optimizers: Optimizers) -> Iterator[None]:
    """Keep torch from making states. It makes none where any parameter has a gradient."""
    given = []
    for optimizer in optimizers:
        parameters = [each for each in parameters_of(optimizer) if each.requires_grad]
        has_gradient = any(each.grad is not None for each in parameters)
        if parameters and not has_gradient and not optimizer.state:
            least = min(parameters, key=torch.Tensor.numel)
            least.grad = torch.zeros_like(least)
            given.append(least)
    try:
        yield
    finally:
        for parameter in given:
            parameter.grad = None


@contextlib.contextmanager
def _trainable(optimizers: Optimizers) -> Iterator[None]:
    """torch leaves out what is frozen now, and may not have been when it was saved."""
    frozen = [
        parameter
        for optimizer in optimizers
        for parameter in parameters_of(optimizer)
        if not parameter.requires_grad
    ]
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
