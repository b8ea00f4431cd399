"""The log of one pod, which can be opened again where it broke off."""

from __future__ import annotations

import math
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

import typer

from railwright_cli.api_objects import PodView
from railwright_cli.api_server import ApiServer
from railwright_cli.errors import RequestError
from railwright_cli.pods import pod_path

PART_BYTES = 1 << 16
"""A line that is longer is printed before it ends: a program may never end it."""

SILENCE_S = 15
"""A log that is silent for so long is opened again: its node may be dead."""

UNSTAMPED_MAX = 16
"""So many different lines of a kubelet are printed once."""

OF_A_RANK = re.compile(rb"\[rank (\d+)\] ")
TIMESTAMP = re.compile(
    rb"(\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d)(?:\.(\d+))?(Z|[+-]\d\d:[0-5]\d)"
)


@dataclass(frozen=True, slots=True)
class Window:
    """The end of a log, as it is when it is opened for the first time: so many lines of all ranks,
    and of so many seconds. None is no limit."""

    lines: int | None = None
    seconds: int | None = None

    def query(self, age_s: float | None) -> dict[str, str]:
        """Where a log begins that was opened so long ago without a line since, or never."""
        if age_s is None:
            limits = {"tailLines": self.lines, "sinceSeconds": self.seconds}
            return {name: str(limit) for name, limit in limits.items() if limit is not None}
        if self == WHOLE:
            return {}
        return {"sinceSeconds": str(math.ceil(age_s) + (self.seconds or 1))}


WHOLE = Window()


@dataclass(slots=True)
class PodLog:
    """Prints the log of a pod. Only the lines of ``rank`` if that is set, and those that name no
    rank: the launcher names it where a pod has several. ``count`` are the lines so far, and the
    parts of long ones."""

    server: ApiServer
    pod: PodView
    rank: int | None
    window: Window = WHOLE
    clock: Callable[[], float] = time.monotonic
    count: int = 0
    _opened_s: float | None = None
    _stamp: bytes = b""
    _first_stamp: bytes = b""
    _line: bytes = b""
    _printed_of_stamp: int = 0
    _printed_of_line: int = 0
    _is_end_added: bool = False
    _unstamped: deque[bytes] = field(default_factory=lambda: deque(maxlen=UNSTAMPED_MAX))

    def print_further(self, *, is_followed: bool) -> None:
        """Print what follows the last line that was printed. Raises RequestError if the log
        cannot be read, or breaks off."""
        before = self._repetition()
        is_within = is_shown = is_open = is_read = is_refused = False
        left_out = 0
        for part in self._opened(is_followed=is_followed):
            text = part
            if not is_within:
                stamp, _, text = part.partition(b" ")
                if _instant(stamp) is None:
                    self._print_unstamped(part)
                    is_refused = True
                    continue
                is_read, is_shown = True, self._is_of_rank(text)
                left_out = before.bytes_of(stamp, text)
                if not left_out:
                    self._begin(stamp, text)
            is_within = not part.endswith(b"\n")
            if new := text[left_out:]:
                self.count += 1
                self._printed_of_line += len(new)
                if self._is_end_added:
                    new, self._is_end_added = new.removeprefix(b"\n"), False
                is_open = is_within and is_shown
                if is_shown:
                    typer.echo(new, nl=False)
            left_out = max(0, left_out - len(text))
        if is_open:
            typer.echo()
            self._is_end_added = True
        if is_refused and not is_read:
            self._opened_s = None
            raise RequestError(0, "nothing was read but what its kubelet says")

    def _opened(self, *, is_followed: bool) -> Iterator[bytes]:
        query = {"container": self.pod.spec.containers[0].name, "timestamps": "true"}
        if is_followed:
            query["follow"] = "true"
        now_s, opened_s = self.clock(), self._opened_s
        if self._stamp:
            query["sinceTime"] = self._stamp.decode()
        else:
            query |= self.window.query(None if opened_s is None else now_s - opened_s)
        path = f"{pod_path(self.pod)}/log"
        parts = self.server.lines(path, query, silence_s=SILENCE_S, part_bytes=PART_BYTES)
        self._opened_s = now_s if opened_s is None else opened_s
        return parts

    def _repetition(self) -> _Repetition:
        # A tail can begin within the lines of one time: all are there when it is opened again.
        is_cut = self.window.lines is not None and self._stamp == self._first_stamp
        line = self._line.removesuffix(b"\n") if is_cut else None
        return _Repetition(self._stamp, self._printed_of_stamp, self._printed_of_line, line)

    def _print_unstamped(self, line: bytes) -> None:
        """A line of the kubelet: it is there again each time that the log is opened."""
        if line not in self._unstamped:
            self._announce()
            typer.echo(line.removesuffix(b"\n"), err=True)
            self._unstamped.append(line)

    def _is_of_rank(self, line: bytes) -> bool:
        found = OF_A_RANK.match(line)
        return self.rank is None or found is None or found[1] == str(self.rank).encode()

    def _begin(self, stamp: bytes, text: bytes) -> None:
        """A line with this stamp that is not printed yet."""
        self._announce()
        self._first_stamp, self._line = self._first_stamp or stamp, text
        self._printed_of_stamp = 1 + self._printed_of_stamp * (stamp == self._stamp)
        self._stamp, self._printed_of_line, self._is_end_added = stamp, 0, False

    def _announce(self) -> None:
        if not self.count and not self._unstamped:
            pod = self.pod
            message = f"attempt {pod.attempt}, pod {pod.metadata.name}, node {pod.spec.node_name}"
            typer.echo(f"railwright: {message}", err=True)


@dataclass(slots=True)
class _Repetition:
    """What was printed before its log was opened again: so many ``lines`` of the last timestamp,
    and so many bytes of the last one, which may have been cut off. Where lines of this timestamp
    were left out, the ``line`` itself is looked for."""

    stamp: bytes
    lines: int
    bytes_of_last: int
    line: bytes | None

    def bytes_of(self, stamp: bytes, text: bytes) -> int:
        """How many bytes of the next line were printed, at least; 0 of a new one."""
        if stamp == self.stamp and self.line is not None:
            if not text.startswith(self.line):
                return sys.maxsize
            self.line, self.lines = None, 0
            return self.bytes_of_last
        if stamp == self.stamp and self.lines:
            self.lines -= 1
            return sys.maxsize if self.lines else self.bytes_of_last
        since, instant = _instant(self.stamp), _instant(stamp)
        return sys.maxsize if since and instant and instant < since else 0


def _instant(stamp: bytes) -> tuple[datetime, bytes] | None:
    """The second of a timestamp, and its fraction; None if it is none. A node in local time writes
    others with an earlier text after the end of summer time."""
    if (found := TIMESTAMP.fullmatch(stamp)) is None:
        return None
    second, fraction, zone = found.groups(default=b"")
    try:
        return datetime.fromisoformat((second + zone).decode()), fraction.ljust(9, b"0")
    except ValueError:
        return None
