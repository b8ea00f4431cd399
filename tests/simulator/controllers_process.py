"""The controllers: the product's own parts on a simulated machine.

All of ``railwright_controllers`` runs but kopf's thread: ``FabricWatch`` passes on what it would.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from random import Random
from typing import Any

import orjson
from prometheus_client import CollectorRegistry

from railwright_api import names, routes
from railwright_controllers import metrics
from railwright_controllers.handlers import BACKOFF_S, Seen
from railwright_controllers.wiring import ControllerParts
from railwright_kube.transport import HttpRequest, NoAnswerError
from railwright_process.environment import ReplicaSettings
from railwright_process.replica import Runtime
from railwright_process.server import MessageServer
from simulator.links import ApiLink
from simulator.processes import NAMESPACE, Process
from simulator.virtual_loop import VirtualLoop

FABRICS = routes.kind(names.FABRICS)
REQUEST_S, WATCH_S, SILENT_S = 30.0, 240, 75.0
"""As in the settings of kopf in ``handlers``."""


class _EndedError(Exception):
    """The run of kopf ends: it failed, or begins with a list."""


class FabricWatch:
    """Lists and watches the Fabric as kopf does: it is started again after any error but 410, and
    what is deleted while it does not watch it never sees."""

    def __init__(self, link: ApiLink, seen: Seen, rng: Random) -> None:
        self._link = link
        self._seen = seen
        self._rng = rng

    async def run(self) -> None:
        """Watch until cancelled."""
        failures = 0
        while True:
            with contextlib.suppress(NoAnswerError, TimeoutError, _EndedError):
                version = await self._list()
                failures = 0
                while True:
                    version = await self._watch(version)
            failures += 1
            await asyncio.sleep(BACKOFF_S.delay_s(failures, self._rng))

    async def _list(self) -> int:
        found: Mapping[str, Any] = {}
        request = HttpRequest("list", "GET", FABRICS)
        async with self._link.exchange(request, total_s=REQUEST_S, stall_s=None) as response:
            async for body in response.body:
                found = orjson.loads(body)
        if response.status != 200:
            raise _EndedError
        for item in found["items"]:
            self._seen(item, None)
        return int(found["metadata"]["resourceVersion"])

    async def _watch(self, version: int) -> int:
        """One stream; the version after its last event."""
        query = {
            "watch": "true",
            "resourceVersion": str(version),
            "timeoutSeconds": str(WATCH_S),
            "allowWatchBookmarks": "true",
        }
        request = HttpRequest("watch", "GET", FABRICS, query)
        async with self._link.exchange(request, total_s=REQUEST_S, stall_s=None) as response:
            if response.status != 200:
                raise _EndedError
            chunks = aiter(response.body)
            while True:
                try:
                    async with asyncio.timeout(SILENT_S):
                        chunk = await anext(chunks)
                except StopAsyncIteration:
                    return version
                for line in chunk.splitlines():
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        raise _EndedError
                    if event["type"] != "BOOKMARK":
                        self._seen(event["object"], event["type"])
                    version = int(event["object"]["metadata"]["resourceVersion"])


class ControllersProcess(Process):
    """One process of the controllers."""

    def __init__(self, name: str, loop: VirtualLoop, link: ApiLink, *, rng: Random) -> None:
        series = metrics.ControllerMetrics(CollectorRegistry())
        super().__init__(name, loop, link, series.api, rng=rng)
        runtime = Runtime(
            clock=self._clock,
            wall_clock=self._wall_clock,
            rng=self._rng,
            keep_objects=lambda: None,
        )
        self.parts = ControllerParts(
            self._api,
            runtime,
            ReplicaSettings(
                url="http://controllers",
                address=("", 0),
                probe_address=("", 0),
                metrics_address=("", 0),
                namespace=NAMESPACE,
                identity=name,
            ),
            series=series,
            is_leader=lambda: self._is_leader,
            leader_address=str,
        )
        self._watches_fabric = asyncio.Event()
        self._kopf = FabricWatch(link, self.parts.informers.fabrics.seen, self._rng())
        self._start()

    @property
    def server(self) -> MessageServer:
        """The server for node agents."""
        return self.parts.server

    @property
    def has_published(self) -> bool:
        """Whether it has read what is published, or published itself."""
        return bool(self.parts.informers.fabric.published)

    def _work(self) -> Coroutine[Any, Any, None]:
        return self.parts.run(self._leading, self._watches_fabric.set)

    async def _work_beside(self) -> None:
        """The thread of kopf."""
        await self._watches_fabric.wait()
        await self._kopf.run()
