"""Launchers as real processes, installed as in a pod, and what their ranks leave behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from railwright import install, wire
from worlds import operator_endpoint

JOB_UID = "0d9c-4e"


def environment_of(operator_url: str, folder: Path, *, node_rank: int = 0) -> dict[str, str]:
    """A pod's environment; its token and termination message lie in the folder."""
    token = folder / "token"
    token.write_text(operator_endpoint.TOKEN + "\n")
    termination = folder / f"termination-{node_rank}"
    termination.touch()
    return {
        "PATH": os.environ["PATH"],
        "TMPDIR": str(folder),
        "RAILWRIGHT_OPERATOR_URL": operator_url,
        "RAILWRIGHT_JOB_UID": JOB_UID,
        "RAILWRIGHT_JOB_NAME": "a-job",
        "RAILWRIGHT_ATTEMPT": "1",
        "RAILWRIGHT_NODE_RANK": str(node_rank),
        "RAILWRIGHT_NUM_PROCESSES": "1",
        "RAILWRIGHT_TOKEN_FILE": str(token),
        "RAILWRIGHT_TERMINATION_FILE": str(termination),
        "RAILWRIGHT_POD_IP": "127.0.0.1",
    }


@contextmanager
def launched(
    command: Sequence[str], environ: dict[str, str], folder: Path, *, through: Sequence[str] = ()
) -> Iterator[subprocess.Popen[str]]:
    """A launcher from an installed copy, without site-packages; killed if the test leaves it. It is
    started ``through`` a command that ends with an exec of its arguments."""
    installed = folder / "railwright"
    installed.mkdir(exist_ok=True)
    install.install(installed)
    process = subprocess.Popen(
        [*through, sys.executable, "-S", str(installed / "launch.py"), "--", *command],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def python(source: str) -> list[str]:
    """The command that runs this source."""
    return [sys.executable, "-c", source]


def termination_of(folder: Path, *, node_rank: int = 0) -> wire.Failure:
    """The termination message of a launcher that has ended."""
    return wire.decode(wire.Failure, (folder / f"termination-{node_rank}").read_bytes())


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
