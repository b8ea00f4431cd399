"""Checkpoints of two groups of one job: each resumes from its own, and one follows the other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fixtures import launchers
from fixtures.tiny_training import Places, Run
from railwright import Checkpointer, environment, manifest, protocol, training_state
from railwright.protocol import Checkpoint, Group

WORKERS_RUN = "10.0.0.1:20001"

Rank = Callable[..., None]


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Rank:
    """Make this process rank 0 of a group, in an attempt with these resume points."""

    def become(group: str, attempt: int = 1, **resume: tuple[Checkpoint, ...]) -> None:
        groups = tuple(
            Group(name, resume.get(name, ()), WORKERS_RUN if name == "worker" else "10.0.0.2:7")
            for name in ("worker", "evaluator", *resume.keys() - {"worker", "evaluator"})
        )
        values = {
            environment.JOB_UID: launchers.JOB_UID,
            environment.GROUP: group,
            environment.ATTEMPT: str(attempt),
            environment.RESUME: protocol.encode(environment.Resume(groups)).decode(),
            # As a script may set them for a rendezvous of its own.
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": "12355",
        }
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv(environment.CHANNEL, raising=False)

    return become


def workers(directory: Path) -> manifest.Volume:
    return manifest.Volume(directory / launchers.JOB_UID, "worker")


def follower(directory: Path) -> tuple[torch.nn.Module, Checkpointer]:
    """An evaluator's model, without an optimiser, and the workers' checkpoints."""
    model = Run(directory, seed=7).model
    return model, Checkpointer(directory, model, group="worker")


def test_follower_skips_what_it_cannot_read(tmp_path: Path, rank: Rank) -> None:
    """The workers may remove it at that moment; the next load finds it again."""
    rank("worker")
    run = Run(tmp_path, seed=0)
    for step in (10, 20):
        run.checkpoints.save(step)
    rank("evaluator", worker=())
    _, checkpoints = follower(tmp_path)
    newest = workers(tmp_path).checkpoint(Checkpoint(1, 20)) / "rank-0.pt"
    content = newest.read_bytes()
    newest.unlink()
    newest.symlink_to(newest.name)
    assert checkpoints.load() == 10
    newest.unlink()
    newest.write_bytes(content)
    assert checkpoints.load() == 20


def weights(model: torch.nn.Module) -> list[float]:
    return torch.cat([parameter.flatten() for parameter in model.parameters()]).tolist()


def test_evaluator_follows_the_checkpoints_of_workers(tmp_path: Path, rank: Rank) -> None:
    """It loads each newer one of the current attempt, and before that those of earlier ones."""
    rank("worker")
    run = Run(tmp_path, seed=0)
    for step in (10, 20):
        run.checkpoints.save(step)
    caps = {"worker": (Checkpoint(1, 10),)}
    rank("evaluator", 2, **caps)
    model, followed = follower(tmp_path)
    assert followed.load() == 10
    assert followed.load(after=10) == 0
    rank("worker", 2, **caps)
    del run.checkpoints
    again = Run(tmp_path, seed=1)
    assert again.checkpoints.load() == 10
    again.train(1)
    again.checkpoints.save(15)
    rank("evaluator", 2, **caps)
    state = torch.get_rng_state()
    assert followed.load(after=10) == 15
    assert weights(model) == weights(again.model)
    assert torch.equal(torch.get_rng_state(), state), "it has random numbers of its own"


def test_follower_saves_nothing(tmp_path: Path, rank: Rank) -> None:
    rank("evaluator")
    _, followed = follower(tmp_path)
    words = "checkpoints of group worker, which only its ranks save: save those of group evaluator"
    with pytest.raises(RuntimeError, match=words):
        followed.save(10)
    assert not (tmp_path / launchers.JOB_UID).exists()


def test_each_group_resumes_from_its_own_checkpoint(tmp_path: Path, rank: Rank) -> None:
    """An evaluator without a model saves what it knows, at steps of its own."""
    rank("worker")
    Run(tmp_path, seed=0).checkpoints.save(30)
    rank("evaluator")
    best = Places()
    best.position = 5
    Checkpointer(tmp_path, best=best).save(20)
    rank("evaluator", 2, worker=(Checkpoint(1, 30),), evaluator=(Checkpoint(1, 20),))
    restored = Places()
    assert Checkpointer(tmp_path, best=restored).load() == 20
    assert restored.position == 5
    rank("evaluator", 3, worker=(Checkpoint(1, 30),))
    assert Checkpointer(tmp_path, best=restored).load() == 0


def test_unknown_group_is_refused_with_those_there_are(tmp_path: Path, rank: Rank) -> None:
    """A group of an earlier spec can still be read; in a pre-run all others are missing."""
    rank("evaluator", 2, renamed=(Checkpoint(1, 30),))
    expected = "group: seen 'workers', expected one of worker, evaluator, renamed"
    with pytest.raises(ValueError, match=expected):
        Checkpointer(tmp_path, group="workers")
    assert Checkpointer(tmp_path, group="renamed").load() == 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(environment.PRE_RUN, "true")
        assert Checkpointer(tmp_path, group="workers").load() == 0


def test_unfinished_and_earlier_runs_are_not_followed(tmp_path: Path, rank: Rank) -> None:
    """After a restore of etcd the folder of an attempt may be that of an earlier run."""
    rank("worker")
    Run(tmp_path, seed=0).checkpoints.save(10)
    manifest.begin(workers(tmp_path).checkpoint(Checkpoint(1, 20)))
    rank("evaluator")
    _, followed = follower(tmp_path)
    assert followed.load() == 10
    (workers(tmp_path).attempt(1) / manifest.RUN).write_text("10.0.0.9:20009")
    assert followed.load() == 0


def test_checkpoint_removed_while_loaded_is_replaced(
    tmp_path: Path, rank: Rank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers remove old checkpoints when they like; the evaluator takes a newer one."""
    rank("worker")
    run = Run(tmp_path, seed=0)
    run.checkpoints.save(10)
    rank("evaluator")
    model, followed = follower(tmp_path)
    load_shards = training_state.load_shards

    def removed(folder: Path, *given: object) -> None:
        if folder.name == "step-10":
            shutil.rmtree(folder)
            rank("worker")
            run.train(1)
            run.checkpoints.save(20)
        load_shards(folder, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(training_state, "load_shards", removed)
    assert followed.load() == 20
    assert weights(model) == weights(run.model)


@pytest.mark.parametrize("role", ["../other", "a/b", "", "-a"])
def test_role_that_is_no_folder_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    """Outside a job the group is the role that torchrun was started with."""
    for name in (environment.GROUP, environment.RESUME, environment.JOB_UID):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROLE_NAME", role)
    with pytest.raises(ValueError, match=r"ROLE_NAME: seen .*, expected letters, digits"):
        Checkpointer(tmp_path)
    monkeypatch.setenv("ROLE_NAME", "worker")
    Checkpointer(tmp_path).save(1)
    assert manifest.Volume(tmp_path / "local", "worker").steps(1) == [1]
