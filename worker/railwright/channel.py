"""How a training script talks to the launcher of its pod, over two Unix sockets in one folder.

Reports are datagrams. A full socket drops a step, and takes a change of phase within
``PHASE_TIMEOUT_S`` or drops it too. Requests are few, from
rank 0, and answered. Without a launcher both do nothing, so that a script runs anywhere.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from railwright import environment, wire

REPORTS = "reports"
REQUESTS = "requests"
COMMIT_DEADLINE_S = 5.0
TELL_TIMEOUT_S = 1.0
PHASE_TIMEOUT_S = 1.0
"""A launcher reads a full socket within milliseconds, unless it is stopped."""
PID_MAX = 2**22
"""The most that Linux gives."""


@dataclass(frozen=True, slots=True)
class Report:
    """A rank's newest progress, and how many reports it had to drop so far. ``pid`` is the process
    that shows its stacks (``stacks.register``), 0 if it cannot."""

    rank: wire.Rank
    progress: wire.Progress
    dropped: wire.Step = 0
    pid: Annotated[int, wire.Between(0, PID_MAX)] = 0


@dataclass(frozen=True, slots=True)
class Request:
    """What rank 0 wants (``commit_step``: may this step's manifest be renamed?) or has done."""

    commit_step: wire.Step | None = None
    committed: wire.Checkpoint | None = None
    resumed_from: wire.Checkpoint | None = None
    skipped: Annotated[tuple[wire.Name, ...], wire.AtMost(wire.SKIPPED_MAX)] = ()


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether to go on. ``confirmed``: the operator said so, not only its silence."""

    granted: bool
    confirmed: bool
    reason: wire.Sentence = ""


def send(report: Report, *, timeout_s: float = 0.0) -> bool:
    """Whether the report went out. Waits no longer than this for a full socket, never raises."""
    folder = os.environ.get(environment.CHANNEL)
    if folder is None:
        return True
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outlet:
            outlet.settimeout(timeout_s)
            # Only a connected socket can be waited for.
            outlet.connect(str(Path(folder) / REPORTS))
            outlet.send(wire.encode(report))
    except (OSError, wire.WireError):
        return False
    return True


def ask(request: Request) -> Permission:
    """The launcher's answer; a launcher that cannot be reached never stops training."""
    folder = os.environ.get(environment.CHANNEL)
    if folder is None:
        return Permission(granted=True, confirmed=True, reason="there is no operator")
    # The launcher keeps the deadline; the second more is for a launcher that hangs itself.
    timeout_s = TELL_TIMEOUT_S + (COMMIT_DEADLINE_S if request.commit_step is not None else 0.0)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(Path(folder) / REQUESTS))
            connection.send(wire.encode(request))
            return wire.decode(Permission, connection.recv(wire.MESSAGE_BYTES_MAX))
    except (OSError, wire.WireError) as error:
        return Permission(
            granted=True, confirmed=False, reason=wire.fitted(f"no launcher: {error}", 300)
        )
