"""The state folder of a testbed, by which a crashed one is found.

Every testbed owns one folder. It names the testbed's id, which all its kernel objects carry in
their names, its processes, and its owner: the Python process that will clean up. A folder whose
owner is gone, and that was not left running on purpose, belongs to a crashed testbed.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from railwright_testbed import processes
from railwright_testbed.errors import TestbedError
from railwright_testbed.processes import ProcessRecord

_DESCRIPTION = "testbed.json"


@dataclass(frozen=True, slots=True)
class Description:
    """The public state of a testbed."""

    name: str
    testbed_id: str
    owner_pid: int
    owner_start_ticks: int
    # Left running on purpose: it has no owner, and only `down` ends it.
    detached: bool = False


@dataclass(frozen=True, slots=True)
class StateFolder:
    """The folder of one testbed."""

    path: Path
    testbed_id: str

    @property
    def records(self) -> Path:
        return self.path / "processes"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def description(self) -> Description:
        return Description(**json.loads((self.path / _DESCRIPTION).read_text()))

    def make(self) -> None:
        """Put it on disk, owned by this process."""
        self.path.mkdir(parents=True, mode=0o755)
        owner = processes.record_of(os.getpid(), "owner")
        assert owner is not None, "this process runs, so it has a record"
        name = self.path.name.removesuffix(f"-{self.testbed_id}")
        _write(self.path, Description(name, self.testbed_id, owner.pid, owner.start_ticks))

    def detach(self) -> None:
        _write(self.path, replace(self.description, detached=True))


def root() -> Path:
    chosen = os.environ.get("RAILWRIGHT_TESTBED_STATE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base).absolute() / "railwright" / "testbeds"


def new(name: str) -> StateFolder:
    """The path of a testbed's folder. It is fixed before the folder is created, so that a partial
    one can be removed."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,30}", name):
        raise TestbedError(
            f"a testbed cannot be named {name!r}: use up to 31 of a-z, 0-9 and -, such as demo"
        )
    testbed_id = secrets.token_hex(3)
    return StateFolder(root() / f"{name}-{testbed_id}", testbed_id)


def every() -> list[StateFolder]:
    """All testbeds of this user, running or crashed."""
    found = sorted(root().glob(f"*/{_DESCRIPTION}"))
    folders = [StateFolder(p.parent, p.parent.name.rpartition("-")[2]) for p in found]
    return [folder for folder in folders if folder.path.is_dir()]


def named(name: str) -> list[StateFolder]:
    return [folder for folder in every() if folder.path.name.rpartition("-")[0] == name]


def is_crashed(folder: StateFolder) -> bool:
    try:
        description = folder.description
    except FileNotFoundError:
        return False  # Another process is removing it.
    if description.detached:
        records = processes.read_records(folder.records)
        return not any(processes.is_alive(record) for record in records)
    owner = ProcessRecord("owner", description.owner_pid, description.owner_start_ticks)
    return not processes.is_alive(owner)


def _write(path: Path, description: Description) -> None:
    unfinished = path / f"{_DESCRIPTION}.unfinished"
    unfinished.write_text(json.dumps(asdict(description), indent=1))
    unfinished.replace(path / _DESCRIPTION)
