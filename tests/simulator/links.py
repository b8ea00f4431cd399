"""The connection of one simulated process to the API server: delays, losses and watches.

A request lands some time after it was sent, whatever its sender does meanwhile: give it up, crash,
or lose the Lease. So a request whose client waits no longer may still land.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson

from railwright_kube import paths
from railwright_kube.transport import HttpRequest, HttpResponse, NoAnswerError
from simulator.api_server import ApiRequest, ApiResponse, ApiServer
from simulator.deliveries import Deliveries
from simulator.stored_objects import Change
from simulator.virtual_loop import VirtualLoop
from simulator.watches import WatchCursor

SIGNING_KEYS = {
    "keys": [
        {
            "kid": "simulated",
            "kty": "EC",
            "alg": "ES256",
            "crv": "P-256",
            "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
            "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU",
        }
    ]
}
"""The base point of the curve: no message is signed."""

EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'

BOOKMARK_S = 60.0
LINES_MAX = 64
LAG_S_MAX = 8.0
LATE_S_MAX = 20.0
"""Longer than any client waits."""


@dataclass(slots=True)
class LinkFaults:
    """How long a message is on its way on average.

    Of a thousand requests, how many are refused a connection, are lost on their way, land and lose
    their answer, land up to ``LATE_S_MAX`` later, or are answered 429 or 503; of a thousand
    deliveries of a watch, how many end it, lose an event, or are seconds late.
    """

    delay_s: float = 0.01
    unconnected: int = 0
    lost: int = 0
    unanswered: int = 0
    late: int = 0
    throttled: int = 0
    cut: int = 0
    missed: int = 0
    lagging: int = 0

    def end(self) -> None:
        """No more faults."""
        self.__init__()  # type: ignore[misc]


@dataclass(slots=True)
class DelayedRequests:
    """Requests of one process that match, which do not arrive before they are released."""

    matches: Callable[[ApiRequest], bool]
    requests: list[ApiRequest] = field(default_factory=list)
    _arrivals: list[Callable[[], None]] = field(default_factory=list)

    def add(self, request: ApiRequest, arrive: Callable[[], None]) -> None:
        """Hold this request."""
        self.requests.append(request)
        self._arrivals.append(arrive)

    def release(self) -> None:
        """They arrive now, and later ones as usual."""
        self.matches = lambda request: False
        while self._arrivals:
            self._arrivals.pop(0)()


class ApiLink:
    """The transport of one process. ``faults`` may be changed at any time; a ``closed`` link
    carries nothing more."""

    def __init__(
        self,
        loop: VirtualLoop,
        server: ApiServer,
        faults: LinkFaults,
        rng: Random,
        *,
        carry_out: Callable[[ApiRequest, int], ApiResponse],
        on_read: Callable[[ApiRequest], None],
    ) -> None:
        """``carry_out`` has the server answer a request of this process, which was sent when it
        could know nodes and pods up to a version. ``on_read`` is called with each GET that lands,
        watches included."""
        self._loop = loop
        self._server = server
        self._faults = faults
        self._rng = rng
        self._carry_out = carry_out
        self._on_read = on_read
        self._world: Context = copy_context()
        self._news: dict[asyncio.Event, str] = {}
        self._expired: set[asyncio.Event] = set()
        self._stalled_until_s = self._cut_until_s = 0.0
        self._flowing = asyncio.Event()
        self._expired_version = 0
        self._held: list[DelayedRequests] = []
        self.closed = False
        self._deliveries = Deliveries(loop.time)
        server.on_change.append(self._notify)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """There is nothing to open."""
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """The process is no more: what it sent may still land."""
        if not self.closed:
            self.closed = True
            self._server.on_change.remove(self._notify)

    def stall(self, seconds: float, *, expires: bool) -> None:
        """Deliver no event of a watch for a while; then go on, or end the watches as expired."""
        self._stalled_until_s = self._loop.time() + seconds
        self._flowing.clear()
        if expires:
            self._expired.update(self._news)

    def cut(self, seconds: float) -> None:
        """The process does not reach the server for a while. What it sent before may land."""
        self._cut_until_s = self._loop.time() + seconds
        self.stall(seconds, expires=False)

    def delay_requests(self, matches: Callable[[ApiRequest], bool]) -> DelayedRequests:
        """Hold the requests that match from now on."""
        held = DelayedRequests(matches)
        self._held.append(held)
        return held

    def expire(self) -> None:
        """End all watches; each has to begin with a list."""
        self._flowing.set()
        self._stalled_until_s = self._cut_until_s = 0.0
        self._expired_version = self._server.version
        self._expired.update(self._news)
        for news in self._news:
            news.set()

    @asynccontextmanager
    async def exchange(
        self, request: HttpRequest, *, total_s: float | None, stall_s: float | None
    ) -> AsyncIterator[HttpResponse]:
        """Send the request; its response."""
        answered: asyncio.Future[ApiResponse | WatchCursor] = self._loop.create_future()
        self._send(_api_request(request), answered)
        try:
            async with asyncio.timeout(total_s):
                found = await answered
        except TimeoutError:
            raise NoAnswerError("TimeoutError: ", sent=True) from None
        if isinstance(found, WatchCursor):
            seconds = float((request.query or {}).get("timeoutSeconds", math.inf))
            begin = int((request.query or {}).get("resourceVersion", 0))
            lines = self._lines(found, request.path, seconds=seconds)
            is_expired = begin < self._expired_version
            yield HttpResponse(200, 0.0, _chunk(EXPIRED) if is_expired else lines, None)
        else:
            after_s = 1.0 if found.status == 429 else 0.0
            yield HttpResponse(found.status, after_s, _chunk(found.body), None)

    async def renew_token(self, refused: str | None) -> None:
        """There are no tokens."""

    def _send(
        self, request: ApiRequest, answered: asyncio.Future[ApiResponse | WatchCursor]
    ) -> None:
        faults, forward_s, back_s = self._faults, self._delay_s(), self._delay_s()
        known_version = self._deliveries.known_version()
        is_cut = self.closed or self._loop.time() < self._cut_until_s
        if is_cut or self._happens(faults.unconnected):
            self._later(forward_s, _fail, answered, NoAnswerError("not connected", sent=False))
            return
        if self._happens(faults.lost):
            self._later(forward_s, _fail, answered, NoAnswerError("lost", sent=True))
            if self._happens(500):
                self._later(self._rng.uniform(0, LATE_S_MAX), self._land, request, known_version)
            return
        if self._happens(faults.late):
            forward_s = self._rng.uniform(0, LATE_S_MAX)
        throttled = self._rng.choice((429, 503)) if self._happens(faults.throttled) else 0

        def arrive() -> None:
            if throttled:
                self._later(back_s, _resolve, answered, _refused(throttled))
                return
            version = self._server.version
            found = self._land(request, known_version)
            if self._happens(faults.unanswered):
                self._lose_answer(answered, back_s)
                return
            if isinstance(found, ApiResponse) and request.method == "GET":
                self._later(back_s, self._deliver, answered, request, found, version)
            else:
                self._later(back_s, _resolve, answered, found)

        held = next((each for each in self._held if each.matches(request)), None)
        if held is None:
            self._later(forward_s, arrive)
        else:
            held.add(request, arrive)

    def _lose_answer(self, answered: asyncio.Future[Any], back_s: float) -> None:
        """The answer to a request that landed is lost: the connection is reset, or a proxy or the
        server gives up."""
        status = self._rng.choice((0, 500, 504))
        if status:
            self._later(back_s, _resolve, answered, _refused(status))
        else:
            self._later(back_s, _fail, answered, NoAnswerError("reset", sent=True))

    def _deliver(
        self,
        answered: asyncio.Future[Any],
        request: ApiRequest,
        response: ApiResponse,
        version: int,
    ) -> None:
        if not answered.done():
            self._deliveries.listed(request, response, version=version)
        _resolve(answered, response)

    def _land(self, request: ApiRequest, known_version: int) -> ApiResponse | WatchCursor:
        if request.method == "GET":
            self._on_read(request)
        if request.path == paths.SIGNING_KEYS:
            return ApiResponse(200, orjson.dumps(SIGNING_KEYS))
        if request.query.get("watch"):
            return self._server.watch(request)
        return self._carry_out(request, known_version)

    async def _lines(
        self, cursor: WatchCursor, path: str, *, seconds: float
    ) -> AsyncIterator[bytes]:
        """The lines of a watch until its server ends it."""
        news, faults = asyncio.Event(), self._faults
        self._deliveries.watched(path, cursor.version)
        end_s = self._loop.time() + seconds
        self._news[news] = path
        try:
            while not self.closed:
                news.clear()
                if news in self._expired:
                    yield EXPIRED
                    return
                if self._happens(faults.missed):
                    cursor.skip(1)
                    self._deliveries.lost(path)
                lines = cursor.take(self._rng.choice((1, LINES_MAX)))
                if lines:
                    self._deliveries.watched(path, cursor.version)
                    yield b"\n".join(lines) + b"\n"
                    if cursor.ended:
                        return
                    if self._happens(faults.lagging):
                        await asyncio.sleep(self._rng.uniform(0, LAG_S_MAX))
                    continue
                if self._loop.time() >= end_s:
                    return
                try:
                    async with asyncio.timeout(min(BOOKMARK_S, end_s - self._loop.time())):
                        await news.wait()
                except TimeoutError:
                    self._deliveries.watched(path, self._server.version)
                    yield cursor.bookmark() + b"\n"
                    continue
                await asyncio.sleep(self._delay_s())
                if self._happens(faults.lagging):
                    await asyncio.sleep(self._rng.uniform(0, LAG_S_MAX))
                if self._stalled_until_s > self._loop.time():
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._stalled_until_s - self._loop.time()):
                            await self._flowing.wait()
                if self._happens(faults.cut):
                    raise NoAnswerError("cut", sent=True)
        finally:
            del self._news[news]
            self._expired.discard(news)

    def _notify(self, change: Change) -> None:
        for news, path in self._news.items():
            if path == change.object.resource.path:
                news.set()

    def _later(self, seconds: float, call: Callable[..., object], *args: object) -> None:
        self._loop.call_later(seconds, call, *args, context=self._world)

    def _delay_s(self) -> float:
        return self._rng.expovariate(1 / self._faults.delay_s)

    def _happens(self, permille: int) -> bool:
        return permille > 0 and self._rng.randrange(1000) < permille


def _api_request(request: HttpRequest) -> ApiRequest:
    return ApiRequest(
        method=request.method,
        path=request.path,
        query=request.query or {},
        body=None if request.body is None else orjson.loads(request.body),
        content_type=request.content_type,
        accept=request.accept,
    )


async def _chunk(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _refused(status: int) -> ApiResponse:
    body = {"kind": "Status", "code": status, "reason": "TooManyRequests", "message": "simulated"}
    return ApiResponse(status, orjson.dumps(body))


def _resolve(answered: asyncio.Future[object], value: object) -> None:
    if not answered.done():
        answered.set_result(value)


def _fail(answered: asyncio.Future[object], error: Exception) -> None:
    if not answered.done():
        answered.set_exception(error)
