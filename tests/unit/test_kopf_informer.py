"""The Fabric from kopf's events and from lists: one deleted without an event is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from fixtures import office, reporting
from fixtures.office import fabric
from fixtures.reporting import Raw
from fixtures.shell import until
from railwright_controllers.watch import kopf_informer
from railwright_kube import errors
from railwright_kube.client import Decode
from railwright_watch import cluster_objects


class Server:
    """An API server that lists these Fabrics, as of a version, and no other objects."""

    def __init__(self, *fabrics: Raw) -> None:
        self.fabrics = fabrics
        self.version = 5
        self.refused = self.lists = 0

    async def get(self, path: str, *, decode: Decode, **named: Any) -> Any:
        self.lists += 1
        if self.lists <= self.refused:
            raise errors.Unreachable("x")
        metadata = {"resourceVersion": str(self.version)}
        return decode(orjson.dumps({"items": self.fabrics, "metadata": metadata}))


class Watched:
    """The informer and the cache of the Fabric in front of such a server."""

    def __init__(self, server: Server) -> None:
        informers = office.informers_of(server)
        self.informer, self.cache = informers.fabrics, informers.fabric

    @property
    def names(self) -> list[str]:
        """The names of all cached Fabrics."""
        return sorted(each.name for each in self.informer.records.values())

    @asynccontextmanager
    async def listing(self) -> AsyncIterator[None]:
        """Fabrics are listed, once already."""
        running = asyncio.create_task(self.informer.run())
        try:
            await self.informer.wait_synced()
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists that are called for begin at once."""
    monkeypatch.setattr(kopf_informer, "RELISTED_S", 0.01)


@pytest.mark.parametrize("event", ["ADDED", "DELETED"])
def test_change_of_the_fabric_is_taken_in(event: str) -> None:
    """The spec of a deleted Fabric stays, for the one that is created again."""
    watched = Watched(Server())
    watched.informer.seen(fabric("a", version=1), None)
    assert watched.cache.levels == ("a",)
    watched.informer.seen(fabric("b", version=2), event)
    assert watched.cache.levels == (("b",) if event == "ADDED" else ("a",))
    assert (watched.cache.held is None) == (event == "DELETED")


async def test_list_of_kopf_drops_a_fabric_deleted_unwatched() -> None:
    kept = reporting.raw_object("kept", version=1)
    server = Server(kept, fabric("a", version=2))
    watched = Watched(server)
    async with watched.listing():
        assert watched.names == ["default", "kept"]
        server.fabrics = (kept,)
        watched.informer.seen(kept, None)
        await until(lambda: watched.names == ["kept"], "the list")
        assert watched.cache.held is None


async def test_fabric_deleted_unwatched_is_dropped_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the only one: kopf's list has no object, so it causes no event."""
    monkeypatch.setattr(kopf_informer, "RESYNC_S", 0.01)
    server = Server(fabric("a"))
    watched = Watched(server)
    async with watched.listing():
        assert watched.cache.held is not None
        server.fabrics = ()
        await until(lambda: watched.cache.held is None, "the list")


async def test_failed_list_is_repeated() -> None:
    server = Server(fabric("a"))
    server.refused = 2
    watched = Watched(server)
    async with watched.listing():
        assert server.lists == 3
        assert watched.cache.levels == ("a",)


async def test_whole_list_drops_gone_objects_and_keeps_younger() -> None:
    watched = Watched(Server(fabric("a")))
    for name, version in (("default", 1), ("lost", 2), ("younger", 9)):
        watched.informer.seen(reporting.raw_object(name, version=version), "ADDED")
    async with watched.listing():
        assert watched.names == ["default", "younger"]


async def test_deleted_fabric_stays_gone_and_hides_no_other() -> None:
    server = Server(fabric("late", version=4))
    watched = Watched(server)
    async with watched.listing():
        assert watched.cache.levels == ("late",)
        watched.informer.seen(fabric("late", version=10), "DELETED")
        watched.informer.absorb(cluster_objects.answered(fabric("late", version=9)))
        watched.informer.seen(fabric("late", version=8), "MODIFIED")
        assert watched.cache.held is None
        overtaken = fabric("new", version=9, metadata={"uid": "new"})
        watched.informer.seen(overtaken, "ADDED")
        server.fabrics, server.version = (overtaken,), 10
        await until(lambda: watched.cache.levels == ("new",), "the list")


async def test_informer_ends_when_cancelled_at_a_change() -> None:
    """``asyncio.wait_for`` of Python 3.11 would go on."""
    watched = Watched(Server(fabric("a")))
    running = asyncio.create_task(watched.informer.run())
    await watched.informer.wait_synced()
    for _ in range(3):  # The informer waits for a change by then.
        await asyncio.sleep(0)
    watched.informer.seen(fabric("b", version=9), "DELETED")
    running.cancel()
    done, _ = await asyncio.wait((running,), timeout=5.0)
    assert done


def test_older_fabric_is_ignored() -> None:
    watched = Watched(Server())
    watched.informer.absorb(cluster_objects.answered(fabric("new", version=10)))
    watched.informer.seen(fabric("old", version=9), "MODIFIED")
    assert watched.cache.levels == ("new",)


def test_status_of_the_fabric_is_taken_in() -> None:
    """A new leader keeps parts of it."""
    watched = Watched(Server())
    watched.informer.seen(fabric("rack", version=1), "ADDED")
    watched.informer.seen(fabric("rack", version=2, status={"nodes": 3}), "MODIFIED")
    assert watched.cache.held is not None
    assert watched.cache.held.status == {"nodes": 3}
