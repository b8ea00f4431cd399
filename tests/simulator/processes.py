"""Processes of the product on a simulated machine: who leads, and what stops or ends them.

All runs as in a process of its own but for two things: the Lease is held by decree (its thread
blocks on a client of its own), and no port listens (whoever sends calls the server's handlers).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from railwright_kube.client import Api
from railwright_kube.metrics import ApiMetrics
from railwright_kube.tokens import Bearer
from railwright_process import lifecycle
from railwright_process.messages import RefusedError, Response, refusal
from railwright_process.server import MessageServer
from simulator.api_server import ApiRequest
from simulator.links import ApiLink, DelayedRequests
from simulator.virtual_loop import VirtualLoop

NAMESPACE = "railwright"
SHORT_S, LONG_S, LONG_SHARE = 0.0002, 0.05, 0.01
"""What passes between two readings of a clock, mostly and in a share of all cases."""

EPOCH_S = 1_700_000_000.0
"""The wall clock at the begin of a run."""


class ProcessClock:
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

    @property
    def virtual_s(self) -> float:
        """Its time as seconds of the loop, of which it is ahead while the process computes."""
        return max(self._now_s, self._loop.time())


class Process(ABC):
    """One process. ``clock_error_s`` is by how much its wall clock is wrong.
    ``undisturbed_since_s`` is since when it can lead: it was not paused, and its watches delivered
    what they had."""

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        link: ApiLink,
        metrics: ApiMetrics,
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
        self._clock_error_s = clock_error_s
        self.undisturbed_since_s = 0.0
        first = rng.getrandbits(60)
        self._seeds = (f"{first} {number}" for number in range(2**62))
        self._clock = ProcessClock(loop, Random(f"{first} clock"))
        self._api = Api(
            link,
            may_write=lambda: self._is_leader,
            metrics=metrics,
            clock=self._clock,
            rng=Random(f"{first} api"),
        )

    def _start(self) -> None:
        """Run from now on, once all parts are there."""
        self._task = self._loop.create_task(self._run(), context=self._context)
        self._task.add_done_callback(_raise_error)

    @property
    @abstractmethod
    def server(self) -> MessageServer:
        """The server for messages of pods."""

    @abstractmethod
    def _work(self) -> Coroutine[Any, Any, None]:
        """What it does until it ends."""

    @abstractmethod
    async def _work_beside(self) -> None:
        """What stands for threads and sockets of the process."""

    def _wall_clock(self) -> float:
        return EPOCH_S + self._loop.time() + self._clock_error_s

    def _rng(self) -> Random:
        """A new random source."""
        return Random(next(self._seeds))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} leads={self._is_leader} paused={self.paused}>"

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended, by itself or by ``crash``."""
        return self._task.done()

    @property
    def is_leader(self) -> bool:
        """Whether it takes itself for the leader."""
        return self._is_leader and not self.has_ended

    @property
    def clock_s(self) -> float:
        """Virtual seconds by its own clock."""
        return self._clock.virtual_s

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

    def cut(self, seconds: float) -> None:
        """It does not reach the API server for a while."""
        self._disturb(seconds)
        self._link.cut(seconds)

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
            if self.has_ended or not self.server.is_ready():
                return Response(503, b"{}")
            found = self.server.routes[path].act(bearer, body)
            return found if isinstance(found, Response) else await found
        except RefusedError as error:
            return refusal(error)

    async def _run(self) -> int:
        async with self._api, asyncio.TaskGroup() as tasks:
            beside = tasks.create_task(self._work_beside())
            status = await lifecycle.until_ended(self._stop, self._lost, self._work())
            self._is_leader = False
            beside.cancel()
        return status


def _raise_error(task: asyncio.Task[int]) -> None:
    if not task.cancelled():
        task.result()
