"""A process beside a testbed that takes it away when its owner dies without having done so.

`python -m railwright_testbed.guardian STATE_FOLDER OWNER_PID OWNER_START_TICKS`
"""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

from railwright_testbed import processes, sweeping
from railwright_testbed.processes import Process, ProcessRecord
from railwright_testbed.state_folder import StateFolder


def start(folder: StateFolder) -> Process:
    description = folder.description
    source = str(Path(__file__).resolve().parent.parent)
    return Process(
        sweeping.GUARDIAN,
        [
            sys.executable,
            "-m",
            "railwright_testbed.guardian",
            str(folder.path),
            str(description.owner_pid),
            str(description.owner_start_ticks),
        ],
        log=folder.logs / "guardian.log",
        records=folder.records,
        environment={"PYTHONPATH": os.pathsep.join(filter(None, [source, _python_path()]))},
    )


def main(path: Path, owner: ProcessRecord) -> None:
    _wait_for_end(owner)
    folder = StateFolder(path, path.name.rpartition("-")[2])
    with sweeping.one_at_a_time():
        sweeping.sweep(folder)


def _python_path() -> str:
    return os.environ.get("PYTHONPATH", "")


def _wait_for_end(owner: ProcessRecord) -> None:
    try:
        descriptor = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        return
    try:
        # The descriptor becomes readable when the process ends. If the id was given to a
        # stranger before it was opened, the owner is gone already.
        if processes.is_alive(owner):
            select.select([descriptor], [], [])
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    main(Path(sys.argv[1]), ProcessRecord("owner", int(sys.argv[2]), int(sys.argv[3])))
