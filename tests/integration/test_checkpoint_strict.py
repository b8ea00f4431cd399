"""What a Checkpointer refuses because state would be lost silently."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fixtures.tiny_training import Places
from railwright import Checkpointer, environment, planners
from railwright.protocol import encode


class Normalized(nn.Module):
    """Its mean is None until it is first measured."""

    mean: torch.Tensor | None

    def __init__(self, mean: torch.Tensor | None) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("mean", mean)


@pytest.mark.parametrize(
    ("saved", "loaded", "lost"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 2)), "1.bias"),
        (nn.BatchNorm1d(2), nn.BatchNorm1d(2, track_running_stats=False), "num_batches_tracked"),
        (nn.Linear(2, 2, bias=True), nn.Linear(2, 2, bias=False), "bias"),
        (Normalized(torch.ones(2)), Normalized(None), "mean"),
    ],
)
def test_values_that_the_model_lacks_are_refused(
    tmp_path: Path, saved: nn.Module, loaded: nn.Module, lost: str
) -> None:
    Checkpointer(tmp_path, saved).save(1)
    before = [parameter.clone() for parameter in loaded.parameters()]
    with pytest.raises(RuntimeError, match=f"the checkpoint has {lost}.*, and the model has not"):
        Checkpointer(tmp_path, loaded).load()
    for parameter, value in zip(loaded.parameters(), before, strict=True):
        assert torch.equal(parameter, value)


def test_many_values_are_counted_and_empty_ones_are_not(tmp_path: Path) -> None:
    saved = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(6)))
    saved.register_parameter("empty", nn.Parameter(torch.ones(0)))
    Checkpointer(tmp_path, saved).save(1)
    with pytest.raises(RuntimeError, match=r"has 1\.weight, 2\.weight, 3\.weight and 2 more, and"):
        Checkpointer(tmp_path, saved[:1]).load()


@pytest.mark.parametrize("names", [["schedule"], ["data", "schedule"], ["rows"], []])
def test_objects_of_other_names_are_refused(tmp_path: Path, names: list[str]) -> None:
    """One that was renamed would begin anew, and the old state be lost."""
    Checkpointer(tmp_path, data=Places(), seeds=Places()).save(1)
    got = ", ".join(names) or "no object"
    objects: dict[str, Any] = {name: Places() for name in names}
    with pytest.raises(RuntimeError, match=f"has the states of data, seeds, .* got {got}: pass"):
        Checkpointer(tmp_path, **objects).load()


def test_follower_needs_some_of_the_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROLE_NAME", "worker")
    data = Places()
    data.position = 5
    Checkpointer(tmp_path, data=data, seeds=Places()).save(1)
    monkeypatch.setenv("ROLE_NAME", "evaluator")
    followed = Places()
    assert Checkpointer(tmp_path, data=followed, group="worker").load() == 1
    assert followed.position == 5
    with pytest.raises(RuntimeError, match=r"has the states of data, seeds, .* got rows"):
        Checkpointer(tmp_path, rows=followed, group="worker").load()


@pytest.mark.parametrize("in_job", [False, True])
def test_second_checkpointer_of_a_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_job: bool
) -> None:
    """They would be two attempts, and remove each other's checkpoints; in a job the second could
    not save."""
    if in_job:
        monkeypatch.setenv(environment.JOB_UID, "uid")
        monkeypatch.setenv(environment.ATTEMPT, "1")
        monkeypatch.setenv(environment.RESUME, encode(environment.Resume(())).decode())
    generator = Checkpointer(tmp_path, nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"another Checkpointer of this process saves.*ModuleDict"):
        Checkpointer(tmp_path, nn.Linear(3, 3))
    generator.save(1)
    Checkpointer(tmp_path / "other", nn.Linear(3, 3)).save(1)
    del generator
    Checkpointer(tmp_path, nn.Linear(2, 2)).save(2)


def test_checkpointer_that_only_a_cycle_holds_is_none(tmp_path: Path) -> None:
    """As a trainer has that passes itself."""
    trainer = Places()
    trainer.checkpoints = Checkpointer(tmp_path, trainer=trainer)  # type: ignore[attr-defined]
    del trainer
    Checkpointer(tmp_path).save(1)


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ([1.0, math.nan], [1.0, math.nan], False),
        ([1.0, math.nan], [2.0, math.nan], True),
        ([1.0, math.nan], [1.0, 1.0], True),
        ([math.inf, 1.0], [math.inf, 1.0], False),
        ([math.inf, 1.0], [1.0, 1.0], True),
        ([0.0, 1.0], [1e-5, 1.0], False),
        ([0.0, 0.0], [0.0, 1e-30], True),
    ],
)
def test_checkpointer_distinguishes_replicas_from_stages(
    one: list[float], other: list[float], *, differ: bool
) -> None:
    samples = [planners._sample(torch.tensor(values)) for values in (one, other)]
    assert planners._differ(samples[0], samples[1], planners._drift_max(torch.float32)) is differ


def test_tensor_that_torch_cannot_index_is_not_compared() -> None:
    packed = torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    assert planners._sample(packed) == b""


def test_weights_that_are_elsewhere_are_refused(tmp_path: Path) -> None:
    """With DeepSpeed's stage 3 those of the model are empty."""
    model = nn.Linear(2, 2)
    model.weight.ds_tensor = model.weight.data  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match=r"values of weight are in objects of DeepSpeed \(ZeRO"):
        Checkpointer(tmp_path, model).save(1)


class Interrupted(Places):
    """A signal arrives while its state is read or put back."""

    def state_dict(self) -> dict[str, int]:
        os.kill(os.getpid(), signal.SIGUSR1)
        return super().state_dict()

    def load_state_dict(self, state: object) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], None]], None]]:
    before = signal.getsignal(signal.SIGUSR1)

    def handle(work: Callable[[], None]) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: work())

    yield handle
    signal.signal(signal.SIGUSR1, before)


def test_save_in_a_signal_handler_within_a_save_is_refused(
    tmp_path: Path, on_signal: Callable[[Callable[[], None]], None]
) -> None:
    checkpoints = Checkpointer(tmp_path, data=Interrupted())
    on_signal(lambda: checkpoints.save(1))
    with pytest.raises(RuntimeError, match=r"save was called while save runs, .* set a flag"):
        checkpoints.save(1)
    assert not [*tmp_path.glob("local/*/*/step-*")]
    on_signal(lambda: None)
    checkpoints.save(1)
    on_signal(lambda: checkpoints.save(2))
    with pytest.raises(RuntimeError, match="save was called while load runs"):
        checkpoints.load()
    on_signal(lambda: None)
    assert checkpoints.load() == 1


def test_model_on_the_meta_device_is_refused(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    Checkpointer(tmp_path, model).save(1)
    with torch.device("meta"):
        empty = nn.Linear(2, 2)
    checkpoints = Checkpointer(tmp_path, empty)
    for use in (checkpoints.load, lambda: checkpoints.save(2)):
        with pytest.raises(RuntimeError, match=r"weight is on the meta device.*model\.to_empty"):
            use()
    empty.to_empty(device="cpu")
    assert checkpoints.load() == 1
    assert torch.equal(empty.weight, model.weight)
