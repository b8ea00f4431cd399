"""Many launchers at a heartbeat server, from a process of their own, for ``bench_heartbeats``.

A launcher keeps its connection, as the real one does, and sends each heartbeat in one segment, at
the interval that the server states. Some open a new connection for each heartbeat. Gangs start one
after the other; the launchers of a gang start together.

Prints "ready", and begins at the first line of its input. At each further line it counts anew. At
the end of its input it prints its figures as one JSON object.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import heapq
import itertools
import json
import math
import random
import re
import resource
import select
import socket
import ssl
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fixtures import heartbeat_gangs, tls_client
from fixtures.tls_client import TlsClient
from fixtures.tokens import SigningKey
from railwright import pacing, protocol

GANG_EVERY_S = 1.0
"""From the start of a gang to that of the next."""

SENT_AT_ONCE = 64
"""Then answers are read again: no answer waits for a long queue of heartbeats to be sent."""

PAUSE_S = 0.05
OWN_ADDRESS = "127.0.0.1"
PORTS = range(10_000, 65_000)
"""In turn: with 14,000 connections from one address the kernel takes 1 ms to find a free port."""

INTERVAL = re.compile(rb'"interval_s":(\d+)')


@dataclass(slots=True, eq=False)
class Launcher:
    """One launcher and its connection. ``next_s`` is when it sends its next heartbeat, or gives up
    the answer that it waits for. ``begun_s``: since when the operator lacks a heartbeat of it."""

    number: int
    head: bytes
    body: tuple[bytes, bytes]
    keeps: bool
    next_s: float = math.inf
    tried_s: float = -math.inf
    connection: socket.socket | None = None
    tls: TlsClient | None = None
    sequence: int = 1
    begun_s: float | None = None
    connecting: bool = False
    waiting: bool = False
    interval_s: float = protocol.HEARTBEAT_INTERVAL_S
    failures: int = 0
    accepted_s: float | None = None


@dataclass(slots=True)
class Load:
    """All launchers, by the file number of their connection."""

    address: tuple[str, int]
    launchers: list[Launcher]
    context: ssl.SSLContext
    poll: select.epoll = field(default_factory=select.epoll)
    by_file: dict[int, Launcher] = field(default_factory=dict)
    ports: Iterator[int] = field(default_factory=lambda: itertools.cycle(PORTS))
    due: list[tuple[float, int]] = field(default_factory=list)
    kept_s: list[float] = field(default_factory=list)
    """How long heartbeats took until they were answered, and below those on new connections."""
    new_s: list[float] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    late_s: float = 0.0
    """The most that a heartbeat was sent after its time. It counts as time that it took."""

    def run(self) -> None:
        """Send until the end of the input."""
        self._start_gangs(time.monotonic())
        stdin = sys.stdin.fileno()
        self.poll.register(stdin, select.EPOLLIN)
        while True:
            left_s = self.due[0][0] - time.monotonic()
            for file, _ in self.poll.poll(max(0.0, min(PAUSE_S, left_s)), 1024):
                if file != stdin:
                    self._go_on(self.by_file[file])
                elif sys.stdin.buffer.readline():
                    self._count_anew()
                else:
                    return
            self._send_due()

    def figures(self) -> dict[str, object]:
        """Since it last began to count."""
        now_s = time.monotonic()
        for each in self.launchers:
            if each.begun_s is not None:
                self._note(each, now_s - each.begun_s)
        accepted = [each.accepted_s for each in self.launchers if each.accepted_s is not None]
        return {
            "accepted": len(accepted),
            "last_accepted_s": max(accepted, default=0.0),
            "beats": len(self.kept_s) + len(self.new_s),
            "kept_p99_s": p99(self.kept_s),
            "new_p99_s": p99(self.new_s),
            "failures": self.failures,
            "sent_late_s": round(self.late_s, 3),
        }

    def _start_gangs(self, now_s: float) -> None:
        for each in self.launchers:
            gang_s = each.number // heartbeat_gangs.GANG * GANG_EVERY_S
            within_s = random.uniform(0, protocol.REGISTER_INTERVAL_S)
            self._plan(each, now_s + gang_s + within_s)

    def _count_anew(self) -> None:
        self.kept_s, self.new_s, self.failures, self.late_s = [], [], {}, 0.0
        for each in self.launchers:
            each.accepted_s = None

    def _plan(self, launcher: Launcher, when_s: float) -> None:
        launcher.next_s = when_s
        heapq.heappush(self.due, (when_s, launcher.number))

    def _send_due(self) -> None:
        for _ in range(SENT_AT_ONCE):
            now_s = time.monotonic()
            if self.due[0][0] > now_s:
                return
            due_s, number = heapq.heappop(self.due)
            launcher = self.launchers[number]
            if launcher.next_s != due_s:
                continue
            if launcher.waiting:
                self._fail(launcher, "timeout")
                continue
            self.late_s = max(self.late_s, now_s - due_s)
            self._begin(launcher, due_s)

    def _begin(self, launcher: Launcher, due_s: float) -> None:
        launcher.begun_s = launcher.begun_s or due_s
        launcher.waiting = True
        launcher.tried_s = time.monotonic()
        patience_s = pacing.patience_s(launcher.failures, launcher.interval_s)
        self._plan(launcher, launcher.tried_s + patience_s)
        if launcher.connection is not None:
            self._send(launcher)
            return
        connection = self._bound()
        code = connection.connect_ex(self.address)
        launcher.connection, launcher.connecting = connection, True
        self.by_file[connection.fileno()] = launcher
        self.poll.register(connection.fileno(), select.EPOLLOUT)
        if code not in (0, errno.EINPROGRESS):
            self._fail(launcher, errno.errorcode[code])

    def _bound(self) -> socket.socket:
        """A new socket at a port of its own."""
        connection = socket.socket()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            port = next(self.ports)
            if port != self.address[1]:
                with contextlib.suppress(OSError):
                    connection.bind((OWN_ADDRESS, port))
                    return connection

    def _go_on(self, launcher: Launcher) -> None:
        connection = launcher.connection
        assert connection is not None
        if launcher.connecting:
            code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._fail(launcher, errno.errorcode[code])
                return
            launcher.connecting = False
            self.poll.modify(connection.fileno(), select.EPOLLIN)
            launcher.tls = TlsClient(self.context)
            self._send(launcher)
            return
        assert launcher.tls is not None
        try:
            received = connection.recv(65_536)
            answer = launcher.tls.decrypt(received)
            if pending := launcher.tls.pending():
                connection.send(pending)
        except OSError as error:
            self._fail(launcher, errno.errorcode.get(error.errno or 0, type(error).__name__))
            return
        if received and not answer:
            return
        if launcher.waiting and answer.startswith(b"HTTP/1.1 200 "):
            self._accept(launcher, answer)
        else:
            self._fail(launcher, answer[9:12].decode() or "closed")

    def _accept(self, launcher: Launcher, answer: bytes) -> None:
        now_s = time.monotonic()
        assert launcher.begun_s is not None
        self._note(launcher, now_s - launcher.begun_s)
        launcher.accepted_s = launcher.accepted_s or now_s
        launcher.waiting, launcher.begun_s, launcher.failures = False, None, 0
        if stated := INTERVAL.search(answer):
            launcher.interval_s = float(stated[1])
        if not launcher.keeps:
            self._close(launcher)
        self._plan(launcher, now_s + launcher.interval_s)

    def _send(self, launcher: Launcher) -> None:
        assert launcher.connection is not None
        assert launcher.tls is not None
        launcher.sequence += 1
        before, after = launcher.body
        body = b"%s%09d%s" % (before, launcher.sequence, after)
        try:
            launcher.connection.send(launcher.tls.encrypt(launcher.head + body))
        except OSError as error:
            self._fail(launcher, errno.errorcode.get(error.errno or 0, type(error).__name__))

    def _fail(self, launcher: Launcher, why: str) -> None:
        self.failures[why] = self.failures.get(why, 0) + 1
        self._close(launcher)
        if launcher.waiting:
            launcher.waiting = False
            launcher.failures += 1
            now_s = time.monotonic()
            pause_s = pacing.heartbeat_s(
                launcher.failures, launcher.interval_s, waited_s=now_s - launcher.tried_s
            )
            self._plan(launcher, now_s + pause_s)

    def _note(self, launcher: Launcher, seconds: float) -> None:
        (self.kept_s if launcher.keeps else self.new_s).append(seconds)

    def _close(self, launcher: Launcher) -> None:
        if launcher.connection is not None:
            del self.by_file[launcher.connection.fileno()]
            launcher.connection.close()
        launcher.connection, launcher.tls, launcher.connecting = None, None, False


def launchers(key: SigningKey, count: int, renewing: float) -> list[Launcher]:
    """With their tokens; a share of them is ``renewing`` its connection for each heartbeat."""
    found = []
    for number in range(count):
        before, _, after = protocol.encode(heartbeat_gangs.heartbeat(number, 0)).partition(
            b'"sequence":0'
        )
        body = before + b'"sequence":1', after
        length = sum(map(len, body)) + 9
        head = (
            "POST /v1/beat HTTP/1.1\r\nHost: 127.0.0.1:8470\r\nAccept-Encoding: identity\r\n"
            f"Content-Length: {length}\r\nAuthorization: Bearer "
            f"{heartbeat_gangs.token(key, number)}\r\nContent-Type: application/json\r\n\r\n"
        )
        keeps = random.random() >= renewing
        found.append(Launcher(number, head.encode(), body, keeps))
    return found


def p99(values: list[float]) -> float:
    """The 99th percentile; 0.0 of nothing."""
    return sorted(values)[len(values) * 99 // 100] if values else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("key", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("--launchers", type=int, required=True)
    parser.add_argument("--renewing", type=float, default=0.0)
    given = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    made = launchers(SigningKey.read(given.key), given.launchers, given.renewing)
    print("ready", flush=True)
    sys.stdin.buffer.readline()
    load = Load(
        (OWN_ADDRESS, given.port),
        made,
        tls_client.context(),
    )
    load.run()
    print(json.dumps(load.figures()), flush=True)


if __name__ == "__main__":
    main()
