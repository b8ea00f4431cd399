"""A proxy in front of a real API server that does on request what networks and servers do.

TLS on both sides: its own certificate authority towards the client, the server's behind. Rules say
which messages meet a fault (``api_faults``); all else passes through, watches event by event.
"""

from __future__ import annotations

import asyncio
import bisect
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import orjson
import trustme
from aiohttp import web
from yarl import URL

from railwright_testbed import ControlPlane, Entrance
from worlds import api_faults
from worlds.api_faults import AnyFault, Elsewhere, Fault, Late, Message, Reply, Rule, Strike

NOT_FORWARDED = frozenset({"host", "content-length", "transfer-encoding", "connection"})
DEADLINE_S = 20.0
GOODBYE_S = 0.1


@dataclass(slots=True)
class Exchange:
    """A request that came, and the status that the API server answered; 0 while it has not.

    ``at_s`` is when it came, in monotonic seconds.
    """

    message: Message
    status: int = 0
    at_s: float = field(default_factory=time.monotonic)


class FaultProxy:
    """What it has seen, and what it will do. Its methods may be called from any thread."""

    def __init__(self, entrance: Entrance, loop: asyncio.AbstractEventLoop) -> None:
        self.entrance = entrance
        self.seen: list[Exchange] = []
        self.streams: list[web.Request] = []
        self._loop = loop
        self._rules: list[Rule] = []
        self._stalled: Rule | None = None

    def __repr__(self) -> str:
        return f"<FaultProxy {self.entrance.url} seen={len(self.seen)} rules={self._rules}>"

    def fail(self, selector: str, fault: AnyFault, **which: Any) -> Rule:
        """Let messages meet a fault; ``which`` is as ``Rule`` takes it. Older rules come first."""
        rule = Rule(selector, fault, loop=self._loop, **which)
        self._rules.append(rule)
        return rule

    def stall(self) -> None:
        """Whatever the server says is kept back from now on; connections stay open."""
        self._stalled = self.fail("*", Fault.REPLY_HELD, times=None)

    def flow(self) -> None:
        """Undo ``stall``."""
        if self._stalled is not None:
            self._stalled.lift()

    def lift_all(self) -> None:
        """Be a proxy without faults again."""
        rules, self._rules = self._rules, []
        for rule in rules:
            rule.lift()

    def cut_streams(self) -> None:
        """Break every watch that is open, without a word."""
        streams, self.streams = self.streams, []
        for request in streams:
            if request.transport is not None:
                self._loop.call_soon_threadsafe(request.transport.abort)

    def count(self, selector: str, *, since: int = 0, namespace: str = "") -> int:
        """How many such requests came, after so many of any kind."""
        return len(self.statuses(selector, since=since, namespace=namespace))

    def statuses(self, selector: str, *, since: int = 0, namespace: str = "") -> list[int]:
        """What the server answered to such requests, in the order in which they came."""
        return [
            each.status
            for each in self.seen[since:]
            if each.message.is_of(selector) and namespace in ("", each.message.namespace)
        ]

    def most_in(self, seconds: float, selector: str, *, since: int = 0, namespace: str = "") -> int:
        """The most such requests that came within so many seconds."""
        came_s = sorted(
            each.at_s
            for each in self.seen[since:]
            if each.message.is_of(selector) and namespace in ("", each.message.namespace)
        )
        before = (bisect.bisect_right(came_s, at_s - seconds) for at_s in came_s)
        return max((at + 1 - first for at, first in enumerate(before)), default=0)

    def rule_for(self, message: Message) -> Rule | None:
        """The rule whose fault this message meets; it has counted it."""
        return next((rule for rule in list(self._rules) if rule.meets(message)), None)


@asynccontextmanager
async def in_front_of(plane: ControlPlane) -> AsyncIterator[FaultProxy]:
    """A proxy that listens while in the block."""
    loop = asyncio.get_running_loop()
    authority = trustme.CA()
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(serving)
    async with _server_session(plane) as session:
        application = web.Application(client_max_size=64 * 1024 * 1024)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        proxies: list[FaultProxy] = []

        async def handle(request: web.Request) -> web.StreamResponse:
            return await _handle(proxies[0], session, request, plane.url)

        application.router.add_route("*", "/{path:.*}", handle)
        await runner.setup()
        assert runner.server is not None
        listening = await loop.create_server(
            runner.server, "127.0.0.1", 0, ssl=serving, ssl_shutdown_timeout=GOODBYE_S
        )
        try:
            port = listening.sockets[0].getsockname()[1]
            ca_file = plane.directory / f"proxy-{port}.crt"
            authority.cert_pem.write_to_path(str(ca_file))
            proxies.append(FaultProxy(Entrance(f"https://127.0.0.1:{port}", ca_file), loop))
            yield proxies[0]
        finally:
            for proxy in proxies:
                proxy.lift_all()
                proxy.cut_streams()
            listening.close()
            await runner.cleanup()
            # Sockets of clients that left without a goodbye are closed when its time is over.
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), 2 * GOODBYE_S)


@contextmanager
def beside(plane: ControlPlane) -> Iterator[FaultProxy]:
    """The same in a thread of its own, for tests without an event loop."""
    opened: Future[tuple[FaultProxy, Callable[[], object]]] = Future()

    async def serve() -> None:
        done, loop = asyncio.Event(), asyncio.get_running_loop()
        async with in_front_of(plane) as proxy:
            opened.set_result((proxy, lambda: loop.call_soon_threadsafe(done.set)))
            await done.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="fault proxy")
    thread.start()
    proxy, end = opened.result(DEADLINE_S)
    try:
        yield proxy
    finally:
        end()
        thread.join(DEADLINE_S)


