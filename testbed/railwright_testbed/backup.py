"""etcd goes back to a backup, as an administrator restores it."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import signal
from pathlib import Path

from railwright_testbed import history, processes, waiting
from railwright_testbed.errors import TestbedError
from railwright_testbed.processes import Process

_ANSWER_DEADLINE_S = 30.0


def copy(etcd: Process, data: Path, target: Path) -> None:
    """Copy its files as they are at one moment: it is stopped meanwhile, as by a snapshot of the
    disk."""
    processes.send(etcd.record, signal.SIGSTOP)
    try:
        waiting.until(lambda: _is_stopped(etcd), "etcd stopped", deadline_s=_ANSWER_DEADLINE_S)
        shutil.copytree(data, target)
    finally:
        processes.send(etcd.record, signal.SIGCONT)


def replace(data: Path, source: Path) -> None:
    """Put the files of the backup in the place of those of an etcd that has ended."""
    shutil.rmtree(data)
    shutil.copytree(source, data)


def pass_revision(address: str, revision: int) -> None:
    """Raise etcd's revision beyond this one, and compact what was before.

    This is what `etcdutl snapshot restore --bump-revision --mark-compacted` is for: no watch may
    go on from a revision that the restored store gives a second time.
    """
    reached = 0
    while reached <= revision:
        reached = history.mark(address, {})
    _ask(address, "/v3/kv/compaction", {"revision": str(reached), "physical": True})


def answers(address: str) -> bool:
    """Whether etcd serves reads."""
    try:
        _ask(address, "/v3/kv/range", {"key": "AA=="})
    except (OSError, http.client.HTTPException, TestbedError):
        return False
    return True


def _is_stopped(process: Process) -> bool:
    stat = Path(f"/proc/{process.record.pid}/stat").read_text()
    return stat[stat.rindex(")") + 2] == "T"


def _ask(address: str, path: str, body: dict[str, object]) -> None:
    connection = http.client.HTTPConnection(address, timeout=_ANSWER_DEADLINE_S)
    with contextlib.closing(connection):
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        text = response.read().decode()
        if response.status != http.HTTPStatus.OK:
            raise TestbedError(f"etcd answered {path} with {response.status}: {text}")
