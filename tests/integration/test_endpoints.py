"""The probes and the metrics, over HTTP and TLS."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TypeGuard

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fixtures import certificates, shell
from railwright_operator import metrics
from railwright_process import authority, tls
from railwright_process.connections import Tls
from railwright_process.endpoints import Endpoints
from railwright_process.metrics_server import UNAUTHORIZED_MAX, MetricsServer
from railwright_process.process_metrics import ProcessMetrics

SLOW_TEXT = "# HELP slow Takes long.\n# TYPE slow gauge\nslow 1.0\n"
ANSWERS = {
    "reader": HTTPStatus.OK,
    "other": HTTPStatus.FORBIDDEN,
    "flood": HTTPStatus.TOO_MANY_REQUESTS,
    "unanswered": HTTPStatus.SERVICE_UNAVAILABLE,
}
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
READER = {"Authorization": "Bearer reader"}


class Slow(Collector):
    """A collector that takes until the test lets it end. It must not run twice at once."""

    def __init__(self, entered: threading.Event, leave: threading.Event) -> None:
        self._entered, self._leave, self._running = entered, leave, threading.Lock()
        self.runs = 0

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        assert self._running.acquire(blocking=False)
        self.runs += 1
        self._entered.set()
        self._leave.wait(10.0)
        self._running.release()
        return [GaugeMetricFamily("slow", "Takes long.", value=1.0)]


@asynccontextmanager
async def serving(
    registry: CollectorRegistry, *, encrypted: Tls | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[str]:
    """The URL of a server for these series; it answers a request by its token."""
    requests = ProcessMetrics(CollectorRegistry(), deployment="x", is_leader=bool).requests

    async def authorize(token: str) -> HTTPStatus:
        return ANSWERS.get(token, HTTPStatus.UNAUTHORIZED)

    server = MetricsServer(registry, authorize, tls=encrypted, requests=requests)
    address, port = await server.start(host, 0)
    place = f"[{address}]" if ":" in address else address
    try:
        yield f"{'https' if encrypted else 'http'}://{place}:{port}"
    finally:
        await server.stop()


async def status_of(url: str, context: ssl.SSLContext, path: str = "/metrics") -> int:
    """The status of a reader's request on a connection of its own. Raises ClientError."""
    async with (
        aiohttp.ClientSession(url, headers=READER) as http,
        http.get(path, ssl=context) as answer,
    ):
        return answer.status


async def text_of(http: aiohttp.ClientSession, path: str) -> str:
    async with http.get(path) as answer:
        return await answer.text()


@pytest.mark.parametrize("given", ["127.0.0.1", "::1"])
async def test_probes_list_problems_and_nothing_else(given: str) -> None:
    problems: list[str] = []
    endpoints = Endpoints(alive=lambda: (), ready=lambda: problems)
    host, port = await endpoints.start(given, 0)
    try:
        place = f"[{host}]" if ":" in host else host
        async with aiohttp.ClientSession(f"http://{place}:{port}") as http:

            async def get(path: str) -> tuple[int, str]:
                async with http.get(path, headers=READER) as answer:
                    return answer.status, await answer.text()

            assert await get("/readyz") == (200, "ok")
            problems.append("no list of Pods yet")
            assert await get("/readyz") == (503, "no list of Pods yet")
            assert await get("/healthz") == (200, "ok")
            assert await get("/metrics") == (404, "404: Not Found")
    finally:
        await endpoints.stop()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_metrics_are_for_tokens_with_the_right(host: str) -> None:
    registry = CollectorRegistry()
    metrics.Metrics(registry).heartbeats.requests.labels("/v1/beat", "200").inc()
    async with serving(registry, host=host) as url, aiohttp.ClientSession(url) as http:
        for given, status in {
            "": 401,
            "Bearer": 401,
            "Bearer ": 401,
            "Basic reader": 401,
            "Bearer nobody": 401,
            "Bearer r\u00e9ader": 401,
            "Bearer other": 403,
            "Bearer flood": 429,
            "Bearer unanswered": 503,
            "Bearer reader": 200,
        }.items():
            headers = {"Authorization": given} if given else {}
            async with http.get("/metrics", headers=headers) as answer:
                text = await answer.text()
                assert answer.status == status, given
                assert ("WWW-Authenticate" in answer.headers) is (status == 401)
                assert ("railwright_heartbeat" in text) is (status == 200), given
        assert 'heartbeat_requests_total{code="200",path="/v1/beat"} 1.0' in text


