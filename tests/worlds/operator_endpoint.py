"""A double of the operator's heartbeat server, for launchers under test.

It speaks the real messages over real HTTP, but decides nothing: a test says what it answers.
"""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from railwright import profile, wire

TOKEN = "a-token"  # of this double only


@dataclass
class OperatorEndpoint:
    """What it answers, and what it has heard.

    ``status`` other than 200 is the answer to everything; ``refused_steps`` are commits refused.
    Of so many messages with what ranks recorded, ``parts_lost``, it remembers nothing. It states
    ``interval_s`` in its answers to heartbeats.
    """

    num_nodes: int = 1
    resume: tuple[wire.Checkpoint, ...] = ()
    status: int = 200
    order: wire.Order = wire.Order.CONTINUE
    refused_steps: tuple[int, ...] = ()
    parts_lost: int = 0
    parts_refused: bool = False
    wants_stacks: bool = False
    interval_s: int | None = None
    registered: dict[int, wire.Register] = field(default_factory=dict)
    beats: list[wire.Beat] = field(default_factory=list)
    commits: list[wire.Commit] = field(default_factory=list)
    parts: list[profile.Recorded] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    port: int = 0
    is_up: bool = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def listening(self) -> Iterator[OperatorEndpoint]:
        """Answers while in the block; entered again, on the same port."""
        handler = type("Handler", (_Handler,), {"operator": self})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        self.is_up = True
        try:
            yield self
        finally:
            self.is_up = False
            server.shutdown()
            server.server_close()
            thread.join()

    def answer(self, path: str, body: bytes) -> tuple[int, object]:
        if self.status != 200:
            return self.status, wire.BeatAnswer(wire.Order.STOP, reason="as the test wants it")
        if path == "/v1/register":
            register = wire.decode(wire.Register, body)
            self.registered[register.member.node_rank] = register
            return 200, self._registered(register)
        if path == "/v1/beat":
            self.beats.append(wire.decode(wire.Beat, body))
            return 200, wire.BeatAnswer(
                self.order,
                reason="as the test wants it",
                stacks=self.wants_stacks,
                interval_s=self.interval_s,
            )
        if path == "/v1/profile" and self.parts_refused:
            return 400, wire.BeatAnswer(wire.Order.STOP, reason="parts do not go together")
        if path == "/v1/profile":
            return 200, wire.BeatAnswer(self._told(wire.decode(profile.Handover, body).part))
        commit = wire.decode(wire.Commit, body)
        self.commits.append(commit)
        if commit.step in self.refused_steps:
            return 409, wire.CommitAnswer(granted=False, reason="attempt 2 has begun")
        return 200, wire.CommitAnswer(granted=True)

    def _told(self, part: profile.Recorded) -> wire.Order:
        self.parts.append(part)
        told = {part.rank for part in self.parts[self.parts_lost :]}
        return wire.Order.GO if len(told) == part.ranks else wire.Order.CONTINUE

    def _registered(self, register: wire.Register) -> wire.Registered:
        missing = tuple(node for node in range(self.num_nodes) if node not in self.registered)
        if missing:
            return wire.Registered(wire.Order.WAIT, missing=missing)
        first = self.registered[0]
        world = wire.World(
            world_size=sum(one.num_processes for one in self.registered.values()),
            num_nodes=self.num_nodes,
            first_rank=register.member.node_rank * register.num_processes,
            master_address=first.address,
            master_port=first.master_port,
            resume=self.resume,
        )
        return wire.Registered(wire.Order.GO, world=world)


class _Handler(http.server.BaseHTTPRequestHandler):
    operator: OperatorEndpoint
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # the base class's name
        if not self.operator.is_up:
            # A connection kept from before the server went down.
            self.close_connection = True
            return
        self.operator.tokens.append(self.headers["Authorization"])
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, answer = self.operator.answer(self.path, body)
        data = wire.encode(answer)
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # its signature
        """Says nothing."""


def until(condition: Callable[[], bool], *, timeout_s: float = 20.0) -> None:
    """Waits for the condition. Raises AssertionError when it does not come."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain"
        time.sleep(0.01)
