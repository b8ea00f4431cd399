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
from torch.utils import _pytree as pytree

from railwright import Checkpointer

Make = Callable[[Iterator[nn.Parameter]], optim.Optimizer]


class Window(optim.Optimizer):
    """It keeps the last gradients in a list, and other values by numbers, from its second step on.
    torch's own functions would step it with zero gradients."""

    def __init__(self, parameters: Iterator[nn.Parameter]) -> None:
        super().__init__(parameters, {"lr": 0.1, "steps": 0})

    def step(self, *_: object) -> None:  # type: ignore[override]
        (group,) = self.param_groups
        group["steps"] += 1
        for parameter in group["params"]:
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            window = state.setdefault("window", [])
            window.append(parameter.grad.clone())
            if len(window) > 1:
                state.setdefault("sums", {})[group["steps"]] = {0: window[-2].sum(), -1: None}
            rows = torch.stack(window[-3:])
            parameter.data -= group["lr"] * rows.mean(dim=0) * len(state.get("sums", ()))


def with_momentum_later(parameters: Iterator[nn.Parameter]) -> optim.Optimizer:
    """A new one has no momentum, so its state is empty."""
    optimizer = optim.SGD(parameters, lr=0.1)
    optimizer.register_step_post_hook(lambda its, *_: its.param_groups[0].update(momentum=0.9))
    return optimizer


OPTIMIZERS: dict[str, Make] = {
    "AdamW": lambda parameters: optim.AdamW(parameters, lr=0.1),
    "AdamW, rate of numpy": lambda parameters: optim.AdamW(parameters, lr=np.float64(0.1)),
    "AdamW, rate is a tensor": lambda parameters: optim.AdamW(parameters, lr=torch.tensor(0.1)),
    "Adam, amsgrad": lambda parameters: optim.Adam(parameters, lr=0.1, amsgrad=True),
    "SGD": lambda parameters: optim.SGD(parameters, lr=0.1),
    "SGD, momentum": lambda parameters: optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adagrad": lambda parameters: optim.Adagrad(parameters, lr=0.1),
    "Adafactor": optim.Adafactor,
    "ASGD": optim.ASGD,
    "states in lists and dicts": Window,
    "momentum from the second step on": with_momentum_later,
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
        options = [
            (name, value)
            for optimizer in self.optimizers
            for name, value in optimizer.param_groups[0].items()
            if name != "params"
        ]
        plain: list[object] = pytree.tree_map(_plain, [*weights, *tensors, *options])
        return plain


def _plain(leaf: object) -> object:
    return leaf.tolist() if isinstance(leaf, torch.Tensor) else leaf


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


def test_optimizer_that_needs_a_closure_is_restored(tmp_path: Path) -> None:
    first, second = Training(optim.LBFGS, seed=0), Training(optim.LBFGS, seed=1)
    for training in (first, second):
        training.optimizers = [optim.LBFGS(training.model.parameters(), max_iter=2)]

    def step(training: Training) -> None:
        def loss() -> torch.Tensor:
            training.optimizers[0].zero_grad()
            outputs = training.model[1](training.model[0](torch.ones(2, 3)))
            value: torch.Tensor = outputs.square().mean()
            torch.autograd.backward(value)
            return value

        training.optimizers[0].step(loss)  # type: ignore[arg-type]

    step(first)
    Checkpointer(tmp_path, first.model, first.optimizers).save(1)
    Checkpointer(tmp_path, second.model, second.optimizers).load()
    step(first)
    step(second)
    assert second.contents() == first.contents()


def test_state_may_be_a_tensor_itself(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    first, second = (optim.SGD(model.parameters(), lr=0.1) for _ in range(2))
    first.state[model.weight] = torch.ones(2, 2)
    Checkpointer(tmp_path, model, first).save(1)
    Checkpointer(tmp_path, model, second).load()
    assert torch.equal(second.state[model.weight], torch.ones(2, 2))


def test_optimizer_of_something_else_is_refused(tmp_path: Path) -> None:
    training = Training(OPTIMIZERS["AdamW"], seed=0)
    temperature = nn.Parameter(torch.ones(1))
    training.optimizers[0].add_param_group({"params": [temperature]})
    with pytest.raises(ValueError, match="its parameter 2 is none of the model's"):
        Checkpointer(tmp_path, training.model, training.optimizers).save(1)
    counting = optim.SGD(training.model.parameters(), lr=0.1)
    counting.register_state_dict_post_hook(lambda _, state: {**state, "count": 3})
    with pytest.raises(ValueError, match="SGD has more than states of parameters and groups"):
        Checkpointer(tmp_path, training.model, counting).save(1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda its: [optim.SGD(its[:1], lr=0.1)], "the saved optimizer of 0.weight has no damp"),
        (lambda its: [optim.AdamW(its[:1], lr=0.1)], ""),
        (lambda its: [optim.AdamW(its, lr=0.1)], "were in different groups"),
    ],
)
def test_other_optimizer_is_refused(
    tmp_path: Path, make: Callable[[list[nn.Parameter]], list[optim.Optimizer]], message: str
) -> None:
    training = Training(OPTIMIZERS["AdamW"], seed=0)
    training.step(uses_second=True)
    Checkpointer(tmp_path, training.model, training.optimizers).save(1)
    other = Checkpointer(tmp_path, training.model, make([*training.model.parameters()]))
    if not message:
        assert other.load() == 1
        return
    with pytest.raises(RuntimeError, match=message):
        other.load()


def test_optimizer_that_was_not_saved_is_refused(tmp_path: Path) -> None:
    """Its parameters have no state in the checkpoint either, and it would begin anew."""
    training = Training(OPTIMIZERS["AdamW"], seed=0)
    Checkpointer(tmp_path, training.model).save(1)
    with pytest.raises(RuntimeError, match="Missing key"):
        Checkpointer(tmp_path, training.model, training.optimizers).load()
