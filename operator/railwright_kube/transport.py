"""HTTP exchanges with the API server: connections, TLS, credentials, and what a failure proves."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from railwright_kube import connection
from railwright_kube.body_limits import Chunks
from railwright_kube.server_clock import ServerClock

JSON = "application/json"

REVIEW = "review"
"""The verb, in metrics, of a POST that changes nothing, such as a TokenReview."""

CONNECT_S = 5.0

LOSES_BROKEN_TLS = sys.version_info < (3, 12, 7)
"""Older Pythons never report that a TLS connection broke while closing (cpython#118950), and its
socket stays open; aiohttp then aborts such connections itself. Goes with support for them."""


class NoAnswerError(Exception):
    """An exchange without a whole response; ``sent``: the server may have acted on it."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


Query = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request; ``verb`` is that of Kubernetes' authorization."""

    verb: str
    method: str
    path: str
    query: Query | None = None
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON

    @property
    def writes(self) -> bool:
        """Whether it may change anything."""
        return self.method != "GET" and self.verb != REVIEW

    def __str__(self) -> str:
        return f"{self.verb} {self.path}"


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response whose body has yet to be read. ``token`` is the one that the request had."""

    status: int
    retry_after_s: float
    body: Chunks
    token: str | None


class Transport(Protocol):
    """Sends requests to one API server."""

    def opened(self) -> AbstractAsyncContextManager[None]:
        """Requests can be sent within the block."""
        ...

    def exchange(
        self, request: HttpRequest, *, total_s: float | None, stall_s: float | None
    ) -> AbstractAsyncContextManager[HttpResponse]:
        """The response within the block, which has to end after ``total_s``, and in which no more
        than ``stall_s`` pass without a byte. Raises NoAnswerError, from within the block too."""
        ...

    async def renew_token(self, refused: str | None) -> None:
        """Read the credentials again, once for all requests that were refused with this token.
        Raises CredentialsError."""
        ...


class HttpTransport:
    """Requests over HTTP to the API server of a kubeconfig file, or (None) of this cluster, whose
    time ``clock`` gets.

    Raises ``kubernetes.config.ConfigException`` when its address cannot be read.
    """

    def __init__(self, kubeconfig: str | None, clock: ServerClock) -> None:
        self._kubeconfig = kubeconfig
        self._clock = clock
        self._settings = connection.load(kubeconfig)
        self._token = connection.bearer_token(self._settings)
        self._token_lock = asyncio.Lock()
        self._session: aiohttp.ClientSession | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Connections are made within the block, and closed with it."""
        context = connection.tls_context(self._settings)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                ssl=context if context is not None else True,
                enable_cleanup_closed=LOSES_BROKEN_TLS,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept-Encoding": "identity", "User-Agent": "railwright"},
            middlewares=(_send_once,),
        )
        async with session as self._session:
            yield

    @asynccontextmanager
    async def exchange(
        self, request: HttpRequest, *, total_s: float | None, stall_s: float | None
    ) -> AsyncIterator[HttpResponse]:
        """Send the request with the credentials read last."""
        token = self._token
        headers = {"Accept": request.accept, "Content-Type": request.content_type}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        url = self._settings.host.rstrip("/") + request.path
        if request.query:
            url += "?" + urlencode(request.query)
        assert self._session is not None, "the transport is used outside its block"
        sent_s = self._clock.monotonic()
        try:
            async with self._session.request(
                request.method,
                URL(url, encoded=True),
                data=request.body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(
                    total=total_s, sock_connect=CONNECT_S, sock_read=stall_s
                ),
                server_hostname=self._settings.tls_server_name,
                allow_redirects=False,
            ) as response:
                self._clock.take_in(response.headers.get("Date", ""), sent_s=sent_s)
                after_s = _seconds(response.headers.get("Retry-After"))
                yield HttpResponse(response.status, after_s, response.content.iter_any(), token)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NoAnswerError(f"not connected: {error}", sent=False) from error
        except (aiohttp.ClientError, TimeoutError, OSError, _LostError) as error:
            raise NoAnswerError(f"{type(error).__name__}: {error}", sent=True) from error

    async def renew_token(self, refused: str | None) -> None:
        """Read the credentials again. After a failure the next refused request tries it again.
        Raises CredentialsError."""
        async with self._token_lock:
            if self._token == refused and refused is not None:
                self._token = await asyncio.to_thread(connection.token, self._kubeconfig)


class _LostError(Exception):
    """The connection broke after the request was sent; keeps aiohttp from sending it again."""


def _seconds(header: str | None) -> float:
    """Retry-After in seconds; 0 when absent or a date, which this server never sends."""
    return float(header) if header is not None and header.isdecimal() else 0.0


async def _send_once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep aiohttp from repeating PUT and DELETE by itself on a closed connection.

    The first request may have succeeded: its repetition would return 409 for our own success.
    """
    try:
        return await handler(request)
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as error:
        raise _LostError(f"{type(error).__name__}: {error}") from error
