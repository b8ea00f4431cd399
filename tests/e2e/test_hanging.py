"""Ranks that hang on real nodes: found by their steps, with the limits that users get."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fixtures.training import LiveJob, Training, script
from railwright_testbed import waiting

Run = Callable[[Training], LiveJob]
Volume = Callable[[str], dict[str, str]]

TRAIN = Path(__file__).resolve().parents[2] / "examples" / "ddp" / "train.py"
STEPS = 40
EVERY = 10

SAVES = """
import time, railwright
for step in range(1, 16):
    time.sleep(0.1)
    railwright.report(step)
with railwright.phase(railwright.Phase.CHECKPOINTING):
    time.sleep(120)
railwright.report(16)
"""


def test_stopped_rank_is_found_and_training_resumes(run: Run, checkpoints: Volume) -> None:
    """Two nodes of two ranks each; steps that are done again have the same losses. A job beside it
    saves for two minutes, longer than the rank may be silent, and is left alone."""
    saving = run(Training("saving", script(SAVES)))
    job = run(_training("stopped", checkpoints("stopped")))
    job.until(lambda status: _step(status) >= 2 * EVERY + 2, "steps after a checkpoint")
    pid = waiting.until(lambda: _pid(job, rank=2), "the process of rank 2", deadline_s=30)
    os.kill(pid, signal.SIGSTOP)
    before = _losses(job, attempt=1)
    status = job.until(
        lambda status: "lastTermination" in status, "the end of attempt 1", deadline_s=120
    )
    ended = status["lastTermination"]
    assert (ended["cause"], ended["rank"]) == ("Hung", 2)
    assert (status["hangs"], status["failures"]) == (1, 0)
    assert "lostNodes" not in ended
    assert re.search("rank 2 on [^ ]+ did not answer, its process is stopped", ended["message"])
    assert ended["lastLines"].startswith("rank 2: no answer, its process is stopped\n")
    assert "train.py" in ended["lastLines"], "where the others wait"
    status = job.until_phase("Succeeded", deadline_s=180)
    # The checkpoints that it committed since start the count of hangs again.
    assert (status["attempt"], status.get("hangs", 0), status["failures"]) == (2, 0, 0)
    assert job.events().index("Hung") < job.events().index("Recovering")
    resumed = _losses(job, attempt=2)
    assert (min(resumed) - 1) % EVERY == 0, "it resumed beside a checkpoint"
    done_again = resumed.keys() & before.keys()
    assert done_again, "no step was done twice"
    assert {step: resumed[step] for step in done_again} == {
        step: before[step] for step in done_again
    }
    status = saving.until_phase("Succeeded", deadline_s=240)
    assert (status["attempt"], status["restarts"]) == (1, 0)


def _training(name: str, volume: dict[str, str]) -> Training:
    command = ["python3", str(TRAIN), "--checkpoint-dir=/checkpoints", "--min-step-seconds=0.5"]
    command += [f"--steps={STEPS}", f"--checkpoint-every={EVERY}"]
    return Training(name, command, gpus=2, processes=2, volumes=volume)


def _pid(job: LiveJob, *, rank: int) -> int | None:
    """The process of a rank on this machine, on which the nodes are network namespaces."""
    marks = {f"RANK={rank}", f"RAILWRIGHT_JOB_NAME={job.name}"}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            reported = set((folder / "environ").read_bytes().decode(errors="replace").split("\0"))
        except OSError:
            continue
        if marks <= reported:
            return int(folder.name)
    return None


def _step(status: dict[str, Any]) -> int:
    return int(status.get("progress", {}).get("step", 0))


def _losses(job: LiveJob, *, attempt: int) -> dict[int, str]:
    found = re.findall(r"step=(\d+) loss=(\S+)", job.logs(attempt, 0))
    return {int(step): loss for step, loss in found}
