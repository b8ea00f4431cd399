"""Messages between a training script and the launcher of its pod, over two Unix sockets.

Reports are datagrams. A full socket drops a step, and takes a change of phase within
``PHASE_TIMEOUT_S`` or drops it too. Requests are few, from
rank 0, and answered. Without a launcher both do nothing, so that a script runs anywhere.
"""

from __future__ import annotations

import functools
import logging
import os
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from railwright import environment, log_lines, protocol

REPORTS = "reports"
REQUESTS = "requests"
COMMIT_DEADLINE_S = 5.0
TELL_TIMEOUT_S = 1.0
PHASE_TIMEOUT_S = 1.0
"""A running launcher reads a full socket within milliseconds."""
RECEIVE_TIMEOUT_S = 1.0
CLOSE_TIMEOUT_S = 1.0
BACKLOG = 16
SOCKET_PATH_BYTES_MAX = 107
"""The maximum of Linux."""

PID_MAX = 2**22
"""The maximum of Linux."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """A rank's newest progress, and how many reports it had to drop so far. ``pid`` is the process
    that shows its stacks (``stacks.register``), 0 if it cannot."""

    rank: protocol.Rank
    progress: protocol.Progress
    dropped: protocol.Step = 0
    pid: Annotated[int, protocol.Between(0, PID_MAX)] = 0


@dataclass(frozen=True, slots=True)
class Request:
    """A request of rank 0 to commit ``commit_step``, or a report of what it has done."""

    commit_step: protocol.Step | None = None
    committed: protocol.Checkpoint | None = None
    resumed_from: protocol.Checkpoint | None = None
    skipped: Annotated[tuple[protocol.Name, ...], protocol.AtMost(protocol.SKIPPED_MAX)] = ()
    saved: protocol.Saved | None = None


@dataclass(frozen=True, slots=True)
class Permission:
    """Whether to go on. ``confirmed``: by a response of the operator, not only without one."""

    granted: bool
    confirmed: bool
    reason: protocol.Sentence = ""


def send(report: Report, *, timeout_s: float = 0.0) -> bool:
    """Send a report; return whether it was sent. Waits this long for a full socket; never
    raises. Each reason but a full socket is printed once: a rank of another user than the launcher
    would otherwise make no progress that anybody sees."""
    folder = os.environ.get(environment.CHANNEL)
    if folder is None:
        return True
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outlet:
            outlet.settimeout(timeout_s)
            # Only a connected socket can be waited for.
            outlet.connect(str(Path(folder) / REPORTS))
            outlet.send(protocol.encode(report))
    except (BlockingIOError, TimeoutError):
        return False
    except OSError as error:
        _print_once(f"railwright: progress does not reach the launcher: {error.strerror}")
        return False
    except protocol.ProtocolError:
        return False
    return True


@functools.cache
def _print_once(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def ask(request: Request) -> Permission:
    """The launcher's response. If the launcher cannot be reached, training goes on."""
    folder = os.environ.get(environment.CHANNEL)
    if folder is None:
        return Permission(granted=True, confirmed=True, reason="there is no operator")
    # The launcher keeps the deadline; the second more is for a launcher that hangs itself.
    timeout_s = TELL_TIMEOUT_S + (COMMIT_DEADLINE_S if request.commit_step is not None else 0.0)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(Path(folder) / REQUESTS))
            connection.send(protocol.encode(request))
            return protocol.decode(Permission, connection.recv(protocol.MESSAGE_BYTES_MAX))
    except (OSError, protocol.ProtocolError) as error:
        return Permission(
            granted=True, confirmed=False, reason=protocol.fitted(f"no launcher: {error}", 300)
        )


def _folder_of_sockets() -> str | None:
    """None for that of temporary files, unless its path is too long for a socket's address."""
    longest = Path(tempfile.gettempdir()) / "railwright-12345678" / REQUESTS
    return None if len(os.fsencode(longest)) <= SOCKET_PATH_BYTES_MAX else "/tmp"  # noqa: S108


class ChannelServer:
    """Two sockets in a new folder, and after ``start`` a thread that reads each.

    Raises OSError when there is nowhere to make the folder.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="railwright-", dir=_folder_of_sockets()))
        self._reports = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reports.bind(str(self.folder / REPORTS))
        self._requests = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.bind(str(self.folder / REQUESTS))
        self._requests.listen(BACKLOG)
        # The command may run the ranks as another user.
        self.folder.chmod(0o711)
        for name in (REPORTS, REQUESTS):
            (self.folder / name).chmod(0o666)
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(
        self,
        on_report: Callable[[Report], None],
        on_request: Callable[[Request], Permission],
    ) -> None:
        """Start to call ``on_report`` for each report, and ``on_request`` for each request."""
        self._threads = [
            threading.Thread(target=self._read_reports, args=(on_report,), daemon=True),
            threading.Thread(target=self._answer, args=(on_request,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Remove the sockets. A request in progress is abandoned after a time."""
        self._closing.set()
        for end in (self._reports, self._requests):
            # Wakes the thread that waits there.
            end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(CLOSE_TIMEOUT_S)
        for end in (self._reports, self._requests):
            end.close()
        # A script that clears the folder of its temporary files has removed it already.
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read_reports(self, on_report: Callable[[Report], None]) -> None:
        dropped = log_lines.Milestones("a report was dropped")
        while True:
            data = self._reports.recv(protocol.MESSAGE_BYTES_MAX)
            if self._closing.is_set():
                return
            try:
                on_report(protocol.decode(Report, data))
            except protocol.ProtocolError as error:
                dropped.warn(error=str(error))

    def _answer(self, on_request: Callable[[Request], Permission]) -> None:
        while True:
            try:
                connection, _ = self._requests.accept()
            except OSError:
                if self._closing.is_set():
                    return
                raise
            with connection:
                connection.settimeout(RECEIVE_TIMEOUT_S)
                try:
                    data = connection.recv(protocol.MESSAGE_BYTES_MAX)
                    permission = on_request(protocol.decode(Request, data))
                    connection.send(protocol.encode(permission))
                except (OSError, protocol.ProtocolError) as error:
                    logger.warning("request dropped", extra={"error": str(error)})
