"""The examples as users run them: under real launchers, killed, started again, and compared."""

from __future__ import annotations

import re
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fixtures import launchers
from fixtures.checkpoints import verified
from fixtures.operator_endpoint import OperatorEndpoint, until
from railwright import manifest, protocol
from railwright.protocol import Checkpoint

EXAMPLES = Path(__file__).parents[2] / "examples"
TIMEOUT_S = 300
STEP = re.compile(r"^(?:\[rank 0\] )?step=(\d+) loss=(\S+)$", re.MULTILINE)

REVOKED = """if 1:
    import signal, sys
    from pathlib import Path
    import torch.distributed as dist
    import railwright
    from fixtures.tiny_training import Run
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dist.init_process_group("gloo")
    run = Run(Path(sys.argv[1]), seed=0)
    try:
        for step in (1, 2):
            run.train(1)
            run.checkpoints.save(step)
    except railwright.AttemptRevoked as revoked:
        print(f"revoked: {revoked}", flush=True)
    dist.destroy_process_group()
"""


def losses_of(printed: str) -> dict[int, str]:
    """The loss of each step, as printed: with every digit."""
    return {int(step): loss for step, loss in STEP.findall(printed)}


def command_of(example: str, directory: Path, *, steps: int) -> list[str]:
    script = str(EXAMPLES / example / "train.py")
    options = [f"--steps={steps}", "--checkpoint-every=5", f"--checkpoint-dir={directory}"]
    return [sys.executable, script, *options]


def environment_of(url: str, folder: Path, **changes: str) -> dict[str, str]:
    environ = launchers.environment_of(url, folder) | {"RAILWRIGHT_NUM_PROCESSES": "2"}
    return environ | changes


def killed_at(step: int, command: list[str], *, operator: OperatorEndpoint, folder: Path) -> str:
    """What a launcher's ranks printed until it was killed, right after they printed this step."""
    environ = environment_of(operator.url, folder)
    printed = ""
    with launchers.launched(command, environ) as launcher:
        assert launcher.stdout is not None
        while step not in losses_of(printed):
            line = launcher.stdout.readline()
            assert line, "ended before its time"
            printed += line
        launcher.send_signal(signal.SIGKILL)
        printed += launcher.stdout.read()
    return printed


@pytest.mark.parametrize("example", ["ddp", "deepspeed", "fsdp"])
def test_killed_example_resumes_with_equal_losses(tmp_path: Path, example: str) -> None:
    """Its losses equal those of a run that was not killed."""
    steps = 40
    with OperatorEndpoint().listening() as operator:
        alone = command_of(example, tmp_path / "uninterrupted", steps=steps)
        with launchers.launched(alone, environment_of(operator.url, tmp_path)) as launcher:
            whole = losses_of(launcher.communicate(timeout=TIMEOUT_S)[0])
        assert list(whole) == list(range(1, steps + 1))
        assert float(whole[steps]) <= float(whole[1]) / 2

        directory = tmp_path / "killed"
        # Paced, so that it is not over before the signal comes.
        command = [*command_of(example, directory, steps=steps), "--min-step-seconds=0.2"]
        before = losses_of(killed_at(13, command, operator=operator, folder=tmp_path))
        assert max(before) < steps, "it was killed too late to matter"
        newest = manifest.Volume(directory / launchers.JOB_UID, "worker").steps(1)[0]
        operator.resume = (Checkpoint(1, newest),)
        environ = environment_of(operator.url, tmp_path, RAILWRIGHT_ATTEMPT="2")
        with launchers.launched(command, environ) as launcher:
            after = losses_of(launcher.communicate(timeout=TIMEOUT_S)[0])
    resumed_from = operator.heartbeats[-1].resumed_from
    assert resumed_from is not None
    assert min(after) == resumed_from.step + 1 > 10
    assert before | after == whole
    assert all(whole[step] == loss for step, loss in before.items())
    last = operator.heartbeats[-1]
    assert last.committed == Checkpoint(2, steps)
    assert last.progress is not None
    assert (last.progress.samples_per_s is not None) == (example == "ddp")
    reached = protocol.Progress(steps, steps, loss=float(whole[steps]))
    assert replace(last.progress, samples_per_s=None) == reached


def test_script_without_railwright_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "plain" / "train.py")]
    with OperatorEndpoint().listening() as operator:
        environ = environment_of(operator.url, tmp_path)
        with launchers.launched(command, environ) as launcher:
            printed, _ = launcher.communicate(timeout=TIMEOUT_S)
    assert launcher.returncode == 0
    assert float(losses_of(printed)[100]) < float(losses_of(printed)[10])


def test_refused_commit_reaches_every_rank_before_launcher_ends(tmp_path: Path) -> None:
    """Each rank raises for a revoked attempt before the launcher ends the ranks."""
    with OperatorEndpoint(refused_steps=(2,)).listening() as operator:
        tests = str(Path(__file__).parents[1])
        environ = environment_of(operator.url, tmp_path, PYTHONPATH=tests)
        command = [*launchers.python(REVOKED), str(tmp_path / "checkpoints")]
        with launchers.launched(command, environ) as launcher:
            printed, _ = launcher.communicate(timeout=TIMEOUT_S)
        assert launcher.returncode == 80
        until(lambda: bool(operator.heartbeats))
    assert sorted(printed.splitlines()) == [
        "[rank 0] revoked: attempt 2 has begun",
        "[rank 1] revoked: attempt 2 has begun",
    ]
    # One that was answered late is asked again.
    assert list(dict.fromkeys(commit.step for commit in operator.commits)) == [1, 2]
    volume = manifest.Volume(tmp_path / "checkpoints" / launchers.JOB_UID, "worker")
    assert verified(volume, Checkpoint(1, 1)).world_size == 2
    with pytest.raises(manifest.TornError):
        verified(volume, Checkpoint(1, 2))
