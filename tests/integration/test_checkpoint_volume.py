"""What a volume that fails for a while does to checkpoints: none is lost, and no training starts
from the beginning beside them.

A file system that answers with an error is a loop of links here, and a disk that fails a function
that raises its error."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from fixtures import launchers
from fixtures.tiny_training import Run
from railwright import environment, manifest, protocol
from railwright.protocol import Checkpoint


def _in_attempt(monkeypatch: pytest.MonkeyPatch, attempt: int, *resume: Checkpoint) -> None:
    """From here on, what is loaded and saved is this attempt's."""
    groups = (protocol.Group("worker", resume),)
    of_job = {
        environment.GROUP: "worker",
        environment.JOB_UID: launchers.JOB_UID,
        environment.ATTEMPT: str(attempt),
        environment.RESUME: protocol.encode(environment.Resume(groups)).decode(),
    }
    for name, value in of_job.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> manifest.Volume:
    """Attempt 1 has saved steps 10, 20 and 30, and attempt 2 may read all of them."""
    _in_attempt(monkeypatch, 1)
    run = Run(tmp_path, seed=0)
    for step in (10, 20, 30):
        run.train(1)
        run.checkpoints.save(step)
    _in_attempt(monkeypatch, 2, Checkpoint(1, 30))
    return manifest.Volume(tmp_path / launchers.JOB_UID, "worker")


@pytest.mark.parametrize("name", [manifest.NAME, "rank-0.pt"])
def test_attempt_does_not_begin_beside_a_volume_that_is_away(
    volume: manifest.Volume, tmp_path: Path, name: str
) -> None:
    """It fails, and the next one resumes."""
    newest = volume.checkpoint(Checkpoint(1, 30)) / name
    content = newest.read_bytes()
    newest.unlink()
    newest.symlink_to(name)
    with pytest.raises(OSError, match="symbolic links"):
        Run(tmp_path, seed=1).checkpoints.load()
    assert volume.steps(1) == [30, 20, 10]
    newest.unlink()
    newest.write_bytes(content)
    assert Run(tmp_path, seed=1).checkpoints.load() == 30


def test_bad_block_costs_one_checkpoint(
    volume: manifest.Volume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fail_reads(monkeypatch, "step-30")
    assert Run(tmp_path, seed=1).checkpoints.load() == 20
    assert volume.steps(1) == [30, 20, 10]


def test_training_does_not_start_over_on_a_disk_that_fails(
    volume: manifest.Volume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage of a network file system may look the same for all checkpoints."""
    _fail_reads(monkeypatch, "step-")
    with pytest.raises(OSError, match=r"no checkpoint can be read: attempt-1/worker/step-30: "):
        Run(tmp_path, seed=1).checkpoints.load()
    assert volume.steps(1) == [30, 20, 10]


def _fail_reads(monkeypatch: pytest.MonkeyPatch, within: str) -> None:
    """Reads of checkpoints with this in their names fail with EIO."""
    described = manifest.described

    def fail(folder: Path, names: Sequence[str]) -> list[manifest.File]:
        if within in folder.name:
            raise OSError(errno.EIO, "Input/output error")
        return described(folder, names)

    monkeypatch.setattr(manifest, "described", fail)


def test_checkpoints_after_a_backup_are_kept_aside(
    volume: manifest.Volume,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The restored store records step 5, which later ones have replaced."""
    _in_attempt(monkeypatch, 2, Checkpoint(1, 5))
    run = Run(tmp_path, seed=1)
    assert run.checkpoints.load() == 0
    for step in (1, 2, 3, 4):
        run.checkpoints.save(step)
    assert (volume.steps(2), volume.attempts()) == ([4, 3, 2], [2])
    (aside,) = tmp_path.glob("*/attempt-1/void-worker-*")
    assert sorted(path.name for path in aside.glob("step-*")) == ["step-10", "step-20", "step-30"]
    assert capsys.readouterr().err.count(f"what attempt 1 had saved is in {aside}") == 1


def test_later_attempts_of_before_a_restore_are_kept_aside(
    volume: manifest.Volume, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempt 4 has saved. The restored store knows attempt 1 alone; attempts 2 and 5 save."""
    _in_attempt(monkeypatch, 4, Checkpoint(1, 30))
    _saved(tmp_path, 1000, 1010, 1020)
    for attempt, resume, steps in ((2, (1, 5), (5,)), (5, (2, 5), (6, 7, 8, 9))):
        _in_attempt(monkeypatch, attempt, Checkpoint(*resume))
        _saved(tmp_path, *steps)
    (aside,) = tmp_path.glob("*/attempt-4/void-worker-*")
    assert sorted(path.name for path in aside.glob("step-*")) == [
        "step-1000",
        "step-1010",
        "step-1020",
    ]
    assert volume.steps(5) == [9, 8, 7]


def _saved(directory: Path, *steps: int) -> None:
    run = Run(directory, seed=0)
    for step in steps:
        run.checkpoints.save(step)
