"""Serve /metrics, which names jobs, namespaces and nodes of all users, to those who may read it.

It is encrypted like the messages of pods, as each request has a bearer token.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.exposition import choose_encoder

from railwright_kube.access import PATH

Authorize = Callable[[str], Awaitable[HTTPStatus]]
"""What a request with a bearer token, in ASCII, is answered with: one of ``STATUSES``."""

CONNECTIONS_MAX = 64
"""One more closes the oldest. A Prometheus keeps one."""

HANDSHAKE_S = 5.0

REFUSALS = {
    HTTPStatus.UNAUTHORIZED: "expected a valid bearer token",
    HTTPStatus.FORBIDDEN: f"the account of this token may not get {PATH}, as the ClusterRole "
    "railwright-metrics allows",
    HTTPStatus.TOO_MANY_REQUESTS: "too many unknown tokens; send it again later",
    HTTPStatus.SERVICE_UNAVAILABLE: "the API server does not say whose token this is; send it "
    "again later",
}
STATUSES = (HTTPStatus.OK, *REFUSALS)


class MetricsServer:
    """The server for the series of ``registry``, encrypted with ``tls`` if it is not None.
    ``requests`` counts what is asked of it."""

    def __init__(
        self,
        registry: CollectorRegistry,
        authorize: Authorize,
        *,
        tls: ssl.SSLContext | None,
        requests: Counter,
    ) -> None:
        self._registry, self._authorize, self._requests = registry, authorize, requests
        self._tls = tls
        self._scraping = asyncio.Lock()
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; return the bound address (for port 0). Raises OSError when the port is taken."""
        assert self._runner is None, "started twice"
        application = web.Application(middlewares=(self._check,))
        application.router.add_get(PATH, self._scrape)
        self._runner = runner = web.AppRunner(
            application, access_log=None, keepalive_timeout=60.0, shutdown_timeout=1.0
        )
        await runner.setup()
        self._server = await asyncio.get_running_loop().create_server(
            self._connection,
            host,
            port,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S,
        )
        address = self._server.sockets[0].getsockname()
        return str(address[0]), int(address[1])

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None and self._runner is not None:
            self._server.close()
            await self._runner.cleanup()
            self._server = self._runner = None

    def _connection(self) -> asyncio.BaseProtocol:
        server = None if self._runner is None else self._runner.server
        assert server is not None, "a connection after the end"
        if len(server.connections) >= CONNECTIONS_MAX:
            server.connections[0].force_close()
        return server()

    @web.middleware
    async def _check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """All paths and methods are refused alike without a token."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        status = HTTPStatus.UNAUTHORIZED
        if scheme.lower() == "bearer" and token.strip() and token.isascii():
            status = await self._authorize(token.strip())
        self._requests.labels(str(int(status))).inc()
        if status == HTTPStatus.OK:
            return await handler(request)
        headers = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else None
        return web.Response(status=status, text=REFUSALS[status], headers=headers)

    async def _scrape(self, request: web.Request) -> web.Response:
        """Thousands of series are rendered in a thread: a fifth of a second, which the event loop
        does not wait. One scrape at a time."""
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        async with self._scraping:
            data = await asyncio.to_thread(encode, self._registry)
        response = web.Response(body=data, headers={"Content-Type": content_type})
        response.enable_compression()
        return response
