"""Pre-runs on this machine: a script's ranks started as torchrun does, and what they recorded."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from railwright import profile
from railwright.profile import Profile

TIMEOUT_S = 300
RECORDED_STEPS = 3


def recorded(command: Sequence[str], *, ranks: int) -> Profile:
    """What so many ranks of this command recorded of some steps. Raises what the first rank that
    failed wrote, or what its recording lacks."""
    with tempfile.TemporaryDirectory() as folder:
        run(command, ranks=ranks, folder=Path(folder))
        parts = [profile.recorded(path.read_bytes()) for path in Path(folder).glob("rank-*.json")]
    return profile.merged(parts)


def run(command: Sequence[str], *, ranks: int, folder: Path) -> None:
    """Runs them to their end, asked to leave what they record in the folder."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "RAILWRIGHT_PROFILE_STEPS": str(RECORDED_STEPS),
        "RAILWRIGHT_PROFILE_FOLDER": str(folder),
    }
    processes = [
        subprocess.Popen(
            command,
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        errors = [process.communicate(timeout=TIMEOUT_S)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    failed = [error for process, error in zip(processes, errors, strict=True) if process.returncode]
    if failed:
        raise RuntimeError(f"{len(failed)} of {ranks} ranks failed: {failed[0][-2_000:]}")
