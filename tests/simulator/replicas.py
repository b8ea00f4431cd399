"""Replicas of the operator: the product's own parts on a simulated machine, and who leads.

Of ``railwright_operator`` all runs as in a process of its own but for three things: the Lease is
held by decree (its thread blocks on a client of its own), no port listens (launchers call the
server's handlers), and mappings are computed at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import cast

from prometheus_client import CollectorRegistry

from railwright_kube.client import Api
from railwright_kube.tokens import Bearer
from railwright_operator import metrics
from railwright_operator.mapper_process import MapperProcess
from railwright_operator.settings import Settings
from railwright_operator.wiring import OperatorParts, Runtime
from railwright_process import lifecycle
from railwright_process.messages import RefusedError, Response, refusal
from railwright_process.server import TICK_S
from railwright_scheduler.mapping import gang_mapping
from railwright_scheduler.mapping.gang_mapping import MappingRequest, MappingResult
from simulator.api_server import ApiRequest
from simulator.links import ApiLink, DelayedRequests
from simulator.virtual_loop import VirtualLoop

NAMESPACE = "railwright"
SHORT_S, LONG_S, LONG_SHARE = 0.0002, 0.05, 0.01
"""What passes between two readings of a clock, mostly and in a share of all cases."""

EPOCH_S = 1_700_000_000.0
"""The wall clock at the begin of a run."""


class _Mapper:
    """A mapper that answers at once."""

    pid = 0
    has_ended = False

    async def map_ranks(self, request: MappingRequest) -> MappingResult | None:
        return gang_mapping.map_ranks(request)


@asynccontextmanager
async def _started(on_end: Callable[[], None]) -> AsyncIterator[MapperProcess]:
    yield cast("MapperProcess", _Mapper())


class _Clock:
    """The monotonic clock of one process. It goes on while the process computes, now and then by
    more than the slice of time after which it lets others run."""

    def __init__(self, loop: VirtualLoop, rng: Random) -> None:
        self._loop = loop
        self._rng = rng
        self._booted_s = rng.uniform(0, 1e6)
        self._now_s = 0.0

    def __call__(self) -> float:
        took_s = LONG_S if self._rng.random() < LONG_SHARE else SHORT_S
        self._now_s = max(self._now_s + took_s, self._loop.time())
        return self._booted_s + self._now_s


class Replica:
    """One process of the operator. ``clock_error_s`` is by how much its wall clock is wrong.
    ``undisturbed_since_s`` is since when it can lead: it was not paused, and its watches delivered
    what they had."""

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        link: ApiLink,
        *,
        rng: Random,
        clock_error_s: float = 0.0,
    ) -> None:
        self.name = name
        self.paused = False
        self._loop = loop
        self._link = link
        self._context = loop.process(name)
        self._leading, self._lost, self._stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._is_leader = False
        self.undisturbed_since_s = 0.0
        self._registry = CollectorRegistry()
        series = metrics.Metrics(self._registry)
        seeds = iter(range(2**62))
        first = rng.getrandbits(60)
        clock = _Clock(loop, Random(f"{first} clock"))
        self._api = Api(
            link,
            may_write=lambda: self._is_leader,
            metrics=series.api,
            clock=clock,
            rng=Random(f"{first} api"),
        )
        runtime = Runtime(
            clock=clock,
            wall_clock=lambda: EPOCH_S + loop.time() + clock_error_s,
            rng=lambda: Random(f"{first} {next(seeds)}"),
            start_mapper=_started,
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
                namespace=NAMESPACE,
                identity=name,
            ),
            registry=self._registry,
            series=series,
            is_leader=lambda: self._is_leader,
            leader_address=str,
            mark_hung=lambda *_: None,
            give_up_lease=lambda: None,
        )
        self._routes = self.parts.server.routes
        self._task = loop.create_task(self._run(), context=self._context)
        self._task.add_done_callback(_raise_error)

    def __repr__(self) -> str:
        return f"<Replica {self.name} leads={self._is_leader} paused={self.paused}>"

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, by itself or by ``crash``."""
        return self._task.done()

    @property
    def is_leader(self) -> bool:
        """Whether it takes itself for the leader."""
        return self._is_leader and not self.has_ended

    def lead(self) -> None:
        """It gets the Lease."""
        self._disturb()
        self._is_leader = True
        self._loop.call_soon(self._leading.set, context=self._context)

    def lose(self) -> None:
        """It finds out that it has lost the Lease."""
        self._is_leader = False
        self._loop.call_soon(self._lost.set, context=self._context)

    async def crash(self) -> None:
        """End it, wherever it is."""
        self._is_leader = False
        self._link.close()
        self.paused = False
        await self._loop.kill(self.name)

    def pause(self) -> None:
        """Stop it as SIGSTOP does."""
        if not self.paused and not self.has_ended:
            self.paused = True
            self._loop.pause(self.name)

    def resume(self) -> None:
        """It goes on."""
        if self.paused:
            self.paused = False
            self._disturb()
            self._loop.resume(self.name)

    def stall_watches(self, seconds: float, *, expires: bool) -> None:
        """Its watches deliver nothing for a while, while its requests are answered. Then they go
        on, or begin with a list."""
        self._disturb(seconds)
        self._link.stall(seconds, expires=expires)

    def delay_requests(self, matches: Callable[[ApiRequest], bool]) -> DelayedRequests:
        """Hold its requests that match from now on, until they are released."""
        return self._link.delay_requests(matches)

    def expire_watches(self) -> None:
        """What its watches lost silently is found by the lists that follow."""
        self._disturb()
        self._link.expire()

    def _disturb(self, seconds: float = 0.0) -> None:
        """From now on, or so much later, nothing keeps it from what a leader does."""
        self.undisturbed_since_s = max(self.undisturbed_since_s, self._loop.time() + seconds)

    def post(self, path: str, bearer: Bearer, body: bytes) -> asyncio.Future[Response]:
        """Deliver a message of a launcher; the future has the response."""
        answered: asyncio.Future[Response] = self._loop.create_future()

        async def handle() -> None:
            response = await self._response(path, bearer, body)
            if not answered.done():
                answered.set_result(response)

        self._loop.call_soon(
            lambda: self._loop.create_task(handle(), context=self._context), context=self._context
        )
        return answered

    async def _response(self, path: str, bearer: Bearer, body: bytes) -> Response:
        try:
            if self.has_ended or not self.parts.server.is_ready():
                return Response(503, b"{}")
            found = self._routes[path].act(bearer, body)
            return found if isinstance(found, Response) else await found
        except RefusedError as error:
            return refusal(error)

    async def _run(self) -> int:
        async with self._api, asyncio.TaskGroup() as tasks:
            ticking = tasks.create_task(self._tick())
            work = self.parts.run(self._leading)
            status = await lifecycle.until_ended(self._stop, self._lost, work)
            self._is_leader = False
            ticking.cancel()
        return status

    async def _tick(self) -> None:
        """The clock of the server, which runs while it can receive messages."""
        while True:
            await asyncio.sleep(TICK_S)
            if self.parts.server.is_ready():
                self.parts.reception_clock.tick()


def _raise_error(task: asyncio.Task[int]) -> None:
    if not task.cancelled():
        task.result()
