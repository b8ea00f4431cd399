"""Queues from kopf's events and from lists: objects deleted without an event are dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import orjson
import pytest
from prometheus_client import CollectorRegistry

from fixtures import reporting
from fixtures.reporting import Raw
from fixtures.shell import until
from railwright_api import names
from railwright_kube import errors
from railwright_kube.client import Api, Decode
from railwright_operator import informers, metrics
from railwright_operator.watch import kinds


class Server:
    """An API server that lists these queues, as of a version, and no other objects."""

    def __init__(self, *queues: Raw) -> None:
        self.queues = queues
        self.version = 5
        self.refused = self.lists = 0

    async def get(self, path: str, *, decode: Decode, **named: Any) -> Any:
        self.lists += 1
        if self.lists <= self.refused:
            raise errors.Unreachable("x")
        items = self.queues if path.endswith(names.QUEUES) else ()
        metadata = {"resourceVersion": str(self.version)}
        return decode(orjson.dumps({"items": items, "metadata": metadata}))


class Watched:
    """The informer caches in front of such a server, and how often they woke the cycle."""

    def __init__(self, server: Server) -> None:
        self.woken = 0
        self.caches = informers.assemble(
            cast(Api, server),
            reporting.SETTINGS,
            launcher=reporting.LAUNCHER,
            series=metrics.Metrics(CollectorRegistry()).watch,
            wake=self._wake,
            clock=lambda: 0.0,
            reception_clock=lambda: 0.0,
            rng=lambda: Random(0),
        )
        self.site = self.caches.site

    def _wake(self) -> None:
        self.woken += 1

    @asynccontextmanager
    async def listing(self) -> AsyncIterator[None]:
        """Queues are listed, once already."""
        queues = self.caches.site_objects[names.QUEUES]
        running = asyncio.create_task(queues.run())
        await queues.wait_synced()
        yield
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def fabric(*levels: str, version: int, **parts: Any) -> Raw:
    return reporting.raw_object("default", version=version, spec={"levels": list(levels)}, **parts)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists that are called for begin at once."""
    monkeypatch.setattr(kinds, "RELISTED_S", 0.01)


@pytest.mark.parametrize(("event", "left"), [("ADDED", ("a",)), ("DELETED", ())])
def test_news_of_a_queue_is_taken_as_it_comes(event: str, left: tuple[str, ...]) -> None:
    watched = Watched(Server())
    watched.caches.seen(names.QUEUES, reporting.raw_object("a", version=1), None)
    watched.caches.seen(names.QUEUES, reporting.raw_object("a", version=2), event)
    assert watched.site.queues == left


async def test_a_list_of_kopfs_drops_a_queue_that_went_unwatched() -> None:
    kept = reporting.raw_object("kept", version=1)
    server = Server(kept, reporting.raw_object("gone", version=2))
    watched = Watched(server)
    async with watched.listing():
        assert watched.site.queues == ("gone", "kept")
        server.queues = (kept,)
        watched.caches.seen(names.QUEUES, kept, None)
        await until(lambda: watched.site.queues == ("kept",), "the list")


async def test_failed_list_is_repeated() -> None:
    server = Server(reporting.raw_object("kept"))
    server.refused = 2
    watched = Watched(server)
    async with watched.listing():
        assert server.lists == 3
        assert watched.site.queues == ("kept",)


async def test_whole_list_drops_gone_objects_and_keeps_younger() -> None:
    watched = Watched(Server(reporting.raw_object("kept")))
    for name, version in (("kept", 1), ("lost", 2), ("younger", 9)):
        watched.caches.seen(names.QUEUES, reporting.raw_object(name, version=version), "ADDED")
    async with watched.listing():
        assert watched.site.queues == ("kept", "younger")


async def test_a_deleted_queue_stays_gone_and_hides_no_other_for_long() -> None:
    late = reporting.raw_object("late", version=4)
    server = Server(late)
    watched = Watched(server)
    async with watched.listing():
        watched.caches.seen(names.QUEUES, reporting.raw_object("late", version=10), "DELETED")
        watched.caches.absorb(names.QUEUES, reporting.raw_object("late", version=9))
        watched.caches.seen(names.QUEUES, reporting.raw_object("late", version=8), "MODIFIED")
        assert watched.site.queues == ()
        overtaken = reporting.raw_object("new", version=9)
        watched.caches.seen(names.QUEUES, overtaken, "ADDED")
        server.queues, server.version = (overtaken,), 10
        await until(lambda: watched.site.queues == ("new",), "the list")


def test_older_fabric_is_ignored() -> None:
    watched = Watched(Server())
    watched.caches.absorb(names.FABRICS, fabric("new", version=10))
    watched.caches.seen(names.FABRICS, fabric("old", version=9), "MODIFIED")
    assert watched.site.levels == ("new",)


def test_only_a_change_of_the_spec_wakes_a_cycle() -> None:
    watched = Watched(Server())
    watched.caches.seen(names.FABRICS, fabric("rack", version=1), "ADDED")
    watched.caches.seen(names.FABRICS, fabric("rack", version=2, status={"nodes": 3}), "MODIFIED")
    assert watched.woken == 1
    assert watched.site.fabric is not None
    assert watched.site.fabric.status == {"nodes": 3}
    watched.caches.seen(names.FABRICS, fabric("row", "rack", version=3), "MODIFIED")
    assert watched.woken == 2
