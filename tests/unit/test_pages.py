"""Lists of large objects: smaller pages, and no object that keeps the others from being read."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any, cast

import msgspec
import orjson
import pytest
from prometheus_client import CollectorRegistry

from fixtures.shell import until
from railwright_kube import body_limits, errors, projections
from railwright_kube.client import Api, Decode
from railwright_kube.core_v1 import PodObject
from railwright_kube.pages import Pager
from railwright_kube.reflector import Reflector
from railwright_operator import metrics
from railwright_operator.watch import records

BODY_MAX = 40_000


@pytest.fixture(autouse=True)
def small_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limits, "BODY_BYTES_MAX", BODY_MAX)


class Server:
    """Lists pods of these sizes in pages, with answers of at most ``BODY_MAX`` bytes."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self.limits: list[int] = []

    async def get(
        self, path: str, *, query: dict[str, str], accept: str, decode: Decode, **named: Any
    ) -> Any:
        limit, start = int(query["limit"]), int(query.get("continue", 0))
        self.limits.append(limit)
        items = [
            {
                "metadata": {"uid": f"u{at}", "name": f"p{at}", "resourceVersion": "7"},
                "spec": {"nodeName": "n" * size} if accept != projections.METADATA_ONLY else {},
            }
            for at, size in enumerate(self.sizes[start : start + limit], start)
        ]
        following = str(start + limit) if start + limit < len(self.sizes) else ""
        metadata = {"resourceVersion": "9", "continue": following}
        body = orjson.dumps({"metadata": metadata, "items": items})
        if len(body) > BODY_MAX:
            raise errors.AnswerTooLarge(f"body has more than {BODY_MAX} bytes")
        return decode(body)

    async def stream(self, path: str, **named: Any) -> Any:
        if self.sizes:
            raise errors.AnswerTooLarge("line has more than 5 bytes")
        yield b""


async def listed(pager: Pager) -> list[str]:
    async with contextlib.aclosing(pager.pages()) as pages:
        return [uid_of(item) async for page in pages for item in page.items]


def uid_of(item: msgspec.Raw) -> str:
    return str(msgspec.json.decode(item)["metadata"]["uid"])


def pager_of(server: Server) -> tuple[Pager, CollectorRegistry]:
    registry = CollectorRegistry()
    watch = metrics.Metrics(registry).watch
    return Pager(
        cast(Api, server), "/pods", projections.of(PodObject, "Pod"), metrics=watch
    ), registry


@pytest.mark.parametrize("sizes", [(10,) * 1200, (3_000,) * 60, (39_000,) * 5, ()], ids=len)
async def test_every_object_is_listed_whatever_fits_in_a_page(sizes: tuple[int, ...]) -> None:
    pager, _ = pager_of(Server(*sizes))
    assert await listed(pager) == [f"u{at}" for at in range(len(sizes))]


async def test_pages_grow_again_after_large_objects() -> None:
    server = Server(*(3_000,) * 20, *(10,) * 1_000)
    pager, _ = pager_of(server)
    await listed(pager)
    assert server.limits[:2] == [16, 8]
    assert len(server.limits) < 40
    assert max(server.limits) > 50


async def test_list_after_a_time_out_requests_fewer_objects() -> None:
    class Slow(Server):
        async def get(self, path: str, *, query: dict[str, str], **named: Any) -> Any:
            if int(query["limit"]) > 4:
                raise errors.Unreachable("TimeoutError")
            return await super().get(path, query=query, **named)

    pager, _ = pager_of(Slow(*(9_000,) * 8))
    for _ in range(2):
        with pytest.raises(errors.Unreachable):
            await listed(pager)
    assert len(await listed(pager)) == 8


async def test_an_object_too_large_alone_is_left_out_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pager, registry = pager_of(Server(10, 50_000, 10, 50_000))
    assert await listed(pager) == ["u0", "u2"]
    labels = {"kind": "Pod", "cause": "too large"}
    assert registry.get_sample_value("railwright_watch_errors_total", labels) == 2
    reported = [each.__dict__["object"] for each in caplog.records if each.levelname == "ERROR"]
    assert reported == [{"u1": "/p1"}, {"u3": "/p3"}]


async def test_a_copy_keeps_an_object_that_became_too_large() -> None:
    """An event that is too large leads to a list, and the list goes on without the object."""
    server = Server(10, 10)
    copy = Reflector(
        cast(Api, server),
        "/pods",
        projection=projections.of(PodObject, "Pod"),
        parse=records.pod,
        on_change=lambda old, new: None,
        metrics=metrics.Metrics(CollectorRegistry()).watch,
        clock=lambda: 100.0,
        rng=Random(0),
    )
    running = asyncio.create_task(copy.run())
    await copy.wait_synced()
    server.sizes = (10, 50_000, 10)
    await until(lambda: "u2" in copy.records, "the list")
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert sorted(copy.records) == ["u0", "u1", "u2"]
    assert copy.relists >= 2
