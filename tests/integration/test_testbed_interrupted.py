"""A signal at any moment of a testbed's start leaves nothing unrecorded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from railwright_testbed import waiting

DEADLINE_S = 60.0
TRIES = 60

# Each try begins a process, and a signal comes while it does so. What it raises may be lost, in the
# finalizer of an object: so nothing here waits for it.
PROCESSES = """
import os, pathlib, random, signal, sys, threading
from railwright_testbed.processes import Process, read_records
folder = pathlib.Path(sys.argv[1])
draw = random.Random(1)
for number in range(int(sys.argv[2])):
    timer = threading.Timer(draw.uniform(0, 0.004), os.kill, (os.getpid(), signal.SIGINT))
    records = folder / f"records-{number}"
    try:
        timer.start()
        Process("sleeper", ["sleep", sys.argv[3]], log=folder / "log", records=records)
        timer.join()
    except KeyboardInterrupt:
        timer.join()
    for record in read_records(records):
        os.kill(record.pid, signal.SIGKILL)
"""

# Each try begins a testbed, and a signal comes as soon as its folder can be seen.
TESTBEDS = """
import os, pathlib, signal, sys, threading
from railwright_testbed import ControlPlane
def interrupt():
    while not any(pathlib.Path(sys.argv[1]).glob("*/testbed.json")):
        pass
    os.kill(os.getpid(), signal.SIGINT)
for _ in range(int(sys.argv[2])):
    watcher = threading.Thread(target=interrupt, daemon=True)
    watcher.start()
    try:
        with ControlPlane.start(name="interrupted"):
            watcher.join()
    except KeyboardInterrupt:
        watcher.join()
"""


def test_a_process_whose_start_is_interrupted_is_on_record(tmp_path: Path) -> None:
    seconds = str(900_000 + os.getpid())  # Told from everybody else's sleepers by it.
    _run(PROCESSES, str(tmp_path), str(TRIES), seconds)
    try:
        waiting.until(
            lambda: not _running(seconds), "the end of every sleeper", deadline_s=DEADLINE_S
        )
    finally:
        for pid in _running(seconds):
            os.kill(pid, signal.SIGKILL)


def test_a_testbed_whose_start_is_interrupted_leaves_no_folder(tmp_path: Path) -> None:
    state = tmp_path / "state"
    _run(TESTBEDS, str(state), str(TRIES // 3), RAILWRIGHT_TESTBED_STATE=str(state))
    waiting.until(
        lambda: not [*state.glob("*/")],
        "the removal of every folder",
        deadline_s=DEADLINE_S,
        evidence=lambda: "\n".join(map(str, state.glob("*/*"))),
    )


def _run(program: str, *arguments: str, **environment: str) -> None:
    command = [sys.executable, "-c", program, *arguments]
    subprocess.run(command, env={**os.environ, **environment}, check=True, timeout=300)


def _running(seconds: str) -> list[int]:
    found = subprocess.run(
        ["pgrep", "--full", f"^sleep {seconds}$"], capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in found.stdout.split()]
