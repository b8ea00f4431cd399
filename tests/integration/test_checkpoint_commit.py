"""Saving, committing and loading, with real sockets of a launcher and responses of an operator."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from fixtures import launchers
from fixtures.checkpoints import verified
from fixtures.operator_endpoint import OperatorEndpoint
from fixtures.tiny_training import Run
from railwright import (
    AttemptRevoked,
    Checkpointer,
    channel,
    environment,
    manifest,
    protocol,
    reporting,
)
from railwright.protocol import Checkpoint
from railwright_testbed import waiting


@pytest.fixture
def operator() -> Iterator[OperatorEndpoint]:
    with OperatorEndpoint().listening() as listening:
        yield listening


@pytest.fixture
def state(
    operator: OperatorEndpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[reporting.LauncherState]:
    """This process is rank 0 of a job's first attempt, with the launcher's real commit desk."""
    environ = launchers.environment_of(operator.url, tmp_path)
    pod = environment.pod(environ)
    world = protocol.WorldInfo(
        *(1, 1, 0, "127.0.0.1", 29500), group_rank=0, role_rank=0, role_size=1, group="worker"
    )
    server = channel.ChannelServer()
    state = reporting.LauncherState(pod.member, world, ranks=range(1), folder=server.folder)
    desk = reporting.CommitDesk(pod, state)
    server.start(state.report, desk.answer)
    of_job = {
        environment.CHANNEL: str(server.folder),
        environment.RESUME: '{"groups":[{"name":"worker"}]}',
        environment.GROUP: "worker",
        environment.JOB_UID: launchers.JOB_UID,
        environment.ATTEMPT: "1",
    }
    for name, value in of_job.items():
        monkeypatch.setenv(name, value)
    yield state
    server.close()
    desk.close()


def in_attempt(
    monkeypatch: pytest.MonkeyPatch, attempt: int, resume: tuple[Checkpoint, ...]
) -> None:
    """From here on, what is loaded and saved is another attempt's."""
    groups = (protocol.Group("worker", resume),)
    text = protocol.encode(environment.Resume(groups)).decode()
    monkeypatch.setenv(environment.ATTEMPT, str(attempt))
    monkeypatch.setenv(environment.RESUME, text)


def saved(directory: Path, *steps: int) -> Path:
    """A run that has saved these steps; returns the folder of its attempt."""
    run = Run(directory, seed=0)
    for step in steps:
        run.train(1)
        run.checkpoints.save(step)
    return volume(directory).attempt(1)


def volume(directory: Path) -> manifest.Volume:
    """The checkpoints of the job's workers."""
    return manifest.Volume(directory / launchers.JOB_UID, "worker")


def test_commit_is_requested_then_made_then_reported(
    operator: OperatorEndpoint, state: reporting.LauncherState, tmp_path: Path
) -> None:
    attempt = saved(tmp_path, 1, 2)
    assert [commit.step for commit in operator.commits] == [1, 2]
    assert (attempt / "step-2" / manifest.NAME).exists()
    assert state.next_heartbeat().committed == Checkpoint(1, 2)
    cost = state.next_heartbeat().saved
    assert cost is not None
    files = [path for path in (attempt / "step-2").iterdir() if path.name != manifest.NAME]
    assert cost.size_bytes == sum(path.stat().st_size for path in files)
    assert 0 < cost.seconds < 60
    # Reports come by datagram, behind the answers to commits: the last of them may be on its way.
    waiting.until(lambda: _is_done_saving(state), "the end of the phase", deadline_s=10)


def _is_done_saving(state: reporting.LauncherState) -> bool:
    progress = state.next_heartbeat().progress
    return progress is None or progress.phase is not protocol.Phase.CHECKPOINTING


def test_commit_that_is_refused_for_good_is_asked_once(
    operator: OperatorEndpoint, state: reporting.LauncherState, tmp_path: Path
) -> None:
    """The checkpoint counts, as it would without a response, and the save does not wait."""
    operator.status = 400
    saved(tmp_path, 1)
    assert len(operator.tokens) == 1
    assert volume(tmp_path).is_complete(Checkpoint(1, 1))


