"""The log of one pod, which can be opened again where it broke off."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

import typer

from railwright_cli.api_objects import PodView
from railwright_cli.api_server import ApiServer
from railwright_cli.pods import pod_path

SILENCE_S = 15
"""A log that is silent for so long is opened again: its node may be dead."""

OF_A_RANK = re.compile(rb"\[rank (\d+)\] ")
TIMESTAMP = re.compile(
    rb"(\d{4}-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-5]\d)(?:\.(\d+))?(Z|[+-]\d\d:[0-5]\d)"
)


@dataclass(slots=True)
class PodLog:
    """Prints the log of a pod. Only the lines of ``rank`` if that is set, and those that name no
    rank: the launcher names it where a pod has several. ``count`` are the lines so far."""

    server: ApiServer
    pod: PodView
    rank: int | None
    count: int = 0
    _stamp: bytes = b""
    _printed_of_stamp: int = 0
    _unstamped: bytes = b""

    def print_further(self, *, is_followed: bool) -> None:
        """Print what follows the last line that was printed. Raises RequestError if the log
        cannot be read, or breaks off."""
        query = {"container": self.pod.spec.containers[0].name, "timestamps": "true"}
        if is_followed:
            query["follow"] = "true"
        if self._stamp:
            query["sinceTime"] = self._stamp.decode()
        after, repeated = self._stamp, self._printed_of_stamp
        since = _instant(after) if after else None
        for each in self.server.lines(f"{pod_path(self.pod)}/log", query, silence_s=SILENCE_S):
            stamp, _, line = each.partition(b" ")
            if not TIMESTAMP.fullmatch(stamp):
                self._print_unstamped(each)
            elif stamp == after and repeated:
                repeated -= 1
            elif since is None or _instant(stamp) >= since:
                self._printed_of_stamp = 1 + self._printed_of_stamp * (stamp == self._stamp)
                self._stamp = stamp
                self._announce()
                self.count += 1
                self._print(line)

    def _print_unstamped(self, line: bytes) -> None:
        """A line of the kubelet: it is there again each time that the log is opened."""
        if line != self._unstamped:
            self._announce()
            typer.echo(line)
        self._unstamped = line

    def _print(self, line: bytes) -> None:
        found = OF_A_RANK.match(line)
        if self.rank is None or found is None or int(found[1]) == self.rank:
            typer.echo(line)

    def _announce(self) -> None:
        if not self.count and not self._unstamped:
            pod = self.pod
            message = f"attempt {pod.attempt}, pod {pod.metadata.name}, node {pod.spec.node_name}"
            typer.echo(f"railwright: {message}", err=True)


def _instant(stamp: bytes) -> tuple[datetime, bytes]:
    """The second of a timestamp, and its fraction. A node in local time writes others with an
    earlier text after the end of summer time."""
    found = TIMESTAMP.fullmatch(stamp)
    assert found is not None, "only timestamps are compared"
    second, fraction, zone = found.groups(default=b"")
    return datetime.fromisoformat((second + zone).decode()), fraction.ljust(9, b"0")
