"""Many launchers at a heartbeat server, from a process of their own, for ``bench_heartbeats``.

A launcher keeps its connection, as the real one does, and sends each heartbeat in one segment
at the interval that the server states. Some open a new connection for each
heartbeat. Prints the figures as one JSON object.
"""

from __future__ import annotations

import argparse
import errno
import heapq
import json
import random
import re
import select
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path

from railwright import wire
from worlds import heartbeat_gangs
from worlds.tokens import SigningKey

TIMEOUT_S = 3.0
"""As the launcher's."""

IP_BIND_ADDRESS_NO_PORT = 24
INTERVAL = re.compile(rb'"interval_s":(\d+)')
EVENTS = select.EPOLLIN | select.EPOLLOUT


@dataclass(slots=True)
class Launcher:
    """One launcher and its connection."""

    head: bytes
    body: tuple[bytes, bytes]
    keeps: bool
    connection: socket.socket | None = None
    sequence: int = 1
    sent_s: float = 0.0
    connecting: bool = False
    waiting: bool = False
    interval_s: float = wire.BEAT_INTERVAL_S
    accepted_s: float | None = None


@dataclass(slots=True)
class Load:
    """All launchers of this process, by the file number of their connection."""

    address: tuple[str, int]
    source: str
    launchers: list[Launcher]
    poll: select.epoll = field(default_factory=select.epoll)
    by_file: dict[int, Launcher] = field(default_factory=dict)
    due: list[tuple[float, int]] = field(default_factory=list)
    kept_s: list[float] = field(default_factory=list)
    """Latencies of heartbeats on kept connections, and below on new ones."""
    new_s: list[float] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    late_s: float = 0.0
    """The most that a heartbeat was sent after its time: by so much this process is too slow."""

    def run(self, seconds: float) -> None:
        """Send until the time is over."""
        now_s = time.monotonic()
        end_s = now_s + seconds
        self.due = [
            (now_s + random.random() * wire.BEAT_INTERVAL_S, number)
            for number in range(len(self.launchers))
        ]
        heapq.heapify(self.due)
        while (now_s := time.monotonic()) < end_s:
            while self.due and self.due[0][0] <= now_s:
                due_s, number = heapq.heappop(self.due)
                launcher = self.launchers[number]
                heapq.heappush(self.due, (due_s + launcher.interval_s, number))
                self.late_s = max(self.late_s, now_s - due_s)
                self._begin(launcher, now_s)
            pause_s = max(0.0, min(0.05, self.due[0][0] - now_s)) if self.due else 0.05
            for file, event in self.poll.poll(pause_s, 1024):
                self._go_on(self.by_file[file], event)

    def _begin(self, launcher: Launcher, now_s: float) -> None:
        if launcher.waiting:
            if now_s - launcher.sent_s < TIMEOUT_S:
                return
            self._fail(launcher, "timeout")
        launcher.sent_s, launcher.waiting = now_s, True
        if launcher.connection is None:
            connection = socket.socket()
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
            connection.bind((self.source, 0))
            code = connection.connect_ex(self.address)
            launcher.connection, launcher.connecting = connection, True
            self.by_file[connection.fileno()] = launcher
            self.poll.register(connection.fileno(), EVENTS)
            if code not in (0, errno.EINPROGRESS):
                self._fail(launcher, errno.errorcode[code])
        else:
            self._send(launcher)

    def _go_on(self, launcher: Launcher, event: int) -> None:
        connection = launcher.connection
        assert connection is not None
        if launcher.connecting:
            code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._fail(launcher, errno.errorcode[code])
            else:
                launcher.connecting = False
                self.poll.modify(connection.fileno(), select.EPOLLIN)
                self._send(launcher)
            return
        try:
            answer = connection.recv(4096)
        except OSError as error:
            self._fail(launcher, errno.errorcode[error.errno or 0])
            return
        if not answer.startswith(b"HTTP/1.1 200 "):
            self._fail(launcher, answer[9:12].decode() or "closed")
            return
        now_s = time.monotonic()
        launcher.accepted_s = launcher.accepted_s or time.time()
        launcher.waiting = False
        if stated := INTERVAL.search(answer):
            launcher.interval_s = float(stated[1])
        (self.kept_s if launcher.keeps else self.new_s).append(now_s - launcher.sent_s)
        if not launcher.keeps:
            self._close(launcher)

    def _send(self, launcher: Launcher) -> None:
        assert launcher.connection is not None
        launcher.sequence += 1
        before, after = launcher.body
        body = b"%s%09d%s" % (before, launcher.sequence, after)
        try:
            launcher.connection.send(launcher.head + body)
        except OSError as error:
            self._fail(launcher, errno.errorcode[error.errno or 0])

    def _fail(self, launcher: Launcher, why: str) -> None:
        self.failures[why] = self.failures.get(why, 0) + 1
        if launcher.waiting:
            # Heard with the next one at the earliest.
            late_s = time.monotonic() - launcher.sent_s + wire.BEAT_INTERVAL_S
            (self.kept_s if launcher.keeps else self.new_s).append(late_s)
        launcher.interval_s = wire.BEAT_INTERVAL_S
        self._close(launcher)

    def _close(self, launcher: Launcher) -> None:
        if launcher.connection is not None:
            self.poll.unregister(launcher.connection.fileno())
            del self.by_file[launcher.connection.fileno()]
            launcher.connection.close()
        launcher.connection, launcher.waiting = None, False


def launchers(key: SigningKey, numbers: range, renewing: float) -> list[Launcher]:
    """With their tokens; a share of them is ``renewing`` its connection for each heartbeat."""
    found = []
    for number in numbers:
        before, _, after = wire.encode(heartbeat_gangs.beat(number, 0)).partition(b'"sequence":0')
        body = before + b'"sequence":1', after
        length = sum(map(len, body)) + 9
        head = (
            "POST /v1/beat HTTP/1.1\r\nHost: 127.0.0.1:8470\r\nAccept-Encoding: identity\r\n"
            f"Content-Length: {length}\r\nAuthorization: Bearer "
            f"{heartbeat_gangs.token(key, number)}\r\nContent-Type: application/json\r\n\r\n"
        )
        keeps = random.random() >= renewing
        found.append(Launcher(head.encode(), body, keeps))
    return found


def p99(values: list[float]) -> float:
    """The 99th percentile; 0.0 of nothing."""
    return sorted(values)[len(values) * 99 // 100] if values else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("key", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--source", default="127.0.0.1")
    parser.add_argument("--launchers", type=int, required=True)
    parser.add_argument("--renewing", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    made = launchers(SigningKey.read(given.key), range(given.launchers), given.renewing)
    print("ready", flush=True)
    input()
    load = Load(("127.0.0.1", given.port), given.source, made)
    load.run(given.seconds)
    accepted = [each.accepted_s for each in made if each.accepted_s is not None]
    figures = {
        "accepted": len(accepted),
        "last_accepted_s": max(accepted, default=0.0),
        "beats": len(load.kept_s) + len(load.new_s),
        "kept_p99_s": p99(load.kept_s),
        "new_p99_s": p99(load.new_s),
        "failures": load.failures,
        "sent_late_s": round(load.late_s, 3),
    }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