def test_heartbeat_without_a_response_is_followed_by_the_steps(
    operator: OperatorEndpoint, state: reporting.LauncherState, tmp_path: Path
) -> None:
    pod = environment.pod(launchers.environment_of(operator.url, tmp_path))
    reporter = reporting.Reporter(pod, state, tmp_path)
    for status, is_taken in ((200, True), (503, False), (200, True)):
        operator.status = status
        assert reporter._send() is is_taken
    reporter._operator.close()
    assert [each.steps is not None for each in operator.heartbeats] == [True, True]


def test_refused_commit_renames_nothing_and_raises(
    operator: OperatorEndpoint, state: reporting.LauncherState, tmp_path: Path
) -> None:
    operator.refused_steps = (2,)
    with pytest.raises(AttemptRevoked, match="attempt 2 has begun"):
        saved(tmp_path, 1, 2)
    assert not volume(tmp_path).is_complete(Checkpoint(1, 2))
    assert verified(volume(tmp_path), Checkpoint(1, 1))
    assert state.revoked == "attempt 2 has begun"
    assert state.next_heartbeat().committed == Checkpoint(1, 1)


def test_operator_outage_delays_commit_5_s_and_removes_nothing(
    operator: OperatorEndpoint,
    state: reporting.LauncherState,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The checkpoint counts after the time-out, and old checkpoints are kept."""
    run = Run(tmp_path, seed=0)
    checkpoints = Checkpointer(tmp_path, run.model, run.optimizer, keep=1)
    checkpoints.save(1)
    operator.status = 503
    started = time.monotonic()
    checkpoints.save(2)
    assert 4.5 < time.monotonic() - started < 20
    assert state.next_heartbeat().committed == Checkpoint(1, 2)
    # This attempt may be a revoked one, and step 1 all that the next attempt may read.
    assert volume(tmp_path).steps(1) == [2, 1]
    assert "step-2 without a response of the operator (503 as " in capsys.readouterr().err
    operator.status = 200
    checkpoints.save(3)
    assert volume(tmp_path).steps(1) == [3]


def test_torn_newest_checkpoint_is_skipped_and_reported(
    state: reporting.LauncherState,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    attempt = saved(tmp_path, 1, 2, 3)
    (attempt / "step-3" / manifest.NAME).unlink()
    shard = next((attempt / "step-2").glob("__0_*"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    in_attempt(monkeypatch, 2, (Checkpoint(1, 3),))
    assert Run(tmp_path, seed=7).checkpoints.load() == 1
    assert state.next_heartbeat().skipped == (
        "attempt-1/worker/step-3: there is no manifest.json",
        f"attempt-1/worker/step-2: {shard.name} is not as it was written",
    )
    assert state.next_heartbeat().resumed_from == Checkpoint(1, 1)
    errors = capfd.readouterr().err
    assert "railwright: skipped attempt-1/worker/step-3: there is no manifest.json" in errors
    assert "railwright: resumed from attempt-1/worker/step-1" in errors


def test_nothing_above_the_resume_point_is_read(
    state: reporting.LauncherState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, 1, 2, 3)
    in_attempt(monkeypatch, 2, (Checkpoint(1, 2),))
    assert Run(tmp_path, seed=7).checkpoints.load() == 2
    assert state.next_heartbeat().skipped == ()
    in_attempt(monkeypatch, 2, ())
    assert Run(tmp_path, seed=7).checkpoints.load() == 0


def test_restarted_local_run_resumes_and_keeps_three(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an operator, a second run loads the newest checkpoint and keeps three."""
    for name in (environment.CHANNEL, environment.RESUME, environment.JOB_UID):
        monkeypatch.delenv(name, raising=False)
    first = Run(tmp_path, seed=0)
    assert first.checkpoints.load() == 0
    for step in (1, 2):
        first.train(1)
        first.checkpoints.save(step)
    del first.checkpoints
    second = Run(tmp_path, seed=7)
    assert second.checkpoints.load() == 2
    assert second.contents() == first.contents()
    for step in (3, 4):
        second.checkpoints.save(step)
        second.checkpoints.save(step)
    local = manifest.Volume(tmp_path / "local", "default")
    assert (local.steps(2), local.steps(1)) == ([4, 3], [2])


def test_attempt_goes_back_to_its_own_checkpoint(
    state: reporting.LauncherState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a script does whose loss became NaN. The steps after it are trained, and saved, again."""
    in_attempt(monkeypatch, 2, (Checkpoint(1, 9),))
    run = Run(tmp_path, seed=0)
    for step in (10, 20, 30):
        run.train(1)
        run.checkpoints.save(step)
        if step == 20:
            contents = run.contents()
    next(volume(tmp_path).checkpoint(Checkpoint(2, 30)).glob("__0_*")).write_bytes(b"")
    with torch.no_grad():
        next(run.model.parameters()).fill_(torch.nan)
    assert run.checkpoints.load() == 20
    assert run.contents() == contents
    assert volume(tmp_path).steps(2) == [20, 10]
    run.checkpoints.save(30)
    assert verified(volume(tmp_path), Checkpoint(2, 30))
    heartbeat = state.next_heartbeat()
    assert (heartbeat.committed, heartbeat.resumed_from) == (Checkpoint(2, 30), None)


def test_attempt_goes_back_to_step_0(
    state: reporting.LauncherState, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_attempt(monkeypatch, 2, ())
    run = Run(tmp_path, seed=0)
    for step in (0, 10):
        run.checkpoints.save(step)
    next(volume(tmp_path).checkpoint(Checkpoint(2, 10)).glob("__0_*")).write_bytes(b"")
    assert run.checkpoints.load() == 0
    assert volume(tmp_path).steps(2) == [0]
    assert state.next_heartbeat().committed == Checkpoint(2, 10)


@pytest.mark.parametrize("earlier", [(Checkpoint(1, 9),), ()])
def test_attempt_whose_checkpoints_are_damaged_saves_again(
    state: reporting.LauncherState,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    earlier: tuple[Checkpoint, ...],
) -> None:
    saved(tmp_path, 9)
    in_attempt(monkeypatch, 2, earlier)
    run = Run(tmp_path, seed=0)
    for step in (10, 20):
        run.checkpoints.save(step)
        next(volume(tmp_path).checkpoint(Checkpoint(2, step)).glob("__0_*")).write_bytes(b"")
    assert run.checkpoints.load(after=20) == 0
    assert volume(tmp_path).steps(2) == [20, 10]
    assert run.checkpoints.load() == (9 if earlier else 0)
    assert volume(tmp_path).steps(2) == []
    for step in (10, 20):
        run.checkpoints.save(step)
        assert verified(volume(tmp_path), Checkpoint(2, step))
    assert state.next_heartbeat().committed == Checkpoint(2, 20)


def test_unreadable_state_is_refused_when_saved(tmp_path: Path) -> None:
    """A state that `load` would refuse is refused by `save` already."""

    class Open:
        def state_dict(self) -> dict[str, object]:
            return {"path": tmp_path}

        def load_state_dict(self, state: object) -> None:
            raise AssertionError(state)

    run = Run(tmp_path, seed=0)
    checkpoints = Checkpointer(tmp_path, run.model, run.optimizer, reader=Open())
    refusal = r"^state\['others'\]\['reader'\]\['path'\]: seen pathlib.*, expected numbers, text"
    with pytest.raises(TypeError, match=refusal):
        checkpoints.save(1)
    assert manifest.Volume(tmp_path / "local", "default").steps(1) == []


@pytest.mark.parametrize("limit_bytes", [0, 3000])
def test_full_disk_is_reported_and_step_can_be_saved_later(
    tmp_path: Path, limit_bytes: int
) -> None:
    """The failed save raises with the rank and the error, and leaves nothing on the disk."""
    run = Run(tmp_path, seed=0)
    of_workers = manifest.Volume(tmp_path / "local", "default")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        with pytest.raises(OSError, match=r"rank 0: .*File too large"):
            run.checkpoints.save(1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert of_workers.steps(1) == []
    run.checkpoints.save(1)
    assert channel.ask(channel.Request()).granted
    assert verified(of_workers, Checkpoint(1, 1))
