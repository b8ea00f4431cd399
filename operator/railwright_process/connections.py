"""Connections of launchers and agents: few and short until a token is verified, then their own.

A connection is a newcomer until the head of its first request carries a good token, also while it
makes its TLS handshake. Newcomers share a pool with a deadline, and when it is full the oldest one
gives way. A launcher sends its head at once, so it is verified within milliseconds; connections
that send slowly, or nothing, take places from each other only. From then on a connection counts
against its own pod.

In a crowd a newcomer with a bad token gets no answer and is left alone until its deadline, and so
are the oldest ones of too many handshakes: one that is cut off at once comes back at once, and
thousands of them would keep the operator accepting connections and nothing else.

Bodies are read for verified connections alone, up to the bound of their path and within a deadline.

A connection has one message a round of the event loop, so no segment full of messages delays the
others. A pod over its rate limit waits: its connections are not read until it may go on.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import ssl
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import NamedTuple

from prometheus_client import Counter

from railwright_kube.tokens import Bearer
from railwright_process import messages
from railwright_process.messages import HEAD_BYTES_MAX, Head, RefusedError, Response
from railwright_process.pool import Pool, Pools
from railwright_process.rate_limit import RateLimit
from railwright_process.server_metrics import ServerMetrics
from railwright_process.tls import TlsConnection

logger = logging.getLogger(__name__)

NEWCOMERS_MAX = 12_288
NEWCOMERS_A_PEER_MAX = 6_144
"""Some 4 KiB each until they send something. Many launchers behind one address connect at once
after a failover, but are verified as they are accepted: those that wait are a few dozen."""

HANDSHAKES_MAX = 2_048
"""Newcomers that began a TLS handshake: some 46 KiB each, as OpenSSL keeps its buffers."""

CROWD = 512
"""Above this number of unverified connections, a bad token gets no response."""

HEAD_DEADLINE_S = 5.0
BODY_DEADLINE_S = 5.0
IDLE_S = 15.0
LINGER_S = 5.0
"""From a refusal to the end of its connection. The other end closes it earlier if it reads."""

RECEIVED_BYTES = 64 * 1024
"""Read in one go, into one buffer of all connections: asyncio would allocate 256 KiB each time."""

SWEPT_MAX = 256
"""Connections closed in one go: closing thousands would block the event loop."""

CONNECTIONS_A_POD_MAX = 8
"""A launcher uses three; the others are abandoned ones that are not closed yet."""

HEAD_END = b"\r\n\r\n"
UNREAD = "none"
"""The path in the counts of messages whose bodies are not read."""

FAILED = messages.refusal(
    RefusedError("the server failed to answer", HTTPStatus.INTERNAL_SERVER_ERROR)
)


@dataclass(frozen=True, slots=True)
class Route:
    """A path. ``admit`` refuses bearers before the body is read; ``act`` returns the answer, or an
    awaitable of it. Both raise RefusedError."""

    bytes_max: int
    admit: Callable[[Bearer], None]
    act: Callable[[Bearer, bytes], Response | Awaitable[Response]]


Admit = Callable[[Head], tuple[Route, Bearer]]
"""Raises RefusedError."""

Tls = Callable[[], ssl.SSLContext | None]
"""The context for a new connection; None while there is no certificate."""


class _Request(NamedTuple):
    """The request that is being read or answered."""

    head: Head
    route: Route
    bearer: Bearer


class Connections:
    """All open connections. ``clock`` is monotonic seconds."""

    def __init__(
        self, admit: Admit, *, tls: Tls | None, metrics: ServerMetrics, clock: Callable[[], float]
    ) -> None:
        self.admit = admit
        self.tls = tls
        self.clock = clock
        self.rate_limit = RateLimit(clock)
        self.received = memoryview(bytearray(RECEIVED_BYTES))
        self.tasks: set[asyncio.Future[Response]] = set()
        self.metrics = metrics
        self._counts: dict[tuple[str, int], Counter] = {}
        self._newcomers = Pool[Connection]()
        self._newcomers_of = Pools[Connection]()
        self._handshakes = Pool[Connection]()
        self._verified = Pools[Connection]()

    @property
    def is_crowded(self) -> bool:
        """Whether there are more unverified connections than launchers or agents explain."""
        return len(self._newcomers) >= CROWD

    def enter(self, connection: Connection) -> None:
        """Add an unverified connection; close the oldest one if there are too many."""
        of_peer = self._newcomers_of.add(connection.peer, connection, most=NEWCOMERS_A_PEER_MAX)
        self._evict(of_peer)
        self._evict(self._newcomers.add(connection, most=NEWCOMERS_MAX))

    def begin_handshake(self, connection: Connection) -> None:
        """Count an unverified connection among those that need memory for TLS."""
        if (oldest := self._handshakes.add(connection, most=HANDSHAKES_MAX)) is not None:
            self.metrics.evictions.inc()
            oldest.ignore()

    def verify(self, connection: Connection, pod_uid: str) -> None:
        """Count the connection against this pod from now on."""
        self.leave(connection)
        connection.pod_uid = pod_uid
        self._evict(self._verified.add(pod_uid, connection, most=CONNECTIONS_A_POD_MAX))

    def leave(self, connection: Connection) -> None:
        """Remove a connection that was closed."""
        self._newcomers.discard(connection)
        self._newcomers_of.discard(connection.peer, connection)
        self._handshakes.discard(connection)
        self._verified.discard(connection.pod_uid, connection)

    def sweep(self) -> None:
        """Close connections that are past their deadline."""
        self.rate_limit.forget_paid()
        now_s = self.clock()
        late = (each for each in self._open() if each.deadline_s < now_s)
        for connection in [*itertools.islice(late, SWEPT_MAX)]:
            connection.expire()

    def close(self) -> None:
        """Close all connections and cancel the tasks of those that wait for an answer."""
        for task in self.tasks:
            task.cancel()
        for connection in [*self._open()]:
            connection.abort()

    def _evict(self, connection: Connection | None) -> None:
        if connection is not None:
            self.metrics.evictions.inc()
            connection.abort()

    def _open(self) -> Iterator[Connection]:
        return itertools.chain(self._newcomers, self._verified)

    def count(self, path: str, status: int) -> None:
        """Count a message that was answered."""
        held = self._counts.get((path, status))
        if held is None:
            held = self._counts[path, status] = self.metrics.requests.labels(path, str(status))
        held.inc()


@dataclass(slots=True, eq=False, repr=False)
class Connection(asyncio.BufferedProtocol):
    """One of them: reads requests one after the other and answers each.

    ``_head`` is the head read last, as launchers repeat theirs. ``_timer`` is set while nothing is
    read: it goes on reading.
    """

    _all: Connections
    _buffer: bytearray = field(default_factory=bytearray)
    _head_bytes: bytes = b""
    _head: Head | None = None
    _request: _Request | None = None
    _answers: bool = False
    _closing: bool = False
    _timer: asyncio.TimerHandle | None = None
    _transport: asyncio.Transport = field(init=False)
    _tls: TlsConnection | None = None
    deadline_s: float = 0.0
    peer: str = ""
    pod_uid: str = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of asyncio's protocol."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if peer else ""
        self.deadline_s = self._all.clock() + HEAD_DEADLINE_S
        self._all.enter(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Part of asyncio's protocol."""
        return self._all.received

    def buffer_updated(self, nbytes: int) -> None:
        """Part of asyncio's protocol."""
        if self._closing:
            return
        received = self._all.received[:nbytes]
        self._buffer += (
            received if self._all.tls is None else self._decrypt(received, self._all.tls)
        )
        most = HEAD_BYTES_MAX + (self._request.route.bytes_max if self._request else 0)
        if not self._answers and self._timer is None:
            self._advance()
        elif len(self._buffer) > most:
            self.abort()

    def pause_writing(self) -> None:
        """Part of asyncio's protocol: the other end does not read its answers."""
        self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Part of asyncio's protocol."""
        self._closing = True
        self._buffer.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._all.leave(self)

    def expire(self) -> None:
        """Close the connection, whose deadline has passed."""
        if self._request is not None and not self._closing:
            reason = f"the body took longer than {BODY_DEADLINE_S} s"
            self._refuse(messages.refusal(RefusedError(reason, HTTPStatus.REQUEST_TIMEOUT)))
        else:
            self.abort()

    def ignore(self) -> None:
        """Leave it alone until its deadline, without memory for TLS."""
        self._close()
        self._tls = None
        self._transport.pause_reading()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._all.leave(self)
        self._transport.abort()

    def _decrypt(self, received: memoryview, tls: Tls) -> bytes:
        """What has arrived, and nothing during the handshake; an error ends the connection. Those
        that send nothing need no memory for TLS."""
        if self._tls is None:
            if (context := tls()) is None:
                self.abort()
                return b""
            self._all.begin_handshake(self)
            self._tls = TlsConnection(context)
        try:
            plain = self._tls.decrypt(received)
        except ssl.SSLError:
            self._all.metrics.tls_failures.inc()
            self._turn_away(self._tls.replies())
            return b""
        if replies := self._tls.replies():
            self._transport.write(replies)
        return plain

    def _sealed(self, answer: Response) -> bytes:
        data = answer.encode()
        return data if self._tls is None else self._tls.encrypt(data)

    def _turn_away(self, answer: bytes) -> None:
        """Send the answer to a stranger and close our side; nothing is sent in a crowd."""
        self._close()
        if self._all.is_crowded:
            self._transport.pause_reading()
        else:
            self._transport.write(answer)
            self._transport.write_eof()

    def _advance(self) -> None:
        """Answer one complete message; the next one waits for another round of the event loop."""
        if self._closing or (self._request is None and not self._buffer):
            return
        if self._request is None and not self._read_head():
            return
        assert self._request is not None
        length = self._request.head.length
        if len(self._buffer) < length:
            return
        body = bytes(self._buffer[:length])
        del self._buffer[:length]
        self._act(self._request, partial(self._request.route.act, self._request.bearer, body))
        if self._buffer and not self._answers:
            self._pause(0.0)

    def _pause(self, seconds: float) -> None:
        """Read nothing for this long, and at least for a round of the event loop."""
        self._transport.pause_reading()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._timer = None
        self._transport.resume_reading()
        self._advance()

    def _read_head(self) -> bool:
        """Whether a head has arrived, and its bearer may send the body now."""
        end = self._buffer.find(HEAD_END, 0, HEAD_BYTES_MAX)
        try:
            if end < 0:
                if len(self._buffer) >= HEAD_BYTES_MAX:
                    raise RefusedError(
                        "the head is too large", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                    )
                return False
            data = bytes(self._buffer[:end])
            del self._buffer[: end + len(HEAD_END)]
            if self._head is None or data != self._head_bytes:
                self._head, self._head_bytes = messages.read_head(data), data
            route, bearer = self._all.admit(self._head)
        except RefusedError as error:
            self._all.count(UNREAD, error.status)
            answer = messages.refusal(error)
            if error.status == HTTPStatus.FORBIDDEN:
                self._turn_away(self._sealed(replace(answer, closes=True)))
            else:
                self._refuse(answer)
            return False
        if self.pod_uid != bearer.pod_uid:
            self._all.verify(self, bearer.pod_uid)
        self._request = _Request(self._head, route, bearer)
        wait_s = self._all.rate_limit.reserve(bearer.pod_uid, len(data) + self._head.length)
        self.deadline_s = self._all.clock() + wait_s + BODY_DEADLINE_S
        if wait_s > 0:
            self._pause(wait_s)
        return wait_s == 0

    def _act(self, request: _Request, act: Callable[[], Response | Awaitable[Response]]) -> None:
        """Send the result of a request, at once or when its task is done."""
        try:
            result = act()
        except RefusedError as error:
            result = messages.refusal(error)
        except Exception:
            logger.exception("message failed", extra={"path": request.head.path})
            result = FAILED
        if isinstance(result, Response):
            self._answer(request, result)
            return
        self._answers, self.deadline_s = True, math.inf
        task = asyncio.ensure_future(result)
        self._all.tasks.add(task)
        task.add_done_callback(partial(self._end_task, request))

    def _end_task(self, request: _Request, task: asyncio.Future[Response]) -> None:
        self._all.tasks.discard(task)
        if task.cancelled():
            return
        self._answers = False
        self._act(request, task.result)
        self._advance()

    def _answer(self, request: _Request, answer: Response) -> None:
        self._all.count(request.head.path, answer.status)
        self._request = None
        if self._closing:
            return
        if answer.closes or not request.head.keeps_open:
            self._refuse(replace(answer, closes=True))
            return
        self.deadline_s = self._all.clock() + IDLE_S
        self._transport.write(self._sealed(answer))

    def _refuse(self, answer: Response) -> None:
        """Send a response and close our side; drop what still arrives."""
        self._close()
        self._transport.write(self._sealed(replace(answer, closes=True)))
        self._transport.write_eof()

    def _close(self) -> None:
        self._closing = True
        self._buffer.clear()
        self.deadline_s = self._all.clock() + LINGER_S
