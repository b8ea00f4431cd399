"""Serve /metrics, which names jobs, namespaces and nodes of all users, to those who may read it.

It is encrypted like the messages of pods, as each request has a bearer token. A connection counts
from its acceptance, in its handshake too: asyncio's servers and aiohttp's limits know it only
afterwards. A new connection is in a pool whose oldest member is closed if it is full. Once a client
was authorized its connection is in another pool, so that new ones end no scrape.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import choose_encoder

from railwright_kube.access import PATH
from railwright_process.connections import Tls

logger = logging.getLogger(__name__)

Authorize = Callable[[str], Awaitable[HTTPStatus]]
"""What a request with a bearer token, in ASCII, is answered with: one of ``STATUSES``."""

UNAUTHORIZED_MAX = 64
AUTHORIZED_MAX = 16
"""Connections. A Prometheus keeps one."""

HANDSHAKE_S = 5.0
SHUTDOWN_S = 1.0
"""How long a client has for its part of the end of TLS."""

ACCEPT_AGAIN_S = 1.0
"""After a connection that could not be accepted, such as one of too many open files."""

REFUSALS = {
    HTTPStatus.UNAUTHORIZED: "expected a valid bearer token",
    HTTPStatus.FORBIDDEN: f"the account of this token may not get {PATH}, as the ClusterRole "
    "railwright-metrics allows",
    HTTPStatus.TOO_MANY_REQUESTS: "too many unknown tokens; send it again later",
    HTTPStatus.SERVICE_UNAVAILABLE: "the API server does not say whose token this is; send it "
    "again later",
}
STATUSES = (HTTPStatus.OK, *REFUSALS)


@dataclass(frozen=True, slots=True, eq=False)
class _Connection:
    """``opening`` ends with its handshake: None if that failed."""

    socket: socket.socket
    opening: asyncio.Task[asyncio.Transport | None]

    @property
    def is_closed(self) -> bool:
        return self.socket.fileno() < 0

    def abort(self) -> None:
        """Close at once, whatever the other end does."""
        if not self.opening.done():
            self.opening.cancel()
        elif not self.opening.cancelled() and (transport := self.opening.result()) is not None:
            transport.abort()


class MetricsServer:
    """The server for the series of ``registry``. With ``tls`` it is encrypted. ``requests`` counts
    the decisions about requests."""

    def __init__(
        self,
        registry: CollectorRegistry,
        authorize: Authorize,
        *,
        tls: Tls | None,
        requests: Counter,
    ) -> None:
        self._registry, self._authorize, self._requests = registry, authorize, requests
        self._tls = tls
        self._scraping = asyncio.Lock()
        application = web.Application(middlewares=(self._check,))
        application.router.add_get(PATH, self._scrape)
        self._runner = web.AppRunner(
            application, access_log=None, keepalive_timeout=60.0, shutdown_timeout=1.0
        )
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._unauthorized: dict[Any, _Connection] = {}
        self._authorized: dict[Any, _Connection] = {}
        """By the address of the other end, the oldest first."""

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return the bound address (for port 0). Raises OSError when the port is taken."""
        assert self._listener is None, "started twice"
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family)
        self._listener.setblocking(False)
        await self._runner.setup()
        self._accepting = asyncio.create_task(self._accept(self._listener))
        address = self._listener.getsockname()
        return str(address[0]), int(address[1])

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._accepting is None or self._listener is None:
            return
        self._accepting.cancel()
        await asyncio.gather(self._accepting, return_exceptions=True)
        self._listener.close()
        for each in (*self._unauthorized.values(), *self._authorized.values()):
            each.abort()
        await self._runner.cleanup()
        self._accepting = self._listener = None

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, peer = await loop.sock_accept(listener)
            except OSError as error:
                logger.warning("connection not accepted", extra={"error": str(error)})
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            self._enter(peer, accepted)
            # One in a round of the event loop, however many wait.
            await asyncio.sleep(0)

    def _enter(self, peer: Any, accepted: socket.socket) -> None:
        for pool in (self._unauthorized, self._authorized):
            for its in [each for each, held in pool.items() if held.is_closed]:
                del pool[its]
        _make_room(self._unauthorized, UNAUTHORIZED_MAX)
        opening = asyncio.create_task(self._open(accepted))
        self._unauthorized[peer] = _Connection(accepted, opening)

    async def _open(self, accepted: socket.socket) -> asyncio.Transport | None:
        """Make the handshake, and hand the connection over."""
        server, context = self._runner.server, self._tls and self._tls()
        if server is None or (self._tls is not None and context is None):
            accepted.close()  # There is no certificate yet.
            return None
        limits = {"ssl_handshake_timeout": HANDSHAKE_S, "ssl_shutdown_timeout": SHUTDOWN_S}
        try:
            transport, _ = await asyncio.get_running_loop().connect_accepted_socket(
                server, accepted, ssl=context, **(limits if context else {})
            )
        except OSError:
            return None  # The handshake failed, and the client knows why.
        except Exception:
            # The next connections are accepted all the same.
            logger.exception("connection for metrics failed")
            accepted.close()
            return None
        return transport

    @web.middleware
    async def _check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Whatever the path, nothing is answered without a token."""
        scheme, *tokens = request.headers.get("Authorization", "").split() or [""]
        status = HTTPStatus.UNAUTHORIZED
        # The API server would read the first of several words, and each text be another token here.
        if scheme.lower() == "bearer" and len(tokens) == 1 and tokens[0].isascii():
            status = await self._authorize(tokens[0])
        self._requests.labels(str(int(status))).inc()
        if status == HTTPStatus.OK:
            self._admit(request)
            return await handler(request)
        headers = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
        refusal = web.Response(status=status, text=REFUSALS[status], headers=headers)
        refusal.force_close()
        return refusal

    def _admit(self, request: web.Request) -> None:
        """Count the connection among the authorized ones from now on."""
        peer = request.transport and request.transport.get_extra_info("peername")
        if (connection := self._unauthorized.pop(peer, None)) is not None:
            _make_room(self._authorized, AUTHORIZED_MAX)
            self._authorized[peer] = connection

    async def _scrape(self, request: web.Request) -> web.Response:
        """Thousands of series are rendered in a thread: a fifth of a second, which the event loop
        does not wait. One scrape at a time, and none for a client that has left."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        async with self._scraping:
            if request.transport is None:
                return web.Response()
            data = await asyncio.to_thread(encode, self._registry)
        response = web.Response(body=data, headers={"Content-Type": content_type})
        response.enable_compression()
        return response


def _make_room(pool: dict[Any, _Connection], most: int) -> None:
    if len(pool) >= most:
        pool.pop(next(iter(pool))).abort()
