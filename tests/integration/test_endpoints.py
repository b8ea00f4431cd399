"""The probes and the metrics, over HTTP."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable

import aiohttp
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from railwright_operator import metrics
from railwright_process.endpoints import Endpoints

SLOW_TEXT = "# HELP slow Takes long.\n# TYPE slow gauge\nslow 1.0\n"


class Slow(Collector):
    """A collector that takes until the test lets it end. It must not run twice at once."""

    def __init__(self, entered: threading.Event, leave: threading.Event) -> None:
        self._entered, self._leave, self._running = entered, leave, threading.Lock()

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        assert self._running.acquire(blocking=False)
        self._entered.set()
        self._leave.wait(10.0)
        self._running.release()
        return [GaugeMetricFamily("slow", "Takes long.", value=1.0)]


async def text_of(http: aiohttp.ClientSession, path: str) -> str:
    async with http.get(path) as answer:
        return await answer.text()


@pytest.mark.parametrize("given", ["127.0.0.1", "::1"])
async def test_probes_list_problems_and_metrics_are_served(given: str) -> None:
    registry = CollectorRegistry()
    metrics.Metrics(registry).heartbeats.requests.labels("/v1/beat", "200").inc()
    problems: list[str] = []
    endpoints = Endpoints(alive=lambda: (), ready=lambda: problems, registry=registry)
    host, port = await endpoints.start(given, 0)
    try:
        place = f"[{host}]" if ":" in host else host
        async with aiohttp.ClientSession(f"http://{place}:{port}") as http:

            async def get(path: str) -> tuple[int, str]:
                async with http.get(path) as answer:
                    return answer.status, await answer.text()

            assert await get("/readyz") == (200, "ok")
            problems.append("no list of Pods yet")
            assert await get("/readyz") == (503, "no list of Pods yet")
            assert await get("/healthz") == (200, "ok")
            status, text = await get("/metrics")
            assert status == 200
            assert 'heartbeat_requests_total{code="200",path="/v1/beat"} 1.0' in text
    finally:
        await endpoints.stop()


async def test_scrape_does_not_delay_event_loop() -> None:
    """Probes are answered while the series are rendered, and two scrapes do not run at once."""
    registry, entered, leave = CollectorRegistry(), threading.Event(), threading.Event()
    registry.register(Slow(entered, leave))
    endpoints = Endpoints(alive=lambda: (), ready=lambda: (), registry=registry)
    host, port = await endpoints.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://{host}:{port}") as http:
            scrapes = [asyncio.create_task(text_of(http, "/metrics")) for _ in range(2)]
            assert await asyncio.to_thread(entered.wait, 10.0)
            assert await text_of(http, "/healthz") == "ok"
            assert not any(scrape.done() for scrape in scrapes)
            leave.set()
            assert await asyncio.gather(*scrapes) == 2 * [SLOW_TEXT]
    finally:
        leave.set()
        await endpoints.stop()
