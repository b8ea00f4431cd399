"""A server for messages of pods that are verified by their service account tokens."""

from __future__ import annotations

import asyncio
import resource
import struct
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus
from socket import IPPROTO_TCP, SOMAXCONN, TCP_INFO

from railwright_kube.metrics import begin
from railwright_kube.tokens import Bearer, KeysNotReadError, TokenRefusedError, Tokens
from railwright_process.connections import UNREAD, Connection, Connections, Route, Tls
from railwright_process.messages import STATUSES, Head, RefusedError
from railwright_process.server_metrics import ServerMetrics

TICK_S = 0.25
"""How often late connections are closed."""

ACCEPTED_AT_ONCE = 32
"""Connections accepted in a round of the event loop: messages on open connections, and all other
tasks, wait for no more than these."""

ACCEPT_QUEUE = max(4096, SOMAXCONN)
QUEUED_AT = 24
"""Where tcp_info has tcpi_unacked and tcpi_sacked: of a listening socket, how many connections wait
to be accepted, and how many may."""


@dataclass(eq=False, repr=False)
class MessageServer:
    """The server for the paths in ``routes``. It accepts messages while ``is_ready``, and otherwise
    redirects them to the leader, whose host:port ``leader_address`` returns if it is known.
    ``on_tick`` is called every ``TICK_S`` in which it is ready, with whether connections may have
    been refused; ``clock`` is monotonic seconds. With ``tls``, every connection is encrypted."""

    routes: Mapping[str, Route]
    tokens: Tokens
    _: KW_ONLY
    is_ready: Callable[[], bool]
    leader_address: Callable[[], str]
    tls: Tls | None = None
    metrics: ServerMetrics
    clock: Callable[[], float]
    on_tick: Callable[[bool], None] = lambda is_queue_full: None

    def __post_init__(self) -> None:
        begin(self.metrics.requests, (UNREAD, *self.routes), map(str, map(int, STATUSES)))
        self._connections = Connections(
            self._admit, tls=self.tls, metrics=self.metrics, clock=self.clock
        )
        self._server: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None

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

    async def _watch(self) -> None:
        """Close late connections."""
        while True:
            await asyncio.sleep(TICK_S)
            self._tick()

    def _tick(self) -> None:
        self._connections.sweep()
        if self.is_ready():
            self.on_tick(self.is_queue_full())

    def is_queue_full(self) -> bool:
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
        route = self.routes.get(head.path)
        if route is None:
            raise RefusedError("there is no such path", HTTPStatus.NOT_FOUND)
        if not self.is_ready():
            raise self._not_leading(head.path)
        bearer = self._bearer(head.token)
        route.admit(bearer)
        if head.length > route.bytes_max:
            raise RefusedError(
                f"{head.length} bytes, expected at most {route.bytes_max}",
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            )
        return route, bearer

    def _not_leading(self, path: str) -> RefusedError:
        address = self.leader_address()
        if not address:
            return RefusedError(
                "this replica does not lead, or not yet", HTTPStatus.SERVICE_UNAVAILABLE
            )
        return RefusedError(
            f"this replica does not lead; {address} does",
            HTTPStatus.TEMPORARY_REDIRECT,
            location=f"//{address}{path}",
        )

    def _bearer(self, token: str) -> Bearer:
        try:
            return self.tokens.bearer(token)
        except TokenRefusedError as refused:
            raise RefusedError(str(refused), HTTPStatus.FORBIDDEN) from refused
        except KeysNotReadError as early:
            raise RefusedError(str(early), HTTPStatus.SERVICE_UNAVAILABLE) from early


def _allow_open_files() -> None:
    """Raise the limit of open files to its maximum: each launcher or agent has connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
