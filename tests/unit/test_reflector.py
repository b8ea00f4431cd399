"""When a copy is listed anew although nothing says that it must be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any, cast

import orjson
from prometheus_client import CollectorRegistry

from railwright_operator import metrics
from railwright_operator.kube.client import Api, Decode
from railwright_operator.watch import records
from railwright_operator.watch.reflector import RESYNC_S, Reflector
from worlds.shell import until


class Server:
    """Lists one pod, as long as it is there, and ends every stream without an event."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.streams = 0

    async def get(self, path: str, *, decode: Decode, **named: Any) -> Any:
        return decode(orjson.dumps({"metadata": {"resourceVersion": "9"}, "items": self.items}))

    async def stream(self, path: str, **named: Any) -> AsyncIterator[bytes]:
        self.streams += 1
        await asyncio.sleep(0)
        for line in list[bytes]():
            yield line


POD = {
    "metadata": {"uid": "u", "namespace": "team", "name": "p", "resourceVersion": "7"},
    "spec": {"containers": []},
}


async def test_what_a_stream_never_told_is_found_by_the_list_after_a_while() -> None:
    server, now_s = Server(), [100.0]
    server.items.append(POD)
    copy = Reflector(
        cast(Api, server),
        "/api/v1/pods",
        kind="Pod",
        parse=records.pod,
        on_change=lambda old, new: None,
        metrics=metrics.build(CollectorRegistry()).watch,
        clock=lambda: now_s[0],
        rng=Random(0),
    )
    running = asyncio.create_task(copy.run())
    await copy.wait_synced()
    server.items.clear()
    await until(lambda: server.streams > 1, "the stream is resumed")
    assert (copy.relists, list(copy.records)) == (1, ["u"])
    now_s[0] += RESYNC_S
    await until(lambda: not copy.records, "the lost event is made good")
    running.cancel()
