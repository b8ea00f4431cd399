"""Whole lists: their pages are fetched ahead, and one from a store that went back is not taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from random import Random
from typing import Any, cast

import orjson
import pytest
from prometheus_client import CollectorRegistry

from fixtures.observing import raw_pod
from railwright_kube import projections
from railwright_kube.client import Api, Decode
from railwright_kube.core_v1 import PodObject
from railwright_kube.reflector import Reflector, StoreWentBackError
from railwright_operator import metrics
from railwright_operator.watch import records
from railwright_operator.watch.records import PodRecord

Changes = list[tuple[PodRecord | None, PodRecord | None]]


class Restored:
    """Lists of one pod, of these versions one after the other; every watch ends with a 410. Each
    list is of a version so much higher than the one before."""

    def __init__(self, *versions: int, bumped_by: int = 0) -> None:
        self._versions = list(versions)
        self._bumped_by, self._bump = bumped_by, 0

    async def get(
        self, path: str, *, query: Mapping[str, str], decode: Decode, **named: Any
    ) -> Any:
        version = self._versions.pop(0)
        pod = raw_pod("n0", 0, {"phase": "Running"})
        pod["metadata"]["resourceVersion"] = str(version)
        listed = str(version + self._bump)
        self._bump += self._bumped_by
        return decode(orjson.dumps({"metadata": {"resourceVersion": listed}, "items": [pod]}))

    async def stream(self, *_: Any, **__: Any) -> AsyncGenerator[bytes, None]:
        yield b'{"type":"ERROR","object":{"code":410}}'


class Paged:
    """A list of two pages with one pod each; the second comes when a test lets it."""

    def __init__(self) -> None:
        self.asked = 0
        self.second = asyncio.Event()

    async def get(
        self, path: str, *, query: Mapping[str, str], decode: Decode, **named: Any
    ) -> Any:
        self.asked += 1
        number = int(query.get("continue", "0"))
        if number:
            await self.second.wait()
        pod = raw_pod("n0", number, {"phase": "Running"})
        more = {} if number else {"continue": "1"}
        return decode(orjson.dumps({"metadata": {"resourceVersion": "5", **more}, "items": [pod]}))

    async def stream(self, *_: Any, **__: Any) -> AsyncGenerator[bytes, None]:
        await asyncio.Event().wait()
        yield b""


def copy_of(api: object, changes: Changes) -> Reflector[PodRecord]:
    return Reflector(
        cast("Api", api),
        "/api/v1/pods",
        projection=projections.of(PodObject, "Pod"),
        parse=records.pod,
        on_change=lambda old, new: changes.append((old, new)),
        metrics=metrics.Metrics(CollectorRegistry()).watch,
        clock=asyncio.get_running_loop().time,
        rng=Random(0),
    )


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_list_from_the_past_ends_cache_and_drops_nothing() -> None:
    """The store was restored from a backup; the process must end."""
    changes: Changes = []
    copy = copy_of(Restored(7, 9, 8), changes)
    with pytest.raises(StoreWentBackError, match="Pod: from 9 to 8"):
        await asyncio.wait_for(copy.run(), 30)
    assert [new for _, new in changes if new is None] == []
    assert [held.rv for held in copy.records.values()] == [9]


async def test_object_from_the_past_ends_the_copy() -> None:
    """After a restore that raises the store's version, only the objects are of the past."""
    changes: Changes = []
    copy = copy_of(Restored(8, 7, bumped_by=100), changes)
    with pytest.raises(StoreWentBackError, match="Pod: job-worker-0-1 from 8 to 7"):
        await asyncio.wait_for(copy.run(), 30)
    assert [held.rv for held in copy.records.values()] == [8]


async def test_the_next_page_is_on_its_way_while_one_is_taken_in() -> None:
    server, changes = Paged(), Changes()
    running = asyncio.create_task(copy_of(server, changes).run())
    await settled()
    assert (server.asked, len(changes)) == (2, 1)
    server.second.set()
    await settled()
    assert len(changes) == 2
    running.cancel()


async def test_a_list_that_is_given_up_midway_leaves_no_request_behind() -> None:
    running = asyncio.create_task(copy_of(Paged(), []).run())
    await settled()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert asyncio.all_tasks() == {asyncio.current_task()}
