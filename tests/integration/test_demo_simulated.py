"""The demo on simulated nodes, as `make demo-simulated` runs it: it ends well or leaves nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from railwright_testbed import waiting

COMMAND = [sys.executable, "-m", "railwright_demo", "--simulated"]
DEADLINE_S = 180.0
END_DEADLINE_S = 30.0
CANNOT_HAVE = {
    "resume_seconds",
    "first_start_seconds",
    "losses_equal_uninterrupted",
    "first_loss",
    "final_loss",
}


@pytest.mark.alone
def test_a_node_falls_silent_and_the_gang_is_placed_anew(tmp_path: Path) -> None:
    answer = subprocess.run(
        COMMAND,
        env={**os.environ, "RAILWRIGHT_TESTBED_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    figures = json.loads(lines[-1])
    assert figures["succeeded"] is True
    assert (figures["steps"], figures["attempts"]) == (60, 2)
    assert (figures["pods"], figures["nodes"]) == (4, 5)
    assert 0 < figures["detect_seconds"] <= 30
    assert 0 <= figures["steps_redone"] <= figures["checkpoint_interval_steps"] == 10
    assert {name for name, value in figures.items() if value is None} == CANNOT_HAVE
    reported = [line for line in lines if line.startswith("20")]
    reasons = ["Scheduled", "Running", "NodeLost", "Recovering", "Scheduled", "Running"]
    assert [line.split()[2] for line in reported] == [*reasons, "Succeeded"]
    assert "\x1b" not in answer.stdout + answer.stderr, "nothing is redrawn without a terminal"
    assert list(tmp_path.glob("*/testbed.json")) == []


def test_an_interrupted_demo_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    log = tmp_path / "stderr"
    state = tmp_path / "state"
    with log.open("w") as stderr:
        demo = subprocess.Popen(
            COMMAND,
            env={**os.environ, "RAILWRIGHT_TESTBED_STATE": str(state)},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
    try:
        waiting.until(
            lambda: demo.poll() is not None or "Running, step" in log.read_text(),
            "a step of the simulated training",
            deadline_s=DEADLINE_S,
            evidence=log.read_text,
        )
        demo.send_signal(signal.SIGTERM)
        assert demo.wait(END_DEADLINE_S) == 128 + signal.SIGTERM, log.read_text()
    finally:
        demo.kill()
        demo.wait()
    assert "everything is cleaned up" in log.read_text()
    assert list(state.glob("*/")) == []
    assert not _mentioned_by_a_process(state)


def _mentioned_by_a_process(folder: Path) -> bool:
    """Whether any process of this machine was started with that folder in its arguments."""
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in arguments.read_bytes():
                return True
        except (FileNotFoundError, ProcessLookupError):
            continue
    return False
