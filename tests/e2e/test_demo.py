"""The demo on real nodes, as `make demo` starts it: every bar holds, or nothing is left of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from railwright_testbed import kernel_objects, waiting

COMMAND = [sys.executable, "-m", "railwright_demo"]
DEMO_DEADLINE_S = 900.0
END_DEADLINE_S = 120.0
GUARDIAN_DEADLINE_S = 60.0
DETECT_S_MAX = 30.0
RESUME_S_MAX = 30.0


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of this test's own with a short path, because kubelets make sockets below it."""
    path = Path(tempfile.mkdtemp(prefix="demo-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.alone
def test_the_demo_meets_every_bar(folder: Path) -> None:
    answer = subprocess.run(
        COMMAND,
        env=_environment(folder),
        capture_output=True,
        text=True,
        timeout=DEMO_DEADLINE_S,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    figures = json.loads(answer.stdout.splitlines()[-1])
    assert figures["succeeded"] is True
    assert (figures["steps"], figures["attempts"]) == (60, 2)
    assert (figures["pods"], figures["nodes"]) == (4, 5)
    assert figures["losses_equal_uninterrupted"] is True
    assert 0 < figures["detect_seconds"] <= DETECT_S_MAX
    assert 0 < figures["resume_seconds"] <= RESUME_S_MAX + figures["first_start_seconds"]
    assert 0 < figures["steps_redone"] <= figures["checkpoint_interval_steps"]
    assert figures["final_loss"] <= figures["first_loss"] / 2
    assert _left_over(folder) == []


@pytest.mark.parametrize(
    ("sign", "number"),
    [
        ("starting Kubernetes", signal.SIGINT),
        ("dies silently", signal.SIGTERM),
    ],
)
def test_a_demo_that_is_interrupted_leaves_nothing(
    folder: Path, sign: str, number: signal.Signals
) -> None:
    log = folder / "stderr"
    with log.open("w") as stderr:
        demo = subprocess.Popen(
            COMMAND, env=_environment(folder), stdout=subprocess.DEVNULL, stderr=stderr
        )
    try:
        waiting.until(
            lambda: demo.poll() is not None or _has_said(sign, folder),
            f"the demo to say {sign!r}",
            deadline_s=DEMO_DEADLINE_S,
            evidence=log.read_text,
        )
        started = [path.name.rpartition("-")[2] for path in _state(folder).glob("demo-*")]
        demo.send_signal(number)
        assert demo.wait(END_DEADLINE_S) == 128 + number, log.read_text()
    finally:
        demo.kill()
        demo.wait()
    assert "everything is cleaned up" in log.read_text()
    assert len(started) == 1
    # A guardian that had just been started ends by itself, once it sees that its owner is gone.
    waiting.until(
        lambda: not _left_over(folder),
        "the end of every process",
        deadline_s=GUARDIAN_DEADLINE_S,
        evidence=lambda: "\n".join(_left_over(folder)),
    )
    assert _left_in_the_kernel(started[0]) == []


def test_a_state_folder_with_too_long_a_path_is_refused_at_once(folder: Path) -> None:
    long = folder / ("long" * 20)
    answer = subprocess.run(
        COMMAND,
        env={**os.environ, "RAILWRIGHT_TESTBED_STATE": str(long)},
        capture_output=True,
        text=True,
        timeout=END_DEADLINE_S,
        check=False,
    )
    assert answer.returncode == 1
    assert "set RAILWRIGHT_TESTBED_STATE to a folder with at most" in answer.stderr
    assert not long.exists()


def _has_said(sign: str, folder: Path) -> bool:
    """Whether the demo has said so and its testbed has a folder by now."""
    started = any(_state(folder).glob("*/testbed.json"))
    return started and sign in (folder / "stderr").read_text()


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "RAILWRIGHT_TESTBED_STATE": str(_state(folder))}


def _state(folder: Path) -> Path:
    return folder / "state"


def _left_over(folder: Path) -> list[str]:
    """Testbeds, and processes that were started with their folder among the arguments."""
    left = [str(path) for path in _state(folder).glob("*/")]
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = arguments.read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(_state(folder)).encode() in text:
            left.append(text.replace(b"\0", b" ").decode(errors="replace"))
    return left


def _left_in_the_kernel(testbed_id: str) -> list[str]:
    """Network namespaces, links, mounts and control groups of a testbed."""
    names = [path.name for path in kernel_objects.NAMESPACES.glob("*")]
    names += [path.name for path in Path("/sys/class/net").iterdir()]
    names += Path("/proc/self/mountinfo").read_text().splitlines()
    for hierarchy in kernel_objects.cgroup_hierarchies():
        names += [path.name for path in hierarchy.iterdir()]
    return [name for name in names if testbed_id in name]
