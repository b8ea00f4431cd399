"""A proxy in front of a real API server that does on request what networks and servers do.

Plain HTTP towards the client, the server's own TLS behind. A test says which of the next requests
meet a fault; everything else passes through, watches byte by byte.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import aiohttp
import orjson
from aiohttp import web
from yarl import URL

from railwright_testbed import ControlPlane

NOT_FORWARDED = frozenset({"host", "content-length", "transfer-encoding", "connection"})


class Loss(StrEnum):
    """What is lost: the request on its way, or the reply to one that was carried out."""

    REQUEST = "request"
    REPLY = "reply"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that the server never gave."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)


Matches = Callable[[web.Request], bool]


@dataclass
class FaultProxy:
    """What it has seen, and what it will do."""

    url: str = ""
    seen: list[str] = field(default_factory=list)
    faults: list[tuple[Matches, Loss | Reply]] = field(default_factory=list)
    streams: list[web.Request] = field(default_factory=list)
    flows: asyncio.Event = field(default_factory=asyncio.Event)

    def fail_next(self, method: str, part: str, fault: Loss | Reply, *, times: int = 1) -> None:
        """The next requests of this method with ``part`` in their path and query meet a fault."""

        def matches(request: web.Request) -> bool:
            return request.method == method and part in request.path_qs

        self.faults.extend([(matches, fault)] * times)

    def stall(self) -> None:
        """Bytes from the server are kept back from now on; connections stay open."""
        self.flows.clear()

    def flow(self) -> None:
        """Undo ``stall``."""
        self.flows.set()

    def cut_streams(self) -> None:
        """Break every watch that is open, without a word."""
        for request in self.streams:
            if request.transport is not None:
                request.transport.abort()
        self.streams.clear()

    def count(self, part: str) -> int:
        """How many requests had ``part`` in method, path or query."""
        return sum(part in line for line in self.seen)


@asynccontextmanager
async def in_front_of(plane: ControlPlane) -> AsyncIterator[FaultProxy]:
    """A proxy that listens while in the block."""
    proxy = FaultProxy()
    proxy.flow()
    context = ssl.create_default_context(cafile=str(plane.ca_file))
    connector = aiohttp.TCPConnector(limit=0, ssl=context)
    async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as session:

        async def handle(request: web.Request) -> web.StreamResponse:
            return await _handle(proxy, session, request, plane.url)

        application = web.Application(client_max_size=64 * 1024 * 1024)
        application.router.add_route("*", "/{path:.*}", handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            yield proxy
        finally:
            proxy.flow()
            proxy.cut_streams()
            await runner.cleanup()


async def _handle(
    proxy: FaultProxy, session: aiohttp.ClientSession, request: web.Request, server: str
) -> web.StreamResponse:
    proxy.seen.append(f"{request.method} {request.path_qs}")
    fault = _take(proxy, request)
    if isinstance(fault, Reply):
        content = {"kind": "Status", "code": fault.status} | fault.body
        body = orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
        return web.Response(
            status=fault.status, headers=fault.headers, body=body, content_type="application/json"
        )
    if fault is Loss.REQUEST:
        return _dropped(request)
    headers = {k: v for k, v in request.headers.items() if k.lower() not in NOT_FORWARDED}
    url = URL(server + request.raw_path, encoded=True)
    async with session.request(
        request.method,
        url,
        data=await request.read(),
        headers=headers,
        skip_auto_headers=["Content-Type"],
    ) as answer:
        if fault is Loss.REPLY:
            await answer.read()
            return _dropped(request)
        return await _passed_on(proxy, request, answer)


def _take(proxy: FaultProxy, request: web.Request) -> Loss | Reply | None:
    for position, (matches, fault) in enumerate(proxy.faults):
        if matches(request):
            del proxy.faults[position]
            return fault
    return None


def _dropped(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _passed_on(
    proxy: FaultProxy, request: web.Request, answer: aiohttp.ClientResponse
) -> web.StreamResponse:
    headers = {k: v for k, v in answer.headers.items() if k.lower() not in NOT_FORWARDED}
    response = web.StreamResponse(status=answer.status, headers=headers)
    is_watch = "watch" in request.query
    if is_watch:
        proxy.streams.append(request)
    await proxy.flows.wait()
    await response.prepare(request)
    try:
        async for chunk in answer.content.iter_any():
            await proxy.flows.wait()
            await response.write(chunk)
    except (aiohttp.ClientError, ConnectionError):
        return _dropped(request)
    await response.write_eof()
    return response
