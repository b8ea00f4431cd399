"""What a script may give a Checkpointer, alone in this process."""

from __future__ import annotations

import collections
import io
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from railwright import Checkpointer, manifest


def steps(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("local/attempt-1/*/step-*"))


@pytest.mark.parametrize("step", [np.int64(10), torch.tensor(10), True + 9])
def test_step_may_be_any_whole_number(tmp_path: Path, step: Any) -> None:
    Checkpointer(tmp_path).save(step)
    assert steps(tmp_path) == ["step-10"]
    assert Checkpointer(tmp_path).load() == 10


@pytest.mark.parametrize(
    ("step", "error"), [(10.0, TypeError), (-1, ValueError), (1e13, TypeError)]
)
def test_step_that_is_none_is_refused_before_anything_is_written(
    tmp_path: Path, step: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        Checkpointer(tmp_path).save(step)
    with pytest.raises(ValueError, match="expected 0 to"):
        Checkpointer(tmp_path).save(10**13)
    assert not steps(tmp_path)


def test_optimizers_of_a_generator_are_saved_each_time(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    saves = Checkpointer(tmp_path, model, (each for each in (optimizer,)))
    saves.save(1)
    saves.save(2)
    del saves
    other = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    assert Checkpointer(tmp_path, model, other).load() == 2
    assert other.param_groups[0]["lr"] == 0.5


def test_optimizer_without_a_model_is_refused(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with pytest.raises(ValueError, match="pass model too"):
        Checkpointer(tmp_path, optimizer=optimizer, net=model)


@pytest.mark.parametrize("given", [{"net": 1}, ["net"], [None]])
def test_checkpointer_refuses_invalid_optimizer(tmp_path: Path, given: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a torch\.optim\.Optimizer"):
        Checkpointer(tmp_path, torch.nn.Linear(2, 2), given)


def test_folder_stays_the_same_in_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    checkpoints = Checkpointer("checkpoints", optimizer=None)
    monkeypatch.chdir("/")
    checkpoints.save(1)
    assert steps(tmp_path / "checkpoints") == ["step-1"]


def test_rank_that_does_not_know_the_others_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank would write the files of rank 0, and commit a checkpoint that is torn."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    checkpoints = Checkpointer(tmp_path)
    for use in (lambda: checkpoints.save(1), checkpoints.load):
        with pytest.raises(RuntimeError, match="there are 2 ranks: call init_process_group"):
            use()
    assert not steps(tmp_path)
    assert Checkpointer(tmp_path, group="worker").load() == 0


def test_attempt_is_claimed_after_a_failure_to_claim_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else those who follow this group would never read its checkpoints."""
    claims, claim = [], manifest.claim

    def full_at_first(*given: Any, **named: Any) -> None:
        claims.append(given)
        if len(claims) == 1:
            raise OSError("no space left")
        claim(*given, **named)

    monkeypatch.setattr(manifest, "claim", full_at_first)
    checkpoints = Checkpointer(tmp_path)
    with pytest.raises(OSError, match="no space left"):
        checkpoints.save(1)
    checkpoints.save(2)
    assert len(claims) == 2


class Quantized(torch.nn.Linear):
    """A layer with a state that is no tensor."""

    extra: object = None

    def get_extra_state(self) -> object:
        return self.extra

    def set_extra_state(self, state: object) -> None:
        self.extra = state


def test_numbers_of_numpy_are_saved_as_numbers(tmp_path: Path) -> None:
    """A learning rate that numpy computed is one, in the optimizer and in its schedule."""
    model = Quantized(2, 2)
    model.extra = {"scale": np.float32(1.5)}
    computed = np.float64(np.cos(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=computed)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: np.float64(0.5))
    Checkpointer(tmp_path, model, optimizer, schedule=schedule).save(1)
    model.extra = {"scale": 0.0}
    optimizer.param_groups[0]["lr"] = 1.0
    assert Checkpointer(tmp_path, model, optimizer, schedule=schedule).load() == 1
    assert (model.extra, optimizer.param_groups[0]["lr"]) == ({"scale": 1.5}, float(computed) / 2)


@pytest.mark.parametrize(
    ("extra", "seen"),
    [
        (np.zeros(3), ": seen numpy.ndarray"),
        (io.BytesIO(b"scales"), ": seen _io.BytesIO"),
        ({"scales": [1.0, collections.deque([1.0])]}, "['scales'][1]: seen collections.deque"),
        ({"open": threading.Lock()}, "['open']: seen _thread.lock"),
        ((lambda: None,), "[0]: seen builtins.function"),
    ],
)
def test_state_of_a_layer_is_refused_when_saved(tmp_path: Path, extra: object, seen: str) -> None:
    model = Quantized(2, 2)
    model.extra = extra
    with pytest.raises(TypeError) as refused:
        Checkpointer(tmp_path, model).save(1)
    assert str(refused.value) == (
        f"model._extra_state[0]{seen}, expected numbers, text, tensors, and lists, tuples and "
        "dicts of these"
    )
    assert not steps(tmp_path)


@pytest.mark.parametrize("later", [None, {}, {"scale": 0.0, "unused": torch.ones(3)}])
def test_state_of_a_layer_is_read_back_whole(tmp_path: Path, later: object) -> None:
    """It grows while the layer is trained, and a new layer has less."""
    model = Quantized(2, 2)
    model.extra = {"scale": 1.5, "history": [2.0, None], 3: "int8"}
    Checkpointer(tmp_path, model).save(1)
    model.extra = later
    Checkpointer(tmp_path, model).load()
    assert model.extra == {"scale": 1.5, "history": [2.0, None], 3: "int8"}
