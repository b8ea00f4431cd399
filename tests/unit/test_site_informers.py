"""Queues and the Fabric as their informers bring them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any, cast

import orjson
from prometheus_client import CollectorRegistry

from fixtures import reporting
from fixtures.reporting import Raw
from fixtures.shell import until
from railwright_api import names
from railwright_operator import informers, metrics
from railwright_operator.kube.client import Api, Decode
from railwright_operator.settings import Settings

SETTINGS = Settings("launcher", "http://operator", ("", 0), ("", 0), "railwright-system", "me")


class Server:
    """Lists these queues, as of version 5, and streams these events once."""

    def __init__(self, *queues: Raw) -> None:
        self.queues = queues
        self.events: list[Raw] = []

    async def get(self, path: str, *, decode: Decode, **named: Any) -> Any:
        items = self.queues if path.endswith(names.QUEUES) else ()
        return decode(orjson.dumps({"items": items, "metadata": {"resourceVersion": "5"}}))

    async def stream(self, path: str, **named: Any) -> AsyncIterator[bytes]:
        while self.events:
            yield orjson.dumps(self.events.pop(0))
        await asyncio.Event().wait()


class Watched:
    """The informer caches in front of such a server, and how often they woke the cycle."""

    def __init__(self, server: Server) -> None:
        self.woken = 0
        self.caches = informers.assemble(
            cast(Api, server),
            SETTINGS,
            launcher=reporting.LAUNCHER,
            series=metrics.build(CollectorRegistry()).watch,
            wake=self._wake,
            clock=lambda: 0.0,
            listening=lambda: 0.0,
            rng=lambda: Random(0),
        )
        self.site = self.caches.site

    def _wake(self) -> None:
        self.woken += 1


def fabric(*levels: str, version: int, **parts: Any) -> Raw:
    return reporting.raw_object("default", version=version, spec={"levels": list(levels)}, **parts)


async def test_list_and_events_of_queues_reach_the_site() -> None:
    server = Server(reporting.raw_object("kept"), reporting.raw_object("late", version=4))
    watched = Watched(server)
    for name, version in (("lost", 2), ("younger", 9)):
        raw = reporting.raw_object(name, version=version)
        watched.caches.absorb(names.QUEUES, raw)
    queues = watched.caches.site_objects[names.QUEUES]
    running = asyncio.create_task(queues.run())
    await queues.wait_synced()
    assert set(watched.site.queues) == {"kept", "late", "younger"}
    deleted = reporting.raw_object("late", version=10)
    server.events.append({"type": "DELETED", "object": deleted})
    running.cancel()
    running = asyncio.create_task(queues.run())
    await until(lambda: len(watched.site.queues) == 2, "the deletion")
    watched.caches.absorb(names.QUEUES, reporting.raw_object("late", version=9))
    assert watched.site.queues == ("kept", "younger")
    running.cancel()


def test_older_fabric_is_ignored() -> None:
    watched = Watched(Server())
    watched.caches.absorb(names.FABRICS, fabric("new", version=10))
    watched.caches.absorb(names.FABRICS, fabric("old", version=9))
    assert watched.site.levels == ("new",)


def test_only_a_change_of_the_spec_wakes_a_cycle() -> None:
    watched = Watched(Server())
    watched.caches.absorb(names.FABRICS, fabric("rack", version=1))
    watched.caches.absorb(names.FABRICS, fabric("rack", version=2, status={"nodes": 3}))
    assert watched.woken == 1
    assert watched.site.fabric is not None
    assert watched.site.fabric.status == {"nodes": 3}
    watched.caches.absorb(names.FABRICS, fabric("row", "rack", version=3))
    assert watched.woken == 2
