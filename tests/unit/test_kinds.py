"""What kopf brings of queues and what we list: what went while nobody watched is not kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import orjson
import pytest
from prometheus_client import CollectorRegistry

from fixtures import reporting
from railwright_api import names
from railwright_operator import metrics
from railwright_operator.kube.client import Api, Decode
from railwright_operator.watch import kinds
from railwright_operator.watch.kinds import Kinds
from railwright_operator.watch.site import Site

Raw = dict[str, Any]


class Lists:
    """An API server that lists these queues, as of one version, and no other objects."""

    def __init__(self, version: int, *queues: Raw) -> None:
        self.version, self.queues = version, queues

    async def get(self, path: str, *, decode: Decode, **named: Any) -> Any:
        items = self.queues if path.endswith(names.QUEUES) else ()
        metadata = {"resourceVersion": str(self.version)}
        return decode(orjson.dumps({"items": items, "metadata": metadata}))


def known_to(lists: Lists, *, wake: Callable[[], None]) -> tuple[Kinds, Site]:
    site, series = Site(), metrics.Metrics(CollectorRegistry()).watch
    return Kinds(cast(Api, lists), site=site, metrics=series, wake=wake), site


@pytest.mark.parametrize(("event", "left"), [("ADDED", ("a",)), ("DELETED", ())])
def test_news_of_a_queue_is_taken_as_it_comes(event: str, left: tuple[str, ...]) -> None:
    our, site = known_to(Lists(0), wake=lambda: None)
    our.seen(names.QUEUES, reporting.raw_object("a", version=1), None)
    our.seen(names.QUEUES, reporting.raw_object("a", version=2), event)
    assert site.queues == left


async def test_a_list_of_kopfs_drops_a_queue_that_went_unwatched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kinds, "RELISTED_S", 0.01)
    kept = reporting.raw_object("kept", version=1)
    awake = asyncio.Event()
    our, site = known_to(Lists(10, kept), wake=awake.set)
    our.seen(names.QUEUES, reporting.raw_object("gone", version=2), "ADDED")
    running = asyncio.create_task(our.run())
    our.seen(names.QUEUES, kept, None)
    async with asyncio.timeout(5):
        while site.queues != ("kept",):
            awake.clear()
            await awake.wait()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
