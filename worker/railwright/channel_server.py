"""The launcher's end of the two sockets its ranks talk to."""

from __future__ import annotations

import logging
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from railwright import channel, log_lines, wire

RECEIVE_TIMEOUT_S = 1.0
CLOSE_TIMEOUT_S = 1.0
BACKLOG = 16

logger = logging.getLogger(__name__)


class ChannelServer:
    """Two sockets in a fresh folder, and after ``start`` a thread that reads each.

    Raises OSError when there is nowhere to make the folder.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="railwright-"))
        self._reports = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._reports.bind(str(self.folder / channel.REPORTS))
        self._requests = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.bind(str(self.folder / channel.REQUESTS))
        self._requests.listen(BACKLOG)
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(
        self,
        on_report: Callable[[channel.Report], None],
        on_request: Callable[[channel.Request], channel.Permission],
    ) -> None:
        """Calls ``on_report`` for each report, and answers each request with ``on_request``."""
        self._threads = [
            threading.Thread(target=self._read_reports, args=(on_report,), daemon=True),
            threading.Thread(target=self._answer, args=(on_request,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Removes the sockets. A request that is being answered is left to itself after a time."""
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

    def _read_reports(self, on_report: Callable[[channel.Report], None]) -> None:
        dropped = log_lines.Milestones()
        while True:
            data = self._reports.recv(wire.MESSAGE_BYTES_MAX)
            if self._closing.is_set():
                return
            try:
                on_report(wire.decode(channel.Report, data))
            except wire.WireError as error:
                if count := dropped.add():
                    logger.warning(
                        "a report was dropped", extra={"error": str(error), "count": count}
                    )

    def _answer(self, on_request: Callable[[channel.Request], channel.Permission]) -> None:
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
                    data = connection.recv(wire.MESSAGE_BYTES_MAX)
                    permission = on_request(wire.decode(channel.Request, data))
                    connection.send(wire.encode(permission))
                except (OSError, wire.WireError) as error:
                    logger.warning("a request was dropped", extra={"error": str(error)})
