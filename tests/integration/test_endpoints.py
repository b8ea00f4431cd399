"""The probes and the metrics, over HTTP."""

from __future__ import annotations

import aiohttp
from prometheus_client import CollectorRegistry

from railwright_operator import metrics
from railwright_process.endpoints import Endpoints


async def test_probes_list_problems_and_metrics_are_served() -> None:
    registry = CollectorRegistry()
    metrics.Metrics(registry).heartbeats.requests.labels("/v1/beat", "200").inc()
    problems: list[str] = []
    endpoints = Endpoints(alive=lambda: (), ready=lambda: problems, registry=registry)
    host, port = await endpoints.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(f"http://{host}:{port}") as http:

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
