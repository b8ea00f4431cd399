"""The state of optimizers as it is: nothing for a parameter that never had a gradient.

torch's distributed state dicts first give every parameter a state, by a step with zero gradients.
A first step that was already counted changes what Adam does next. And a checkpoint has no state of
an unused layer, or of an expert without tokens, which torch then misses when it loads.
``training_state`` calls this.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.distributed.checkpoint import state_dict as sharded
from torch.distributed.checkpoint.metadata import Metadata

Optimizers = Sequence[torch.optim.Optimizer]

_STATE = "state"


@contextlib.contextmanager
def without_initialization(optimizers: Optimizers) -> Iterator[None]:
    """Keep torch from making states. It makes none where any parameter has a gradient."""
    given = []
    for optimizer in optimizers:
        parameters = [each for each in _parameters(optimizer) if each.requires_grad]
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


def is_partial(optimizers: Optimizers) -> bool:
    """Whether a parameter has no state. Some optimizers make all states when they are constructed,
    and then never again."""
    return any(
        parameter not in optimizer.state
        for optimizer in optimizers
        for parameter in _parameters(optimizer)
    )


@contextlib.contextmanager
def complete(optimizers: Optimizers, *, anew: bool) -> Iterator[None]:
    """Let torch make a state for each parameter, also for one that is frozen now and was not when
    it was saved. All are made ``anew`` if on any rank one is missing. Drops the gradients."""
    frozen = [
        parameter
        for optimizer in optimizers
        for parameter in _parameters(optimizer)
        if not parameter.requires_grad and (parameter.is_floating_point() or parameter.is_complex())
    ]
    for optimizer in optimizers:
        if anew:
            optimizer.state.clear()
        optimizer.zero_grad()
    for parameter in frozen:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)


def drop_unsaved(state: dict[str, Any], saved: Metadata, *, prefix: str) -> None:
    """Drop the states of parameters of which the checkpoint has nothing."""
    names = sorted(saved.state_dict_metadata)
    for parameter in list(state.get(_STATE, ())):
        key = f"{prefix}.{_STATE}.{parameter}."
        first = bisect.bisect_left(names, key)
        if not (first < len(names) and names[first].startswith(key)):
            del state[_STATE][parameter]


def put_back(model: torch.nn.Module, optimizers: Optimizers, state: dict[str, Any]) -> None:
    """Load the state into the optimizers; parameters without one have none then."""
    if not optimizers:
        return
    # torch takes a state without parameters for one of a single optimizer.
    named = {**state, _STATE: {**state[_STATE], "": {}}}
    sharded.set_optimizer_state_dict(
        model, optimizers, named, options=sharded.StateDictOptions(strict=False)
    )


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
