"""The floor: create and bind the same pods with nothing else around, by the same HTTP library."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import orjson

Json = dict[str, Any]


async def connect(http: aiohttp.ClientSession, url: str, *, connections: int) -> None:
    """Open so many connections, which later requests use."""

    async def one() -> None:
        async with http.get(f"{url}/version") as answer:
            await answer.read()

    await asyncio.gather(*(one() for _ in range(connections)))


async def create_and_bind(
    http: aiohttp.ClientSession,
    url: str,
    pods: Sequence[tuple[Mapping[str, Any], str]],
    *,
    concurrency: int,
) -> None:
    """Each pod, then its binding to the node named beside it; so many pods at a time."""
    slots = asyncio.Semaphore(concurrency)

    async def one(pod: Mapping[str, Any], node: str) -> None:
        path = f"{url}/api/v1/namespaces/{pod['metadata']['namespace']}/pods"
        name = pod["metadata"]["name"]
        async with slots:
            made = await _post(http, path, pod)
            binding = {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": name, "uid": made["metadata"]["uid"]},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            }
            await _post(http, f"{path}/{name}/binding", binding)

    await asyncio.gather(*(one(pod, node) for pod, node in pods))


async def _post(http: aiohttp.ClientSession, path: str, body: object) -> Json:
    headers = {"Content-Type": "application/json"}
    async with http.post(path, data=orjson.dumps(body), headers=headers) as answer:
        content = await answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{path} answered {answer.status}: {content[:500]!r}")
        made: Json = orjson.loads(content)
        return made