async def test_every_path_needs_a_token() -> None:
    async with serving(CollectorRegistry()) as url, aiohttp.ClientSession(url) as http:
        for path in ("/metrics", "/", "/healthz", "/debug/pprof/"):
            for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
                async with http.request(method, path) as answer:
                    assert answer.status == 401, (method, path)
        async with http.get("/healthz", headers=READER) as answer:
            assert answer.status == 404


async def test_scrape_does_not_delay_event_loop() -> None:
    """Others are answered while the series are rendered, and two scrapes do not run at once."""
    registry, entered, leave = CollectorRegistry(), threading.Event(), threading.Event()
    registry.register(Slow(entered, leave))
    async with serving(registry) as url, aiohttp.ClientSession(url, headers=READER) as http:
        try:
            scrapes = [asyncio.create_task(text_of(http, "/metrics")) for _ in range(2)]
            assert await asyncio.to_thread(entered.wait, 10.0)
            assert await text_of(http, "/healthz") == "404: Not Found"
            assert not any(scrape.done() for scrape in scrapes)
            leave.set()
            assert await asyncio.gather(*scrapes) == 2 * [SLOW_TEXT]
        finally:
            leave.set()


async def test_connections_are_encrypted_with_the_newest_certificate() -> None:
    """Also of a client that names no server, as it has an IP address; none is open before."""
    current: list[ssl.SSLContext | None] = [None]
    first, second = (authority.new(certificates.HOST, time.time()) for _ in range(2))
    clients = [ssl.create_default_context(cadata=each.trusted.decode()) for each in (first, second)]
    async with serving(CollectorRegistry(), encrypted=lambda: current[0]) as url:
        with pytest.raises(aiohttp.ClientError):
            await status_of(url, clients[0])
        for made, client in zip((first, second), clients, strict=True):
            signed = authority.sign(made, certificates.HOST, time.time())
            current[0] = tls.server_context(signed)
            assert await status_of(url, client) == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await status_of(url, clients[0])
        plain = url.replace("https:", "http:")
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await status_of(plain, clients[1])


async def connections(url: str, count: int, context: ssl.SSLContext | None = None) -> list[Stream]:
    """So many connections at once, encrypted with a context. None sends a request, nor does it
    answer the end of TLS, as nothing reads it."""
    port = int(url.rpartition(":")[2])
    opening = (asyncio.open_connection("127.0.0.1", port, ssl=context) for _ in range(count))
    return [
        each for each in await asyncio.gather(*opening, return_exceptions=True) if is_open(each)
    ]


def is_open(found: Stream | BaseException) -> TypeGuard[Stream]:
    return not isinstance(found, BaseException)


@pytest.mark.parametrize("form", ["plain", "without a handshake", "encrypted"])
async def test_idle_connections_do_not_exclude_a_reader(form: str) -> None:
    """Few of them stay open, whatever they do."""
    made = authority.new(certificates.HOST, time.time())
    current = tls.server_context(authority.sign(made, certificates.HOST, time.time()))
    client = ssl.create_default_context(cadata=made.trusted.decode())
    encrypted = None if form == "plain" else lambda: current
    async with serving(CollectorRegistry(), encrypted=encrypted) as url:
        idle = await connections(url, 3 * UNAUTHORIZED_MAX, client if form == "encrypted" else None)
        assert await status_of(url, client) == 200
        await shell.until(lambda: len(open_sockets(url)) <= UNAUTHORIZED_MAX, "few connections")
        for _, writer in idle:
            writer.transport.abort()


async def test_strangers_end_no_scrape() -> None:
    registry, entered, leave = CollectorRegistry(), threading.Event(), threading.Event()
    slow = Slow(entered, leave)
    registry.register(slow)
    async with serving(registry) as url, aiohttp.ClientSession(url, headers=READER) as http:
        try:
            scrape = asyncio.create_task(text_of(http, "/metrics"))
            assert await asyncio.to_thread(entered.wait, 10.0)
            strangers = await connections(url, 2 * UNAUTHORIZED_MAX)
            await shell.until(
                lambda: len(open_sockets(url)) <= UNAUTHORIZED_MAX + 1, "few connections"
            )
            leave.set()
            assert await scrape == SLOW_TEXT
            # The client would try again once.
            assert slow.runs == 1
        finally:
            leave.set()
        for _, writer in strangers:
            writer.transport.abort()


def open_sockets(url: str) -> list[str]:
    """This process's ends of connections to the server, as the kernel has them: those of the
    server."""
    port = int(url.rpartition(":")[2])
    lines = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
    established = (line.split() for line in lines)
    return [each[2] for each in established if each[1].endswith(f":{port:04X}") and each[3] == "01"]
