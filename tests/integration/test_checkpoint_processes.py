"""Several processes of one attempt, one after another: a command that starts a script again, or
another script after it."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from fixtures import launchers
from fixtures.operator_endpoint import OperatorEndpoint

SCRIPT = """
import os, sys, torch, railwright
model = torch.nn.Linear(2, 1)
checkpoints = railwright.Checkpointer(sys.argv[1], model)
first, weights = checkpoints.load(), model.weight.tolist()[0]
print("loaded", first, *(weights if first else ()), flush=True)
for step in range(first + 1, int(sys.argv[2]) + 1):
    with torch.no_grad():
        model.weight.fill_(step)
    checkpoints.save(step)
    if step == int(sys.argv[3]):
        os.kill(os.getpid(), 9)
"""


def loads(folder: Path, *runs: tuple[int, int]) -> list[str]:
    """What the script prints in runs of one attempt, each up to a step, and killed at one."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    called = [f"{sys.executable} {script} {folder}/volume {last} {dies}" for last, dies in runs]
    command = ["/bin/sh", "-c", "; ".join(called)]
    with OperatorEndpoint().listening() as operator:
        environ = launchers.environment_of(operator.url, folder)
        with launchers.launched(command, environ) as launcher:
            out, err = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, err
    return [line for line in out.splitlines() if line.startswith("loaded")]


def test_later_process_of_an_attempt_has_its_checkpoints(tmp_path: Path) -> None:
    """One that was killed goes on, and a script that evaluates afterwards has the newest."""
    assert loads(tmp_path, (4, 3), (4, 0), (0, 0)) == [
        "loaded 0",
        "loaded 3 3.0 3.0",
        "loaded 4 4.0 4.0",
    ]


def test_later_process_goes_back_behind_a_damaged_checkpoint(tmp_path: Path) -> None:
    """And saves that step again."""
    assert loads(tmp_path, (3, 0)) == ["loaded 0"]
    damaged = next(tmp_path.glob("volume/*/attempt-1/worker/step-3/*.pt"))
    damaged.write_bytes(b"")
    assert loads(tmp_path, (4, 0), (0, 0)) == ["loaded 2 2.0 2.0", "loaded 4 4.0 4.0"]
