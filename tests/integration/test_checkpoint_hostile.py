"""Checkpoints with code for the process that loads them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import default_planner
from torch.distributed.checkpoint.metadata import Metadata

from fixtures.tiny_training import Run
from railwright import environment, manifest, planners, shard_metadata, training_state

METADATA = ".metadata"
HEAD = b"\x80\x04"
"""The first bytes of torch's pickle; what is put behind them is run first of all."""


@pytest.fixture(autouse=True)
def outside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (environment.CHANNEL, environment.RESUME, environment.JOB_UID):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """The folder of a checkpoint, trained for so that the optimiser has a state."""
    run = Run(tmp_path / "volume", seed=0)
    run.train(1)
    run.checkpoints.save(1)
    return tmp_path / "volume" / "local" / "attempt-1" / "default" / "step-1"


def load(folder: Path) -> int:
    return Run(folder.parents[3], seed=7).checkpoints.load()


def replace(folder: Path, name: str, content: bytes) -> None:
    """Put a file in place of another, and its hash into the manifest: nothing is torn."""
    (folder / name).write_bytes(content)
    path = folder / manifest.NAME
    contents = json.loads(path.read_bytes())
    (entry,) = [each for each in contents["files"] if each["name"] == name]
    entry |= {"size_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    path.write_text(json.dumps(contents))


def call(module: str, name: str, argument: str) -> bytes:
    """Pickle operations that call a function, and drop what it returns."""
    return f"c{module}\n{name}\n(V{argument}\ntR0".encode()


class Touch:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, int]]:
        return os.open, (str(self._path), os.O_CREAT)


def test_checkpoint_is_read_with_allowed_classes(saved: Path) -> None:
    assert load(saved) == 1
    assert (saved / METADATA).read_bytes().startswith(HEAD)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "mkdir"),
        ("posix", "mkdir"),
        ("os", "system"),
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("torch", "load"),
        ("torch.serialization", "load"),
        ("torch", "ops.load_library"),
        ("torch.distributed.checkpoint.metadata", "os.system"),
        ("torch.distributed.checkpoint.filesystem", "FileSystem"),
    ],
)
def test_crafted_metadata_is_refused(saved: Path, module: str, name: str) -> None:
    """The rest of it is what torch wrote: whoever ran it would see nothing."""
    marker = saved.parents[4] / "executed"
    whole = (saved / METADATA).read_bytes()
    argument = str(marker) if name == "mkdir" else f"open({str(marker)!r}, 'w')"
    replace(saved, METADATA, HEAD + call(module, name, argument) + whole[len(HEAD) :])
    with pytest.raises(shard_metadata.MetadataError, match="nothing that a checkpoint holds"):
        load(saved)
    assert not marker.exists()


def test_crafted_metadata_changes_no_class(saved: Path) -> None:
    """A pickle may set attributes of whatever it names, without calling anything."""
    before = dict(vars(Metadata))
    whole = (saved / METADATA).read_bytes()
    attributes = b"ctorch.distributed.checkpoint.metadata\nMetadata\n(N}VVersion\nI1\nstb0"
    replace(saved, METADATA, HEAD + attributes + whole[len(HEAD) :])
    with pytest.raises(shard_metadata.MetadataError, match="changes classes of torch"):
        load(saved)
    assert dict(vars(Metadata)) == before


@pytest.mark.parametrize("target", ["../../../secret", "/etc/hostname", "__0_0.distcp/../x"])
def test_metadata_names_files_of_its_folder_alone(saved: Path, target: str) -> None:
    whole = (saved / METADATA).read_bytes()
    name = b"__0_0.distcp"
    longer = target.encode()
    assert whole.count(b"\x8c" + bytes([len(name)]) + name) == 1
    changed = whole.replace(
        b"\x8c" + bytes([len(name)]) + name, b"\x8c" + bytes([len(longer)]) + longer
    )
    replace(saved, METADATA, unframed(changed))
    with pytest.raises(shard_metadata.MetadataError, match="is not a file of this folder"):
        load(saved)


def unframed(data: bytes) -> bytes:
    """Without the first frame's length, which no longer holds."""
    assert data[2:3] == b"\x95"
    return data[:2] + data[11:]


def test_metadata_without_end_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_metadata, "BYTES_MAX", 64)
    with pytest.raises(shard_metadata.MetadataError, match="more than 64 bytes"):
        load(saved)


def test_crafted_value_is_refused(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is no tensor, such as a learning rate, lies beside the tensors as a pickle."""
    marker = tmp_path / "executed"
    run = Run(tmp_path / "other", seed=0)
    run.train(1)
    run.optimizer.param_groups[0]["lr"] = Touch(marker)
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    with monkeypatch.context() as patched:
        patched.setattr(planners, "SavePlanner", default_planner.DefaultSavePlanner)
        training_state.save_shards(hostile, run.model, [run.optimizer])
    (shard,) = hostile.glob("__0_*")
    replace(saved, shard.name, shard.read_bytes())
    replace(saved, METADATA, (hostile / METADATA).read_bytes())
    with pytest.raises(Exception, match="Weights only load failed"):
        load(saved)
    assert not marker.exists()


def test_crafted_state_of_a_rank_is_refused(saved: Path, tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    torch.save({"random": Touch(marker), "others": {}}, tmp_path / "rank")
    replace(saved, "rank-0.pt", (tmp_path / "rank").read_bytes())
    with pytest.raises(Exception, match="Weights only load failed"):
        load(saved)
    assert not marker.exists()
