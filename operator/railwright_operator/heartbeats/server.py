"""The heartbeat server of launchers and agents: its port, its paths, and their authentication.

Launchers send ``railwright.protocol`` messages, one POST each; ``agents`` has those of node agents.
A launcher is verified by a token that is bound to the live pod of its rank and attempt.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import resource
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, InitVar, dataclass, field
from http import HTTPStatus
from socket import IPPROTO_TCP, SOMAXCONN, TCP_INFO
from typing import Any, TypeVar

from railwright import profile, protocol
from railwright_kube.errors import RequestFailed
from railwright_operator.heartbeats import decoding
from railwright_operator.heartbeats.agents import Agents
from railwright_operator.heartbeats.connections import Connection, Connections, Route
from railwright_operator.heartbeats.messages import Head, RefusedError, Response
from railwright_operator.heartbeats.reception import TICK_S, ReceptionClock
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.heartbeats.tokens import Bearer, Tokens
from railwright_operator.metrics import HeartbeatMetrics

logger = logging.getLogger(__name__)

COMMIT_DEADLINE_S = 8.0
ACCEPTED_AT_ONCE = 32
"""Connections accepted in a round of the event loop: messages on open connections, and the
scheduling cycle, wait for no more than these."""

ACCEPT_QUEUE = max(4096, SOMAXCONN)
QUEUED_AT = 24
"""Where tcp_info has tcpi_unacked and tcpi_sacked: of a listening socket, how many connections wait
to be accepted, and how many may."""

PodUidOf = Callable[[str, int, int], str | None]
"""The UID of the live pod of (job UID, attempt, node rank); None when there is none."""

OnCommit = Callable[[str, str, int, int], Awaitable[None]]
"""Returns once (job UID, group, attempt, step) is durably recorded; raises RequestFailed if it is
not."""

Body = TypeVar("Body", protocol.Register, protocol.Heartbeat, protocol.Commit, profile.Handover)

decode_register = decoding.decoder(protocol.Register)
decode_heartbeat = decoding.decoder(protocol.Heartbeat)


@dataclass(slots=True, eq=False, repr=False)
class HeartbeatServer:
    """The server. ``audience_of`` names the audience of a job's tokens by its UID. Messages are
    accepted while ``is_ready``."""

    sessions: Sessions
    tokens: Tokens
    _: KW_ONLY
    audience_of: Callable[[str], str]
    pod_uid_of: PodUidOf
    on_commit: OnCommit
    is_ready: Callable[[], bool]
    reception_clock: ReceptionClock
    metrics: InitVar[HeartbeatMetrics]
    agents: Agents
    clock: InitVar[Callable[[], float]]
    _connections: Connections = field(init=False)
    _routes: Mapping[str, Route] = field(init=False)
    _server: asyncio.Server | None = None
    _watching: asyncio.Task[None] | None = None

    def __post_init__(self, metrics: HeartbeatMetrics, clock: Callable[[], float]) -> None:
        self._connections = Connections(self._admit, metrics=metrics, clock=clock)
        self._routes = self._paths()

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return the bound address (for port 0). Raises OSError when the port is taken."""
        assert self._server is None, "started twice"
        _allow_open_files()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._connections), host, port, backlog=ACCEPTED_AT_ONCE
        )
        for listener in self._server.sockets:
            # To asyncio the backlog is also how many it accepts in one round.
            with listener.dup() as twin:
                twin.listen(ACCEPT_QUEUE)
        self._watching = asyncio.create_task(self._watch())
        address = self._server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None and self._watching is not None:
            self._watching.cancel()
            self._server.close()
            self._connections.close()
            await asyncio.gather(self._watching, *self._connections.tasks, return_exceptions=True)
            await self._server.wait_closed()
            self._server = self._watching = None

    def _paths(self) -> Mapping[str, Route]:
        def at_once(
            decode: Callable[[bytes], Body],
            handle: Callable[[Body, str], Any],
            encode: Callable[[Any], Response] = _encoded,
        ) -> Route:
            def act(bearer: Bearer, body: bytes) -> Response:
                return encode(handle(self._read(decode, bearer, body), bearer.pod_uid))

            return Route(protocol.MESSAGE_BYTES_MAX, _admit_any, act)

        def later(kind: type[Body], handle: Callable[[Body, str], Awaitable[Any]]) -> Route:
            async def act(bearer: Bearer, body: bytes) -> Response:
                decode = functools.partial(protocol.decode, kind)
                return _encoded(await handle(self._read(decode, bearer, body), bearer.pod_uid))

            return Route(protocol.MESSAGE_BYTES_MAX, _admit_any, act)

        return {
            "/v1/register": at_once(decode_register, self.sessions.register),
            "/v1/beat": at_once(decode_heartbeat, self.sessions.heartbeat, _encoded_heartbeat),
            "/v1/profile": later(profile.Handover, self.sessions.profiled),
            "/v1/commit": later(protocol.Commit, self._commit),
            **self.agents.routes(),
        }

    async def _commit(self, message: protocol.Commit, pod_uid: str) -> protocol.CommitAnswer:
        """Grant a commit once its step is durable, unless the attempt was revoked meanwhile."""
        member, recorded = message.member, False
        group = self.sessions.claim_commit(message, pod_uid)
        try:
            async with asyncio.timeout(COMMIT_DEADLINE_S):
                await self.on_commit(member.job_uid, group, member.attempt, message.step)
            recorded = True
        except (TimeoutError, RequestFailed) as error:
            logger.warning(
                "commit not recorded",
                extra={"job_uid": member.job_uid, "step": message.step, "error": repr(error)},
            )
            raise RefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE, "the step could not be recorded now"
            ) from error
        finally:
            self.sessions.settle_commit(message, recorded=recorded)
        return protocol.CommitAnswer(granted=True)

    def _read(self, decode: Callable[[bytes], Body], bearer: Bearer, body: bytes) -> Body:
        """Decode a message and verify that its sender is the live pod of its rank. Raises
        RefusedError."""
        try:
            message = decode(body)
        except protocol.ProtocolError as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from error
        member = message.member
        self.sessions.admit(member)
        if self.audience_of(member.job_uid) not in bearer.audiences:
            raise RefusedError(HTTPStatus.FORBIDDEN, "the token is not for this job")
        lives = self.pod_uid_of(member.job_uid, member.attempt, member.node_rank)
        if bearer.pod_uid != lives:
            raise RefusedError(HTTPStatus.FORBIDDEN, "the token is not of the pod of this rank")
        return message

    async def _watch(self) -> None:
        """Close late connections, and stop the clock when messages may be lost."""
        while True:
            await asyncio.sleep(TICK_S)
            self._connections.sweep()
            if self.is_ready():
                self.reception_clock.tick()
                if self._is_queue_full():
                    self.reception_clock.miss()

    def _is_queue_full(self) -> bool:
        """Whether the kernel refuses connections because they are not accepted fast enough."""
        assert self._server is not None
        for listener in self._server.sockets:
            info = listener.getsockopt(IPPROTO_TCP, TCP_INFO, QUEUED_AT + 8)
            queued, size = struct.unpack_from("II", info, QUEUED_AT)
            if queued >= size > 0:
                return True
        return False

    def _admit(self, head: Head) -> tuple[Route, Bearer]:
        """Authenticate the sender before the body is read. Raises RefusedError."""
        route = self._routes.get(head.path)
        if route is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such path")
        if not self.is_ready():
            raise RefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE, "this operator does not lead, or not yet"
            )
        bearer = self.tokens.bearer(head.token)
        route.admit(bearer)
        if head.length > route.bytes_max:
            raise RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"{head.length} bytes, expected at most {route.bytes_max}",
            )
        return route, bearer


def _admit_any(bearer: Bearer) -> None:
    """Admit any bearer: which pod may send a launcher's message depends on the message."""


def _encoded(message: Any) -> Response:
    return Response(200, protocol.encode(message))


_encoded_heartbeat = functools.lru_cache(maxsize=16)(_encoded)
"""Nearly all responses to heartbeats are equal."""


def _allow_open_files() -> None:
    """Raise the limit of open files to its maximum, as each launcher has one or two connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
