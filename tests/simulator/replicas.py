"""Replicas of the operator: the product's own parts on a simulated machine.

Mappings are computed at once; the rest is that of any simulated process (``processes``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

from prometheus_client import CollectorRegistry

from railwright_operator import metrics
from railwright_operator.mapper_process import MapperProcess
from railwright_operator.settings import Settings
from railwright_operator.wiring import OperatorParts
from railwright_process.replica import Runtime
from railwright_process.server import TICK_S, MessageServer
from railwright_scheduler.mapping import gang_mapping
from railwright_scheduler.mapping.gang_mapping import MappingRequest, MappingResult
from simulator.links import ApiLink
from simulator.processes import NAMESPACE, Process
from simulator.virtual_loop import VirtualLoop


class _Mapper:
    """A mapper that answers at once."""

    pid = 0
    has_ended = False

    async def map_ranks(self, request: MappingRequest) -> MappingResult | None:
        return gang_mapping.map_ranks(request)


@asynccontextmanager
async def _started(on_end: Callable[[], None]) -> AsyncIterator[MapperProcess]:
    yield cast("MapperProcess", _Mapper())


class Replica(Process):
    """One process of the operator."""

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        link: ApiLink,
        *,
        rng: Random,
        clock_error_s: float = 0.0,
    ) -> None:
        registry = CollectorRegistry()
        series = metrics.Metrics(registry)
        super().__init__(name, loop, link, series.api, rng=rng, clock_error_s=clock_error_s)
        runtime = Runtime(
            clock=self._clock,
            wall_clock=self._wall_clock,
            rng=self._rng,
            keep_objects=lambda: None,
        )
        self.parts = OperatorParts(
            self._api,
            runtime,
            Settings(
                launcher_image="launcher",
                url="http://operator",
                address=("", 0),
                probe_address=("", 0),
                metrics_address=("", 0),
                namespace=NAMESPACE,
                identity=name,
            ),
            registry=registry,
            series=series,
            is_leader=lambda: self._is_leader,
            leader_address=str,
            mark_hung=lambda *_: None,
            give_up_lease=lambda: None,
            start_mapper=_started,
        )
        self._start()

    @property
    def server(self) -> MessageServer:
        """The server for launchers."""
        return self.parts.server

    def _work(self) -> Coroutine[Any, Any, None]:
        return self.parts.run(self._leading)

    async def _work_beside(self) -> None:
        """The clock of the server, which runs while it can receive messages."""
        while True:
            await asyncio.sleep(TICK_S)
            if self.server.is_ready():
                self.parts.reception_clock.tick()
