"""Checkpoints of optimizers: training continues bit for bit, whichever parameters have a state."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn, optim

from railwright import Checkpointer

Make = Callable[[Iterator[nn.Parameter]], optim.Optimizer]

OPTIMIZERS: dict[str, Make] = {
    "AdamW": lambda parameters: optim.AdamW(parameters, lr=0.1),
    "AdamW, rate of numpy": lambda parameters: optim.AdamW(parameters, lr=float(np.float64(0.1))),
    "AdamW, rate is a tensor": lambda parameters: optim.AdamW(parameters, lr=torch.tensor(0.1)),
    "Adam, amsgrad": lambda parameters: optim.Adam(parameters, lr=0.1, amsgrad=True),
    "SGD": lambda parameters: optim.SGD(parameters, lr=0.1),
    "SGD, momentum": lambda parameters: optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adagrad": lambda parameters: optim.Adagrad(parameters, lr=0.1),
    "Adafactor": optim.Adafactor,
    "ASGD": optim.ASGD,
}


class Case(NamedTuple):
    """``later``: the layer that is trained only after it was loaded, or saved."""

    trained: int = 3
    uses_second: bool = True
    is_frozen: bool = False
    has_gradients: bool = False


CASES = {
    "all trained": Case(),
    "none trained yet": Case(trained=0),
    "one layer unused": Case(uses_second=False),
    "one layer frozen when loaded": Case(is_frozen=True),
    "loaded after other steps": Case(has_gradients=True),
    "loaded after steps of an unused layer": Case(uses_second=False, has_gradients=True),
}


class Training:
    """Two layers, each with an optimizer of its own."""

    def __init__(self, make: Make, *, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.optimizers = [make(layer.parameters()) for layer in self.model]

    def step(self, *, uses_second: bool) -> None:
        outputs = self.model[0](torch.ones(2, 3))
        outputs = self.model[1](outputs) if uses_second else outputs
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        outputs.square().mean().backward()
        for optimizer in self.optimizers:
            optimizer.step()

    def contents(self) -> list[object]:
        states = [optimizer.state_dict()["state"] for optimizer in self.optimizers]
        tensors = [t for one in states for state in one.values() for t in state.values()]
        weights = [parameter.detach() for parameter in self.model.parameters()]
        return [t.tolist() if isinstance(t, torch.Tensor) else t for t in (*weights, *tensors)]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_training_goes_on_as_if_never_interrupted(tmp_path: Path, make: Make, case: Case) -> None:
    first, second = Training(make, seed=0), Training(make, seed=1)
    for _ in range(case.trained):
        first.step(uses_second=case.uses_second)
    before = first.contents()
    Checkpointer(tmp_path, first.model, first.optimizers).save(9)
    assert first.contents() == before
    if case.has_gradients:
        second.step(uses_second=True)
    second.model[1].requires_grad_(not case.is_frozen)
    assert Checkpointer(tmp_path, second.model, second.optimizers).load() == 9
    second.model[1].requires_grad_(True)
    assert second.contents() == before
    for training, uses_second in itertools.product((first, second), (False, True)):
        training.step(uses_second=uses_second)
    assert second.contents() == first.contents()


def test_optimizer_that_was_not_saved_is_refused(tmp_path: Path) -> None:
    """Its parameters have no state in the checkpoint either, and it would begin anew."""
    training = Training(OPTIMIZERS["AdamW"], seed=0)
    Checkpointer(tmp_path, training.model).save(1)
    with pytest.raises(RuntimeError, match="Missing key"):
        Checkpointer(tmp_path, training.model, training.optimizers).load()
