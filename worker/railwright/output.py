"""Output of the ranks: passed on line by line; the last lines are kept for the failure report."""

from __future__ import annotations

import collections
import contextlib
import os
import re
import threading
import time
from typing import IO

from railwright import protocol

CHUNK_BYTES = 64 * 1024
LINE_BYTES_MAX = 8 * 1024
OTHERS_BYTES = 1024

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f]")


class Sink:
    """The target of the lines of all ranks: the launcher's own stdout or stderr."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        """Write the text, without lines of other ranks in between. A failed write is ignored."""
        with self._lock, contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._descriptor, data) :]


class Output:
    """One rank's stdout and stderr."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()
        self._tails: list[_Tail] = []
        self._threads: list[threading.Thread] = []

    def follow(self, pipe: IO[bytes], sink: Sink) -> None:
        """Pass the pipe on to the sink in a thread, until its end."""
        self._tails.append(_Tail())
        thread = threading.Thread(
            target=self._pass_on, args=(pipe, sink, self._tails[-1]), daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def settle(self, timeout_s: float) -> None:
        """Waits until both pipes have ended; a grandchild may hold them open, hence a timeout."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def last_lines(self) -> str:
        """The newest output as clean text, at most protocol.LAST_LINES_BYTES_MAX bytes of UTF-8.

        The pipe that was added last comes last and has the most space: much output on stdout must
        not displace a traceback on stderr.
        """
        *earlier, last = (tail.text() for tail in self._tails)
        kept = last[-(protocol.LAST_LINES_BYTES_MAX - OTHERS_BYTES) :]
        others = b"".join(earlier)
        remaining = protocol.LAST_LINES_BYTES_MAX - len(kept)
        return (others[max(0, len(others) - remaining) :] + kept).decode("utf-8", "ignore")

    def _pass_on(self, pipe: IO[bytes], sink: Sink, tail: _Tail) -> None:
        pending = b""
        open_line = False
        readable = True
        while readable:
            chunk = os.read(pipe.fileno(), CHUNK_BYTES)
            readable = bool(chunk)
            pieces, pending = _pieces(pending + chunk, last=not readable)
            lines = []
            tail.keep_open(pending)
            for piece in pieces:
                tail.keep(piece)
                lines.append(piece if open_line else self._prefix + piece)
                open_line = piece[-1:] not in (b"\n", b"\r")
            sink.write(b"".join(lines))
        pipe.close()


class _Tail:
    """The newest pieces of one pipe."""

    def __init__(self) -> None:
        self._pieces: collections.deque[bytes] = collections.deque()
        self._bytes = 0
        self._open = b""
        self._lock = threading.Lock()

    def keep_open(self, line: bytes) -> None:
        """The line that has not ended yet. It never does if a child holds the pipe."""
        with self._lock:
            self._open = line

    def keep(self, piece: bytes) -> None:
        with self._lock:
            self._pieces.append(piece)
            self._bytes += len(piece)
            while self._bytes - len(self._pieces[0]) >= protocol.LAST_LINES_BYTES_MAX:
                self._bytes -= len(self._pieces.popleft())

    def text(self) -> bytes:
        """The pieces as UTF-8 without control characters, each line ended by a newline."""
        with self._lock:
            data = b"".join((*self._pieces, self._open))
        text = data.decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")
        return CONTROL.sub("", text).encode()


def _pieces(data: bytes, *, last: bool) -> tuple[list[bytes], bytes]:
    """The whole lines, and what is left; a line too long to hold goes out in parts.

    A carriage return ends a line too: a progress bar may never end its line otherwise.
    """
    pieces = data.splitlines(keepends=True)
    is_open = bool(pieces) and pieces[-1][-1:] not in (b"\n", b"\r")
    if is_open and not last and len(pieces[-1]) <= LINE_BYTES_MAX:
        return pieces[:-1], pieces[-1]
    return pieces, b""