class _BrokenError(Exception):
    """The server's connection broke; keeps aiohttp from sending the request again by itself."""


async def _once(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    try:
        return await handler(request)
    except aiohttp.ClientError as error:
        raise _BrokenError(str(error)) from error


def _server_session(plane: ControlPlane) -> aiohttp.ClientSession:
    context = ssl.create_default_context(cafile=str(plane.ca_file))
    connector = aiohttp.TCPConnector(limit=0, ssl=context)
    timeout = aiohttp.ClientTimeout(total=None)
    return aiohttp.ClientSession(
        connector=connector, auto_decompress=False, timeout=timeout, middlewares=(_once,)
    )


async def _handle(
    proxy: FaultProxy, session: aiohttp.ClientSession, request: web.Request, server: str
) -> web.StreamResponse:
    message = api_faults.request(request.method, request.path, request.query)
    exchange = Exchange(message)
    proxy.seen.append(exchange)
    body = await request.read()
    rule = proxy.rule_for(message)
    answered = None if rule is None else await _before(rule, request)
    if answered is not None:
        return answered
    headers = {k: v for k, v in request.headers.items() if k.lower() not in NOT_FORWARDED}
    tls: ssl.SSLContext | bool = True
    if rule is not None and isinstance(rule.fault, Elsewhere):
        server, tls = rule.fault.url, rule.fault.tls
    url = URL(server + request.raw_path, encoded=True)
    try:
        async with session.request(
            request.method,
            url,
            data=body,
            headers=headers,
            ssl=tls,
            skip_auto_headers=["Content-Type"],
        ) as answer:
            exchange.status = answer.status
            if rule is not None and await _after(rule, answer):
                return _broken(request)
            return await _passed_on(proxy, request, message, answer)
    except (_BrokenError, aiohttp.ClientError, ConnectionError):
        return _broken(request)


async def _before(rule: Rule, request: web.Request) -> web.StreamResponse | None:
    """What becomes of a request before it is passed on; None when it may go on."""
    match rule.fault:
        case Late(seconds):
            await rule.lifted(within_s=seconds)
        case Fault.REQUEST_HELD:
            await rule.lifted()
        case Reply() as reply:
            return _made_up(reply)
        case Strike(act, carried_out):
            if rule.met > 1:
                await rule.lifted()
            elif not carried_out:
                act()
            else:
                return None
            return _broken(request)
        case Fault.REQUEST_LOST:
            return _broken(request)
        case Fault.SILENCE:
            await rule.lifted()
            return _broken(request)
    return None


async def _after(rule: Rule, answer: aiohttp.ClientResponse) -> bool:
    """What becomes of the reply to a request that was carried out: whether it is lost."""
    match rule.fault:
        case Fault.REPLY_HELD:
            await rule.lifted()
        case Fault.REPLY_LOST:
            await answer.read()
            return True
        case Strike(act, _):
            await answer.read()
            act()
            return True
    return False


def _made_up(reply: Reply) -> web.Response:
    content = {"kind": "Status", "code": reply.status} | dict(reply.body)
    body = orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
    return web.Response(
        status=reply.status, headers=reply.headers, body=body, content_type="application/json"
    )


def _broken(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def _passed_on(
    proxy: FaultProxy, request: web.Request, message: Message, answer: aiohttp.ClientResponse
) -> web.StreamResponse:
    headers = {k: v for k, v in answer.headers.items() if k.lower() not in NOT_FORWARDED}
    response = web.StreamResponse(status=answer.status, headers=headers)
    is_watch = message.verb == "watch" and answer.status == 200
    if is_watch:
        proxy.streams.append(request)
    await response.prepare(request)
    try:
        if is_watch:
            await _events_passed_on(proxy, message, answer, response)
        else:
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
    except (aiohttp.ClientError, ConnectionError):
        return _broken(request)
    finally:
        if request in proxy.streams:
            proxy.streams.remove(request)
    await response.write_eof()
    return response


async def _events_passed_on(
    proxy: FaultProxy, watch: Message, answer: aiohttp.ClientResponse, to: web.StreamResponse
) -> None:
    """Event by event until the stream ends. Raises ConnectionError when it breaks."""
    rest = b""
    async for chunk in answer.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            content = orjson.loads(line)
            rule = proxy.rule_for(api_faults.event(watch, content))
            if rule is None:
                await to.write(line + b"\n")
            elif await _is_last(rule, line + b"\n", to):
                return


async def _is_last(rule: Rule, line: bytes, to: web.StreamResponse) -> bool:
    """Pass on an event that meets a fault; whether the stream ends with it, in good order."""
    match rule.fault:
        case Late(seconds):
            await rule.lifted(within_s=seconds)
        case Fault.REPLY_HELD | Fault.REQUEST_HELD:
            await rule.lifted()
        case Fault.TWICE:
            await to.write(line)
        case Fault.SILENCE:
            await rule.lifted()
            raise ConnectionResetError("silent until now, and what was said meanwhile is lost")
        case Reply(status):
            error = {"type": "ERROR", "object": {"kind": "Status", "code": status}}
            await to.write(orjson.dumps(error, option=orjson.OPT_APPEND_NEWLINE))
            return True
        case _:
            raise ConnectionResetError("cut")
    await to.write(line)
    return False
