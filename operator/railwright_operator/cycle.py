"""One turn after another: observe, plan, write the ledger, act, tell.

The plan is a pure function (``railwright_scheduler.turn``); this file only gives it the world and
starts what it returns, in the one order that is safe: the ledger, and once that is written what it
allows, and the jobs' statuses. Where the plan says so (``confirms``), a ledger that is not written
is read once more first.

Events merely wake it; it goes at its own pace, and at least once a tick, since silence is an event
that nobody sends. A turn that fails is logged, counted and taken again from what is; only a ledger
written by another leader ends it. A job whose handling raises fails no turn (``faults``), and a
turn that hangs ends the process (``watchdog``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from random import Random

from railwright_operator import backoff
from railwright_operator.faults import JobFaults
from railwright_operator.kube import errors
from railwright_operator.observe import Observer
from railwright_operator.pre_runs import PreRuns
from railwright_operator.report.cycle_metrics import CycleMetrics
from railwright_operator.report.reporter import Reporter
from railwright_operator.watchdog import CycleWatchdog
from railwright_operator.write.actuate import Actuator
from railwright_operator.write.ledger import DeposedError, LedgerStore
from railwright_operator.yielding import TimeSlice
from railwright_scheduler import turn
from railwright_scheduler.isolation import Isolation
from railwright_scheduler.world import World

logger = logging.getLogger(__name__)

TICK_S = 1.0
PACE_S = 0.1
RESTS = 2.0
"""The shortest time between two turns, so that a burst of events is one turn; and how much longer
than the turn before it took to plan, so that planning leaves most of the time for doing."""

BINDING_PACE_S = 0.5
"""How much longer a cycle rests while so many requests are under way that it could start no more.
"""

SURE_S = 10.0
"""How long a leader goes on without having seen its own ledger in the store. A write that it gave
up may land after all, or another raise the epoch, and who has nothing to write never hears of it.
"""

BACKOFF_BASE_S = 0.2
BACKOFF_CAP_S = 10.0


class Cycle:
    """Turns, as long as this process leads."""

    def __init__(
        self,
        observer: Observer,
        *,
        ledger: LedgerStore,
        actuator: Actuator,
        pre_runs: PreRuns,
        reporter: Reporter,
        faults: JobFaults,
        watchdog: CycleWatchdog,
        metrics: CycleMetrics,
        awake: asyncio.Event,
        clock: Callable[[], float],
        rng: Random,
    ) -> None:
        self._observer = observer
        self._ledger = ledger
        self._actuator = actuator
        self._pre_runs = pre_runs
        self._reporter = reporter
        self._faults = faults
        self._watchdog = watchdog
        self._metrics = metrics
        self._clock = clock
        self._rng = rng
        self._awake = awake
        self._turned_s = clock()
        self._busy_s = 0.0
        self._sure_s = clock()

    def __repr__(self) -> str:
        return f"<Cycle {self._ledger!r} turned {self.turned_age_s():.1f} s ago>"

    def turned_age_s(self) -> float:
        """Seconds since a turn last came to its end."""
        return self._clock() - self._turned_s

    async def take_over(self) -> None:
        """Become the writer of the ledger. Raises RequestFailed, or DeposedError."""
        await self._ledger.take_over()
        self._turned_s = self._clock()

    async def run(self) -> None:
        """Turn until cancelled. Raises DeposedError when another leader wrote the ledger."""
        failures = 0
        while True:
            try:
                await self._turn()
                failures = 0
            except errors.RequestFailed as error:
                failures = await self._failed(failures, error)
            except DeposedError:
                raise
            except Exception as error:
                logger.exception("turn broke", extra={"error": str(error)})
                failures = await self._failed(failures, error)
            await self._rest()

    async def _turn(self) -> None:
        started_s = self._clock()
        self._actuator.turn_begins()
        await self._observer.hear()
        isolation = Isolation(self._faults.set_aside(self._ledger.ledger))
        with self._watchdog.watch(isolation):
            world = await self._look(isolation)
            self._metrics.judged(world.breaker)
            # A value goes in and a value comes out: the loop need not stand still meanwhile.
            plan = await asyncio.to_thread(turn.take, world, isolation)
        self._busy_s = self._clock() - started_s
        self._metrics.turn_s.observe(self._busy_s)
        if plan.ledger != self._ledger.ledger:
            await self._ledger.write(plan.ledger)
            self._metrics.ledger_writes.inc()
            self._sure_s = self._clock()
        elif plan.confirms or self._clock() - self._sure_s >= SURE_S:
            await self._ledger.confirm()
            self._sure_s = self._clock()
        with self._watchdog.watch(isolation):
            self._observer.follow(plan, isolation)
            self._faults.record(isolation)
            self._actuator.start(plan.actions)
            self._pre_runs.act()
        await self._reporter.report(plan)
        self._actuator.forget_all_but(entry.key for entry in plan.ledger.entries)
        self._metrics.observe(plan)
        if plan.queue_round is not None and not plan.queue_round.is_blocked:
            self._awake.set()
        self._turned_s = self._clock()

    async def _look(self, isolation: Isolation) -> World:
        shared = TimeSlice(self._clock)
        for world in self._observer.look(self._ledger.ledger, isolation):
            if world is not None:
                return world
            if shared.over:
                await shared.others()
        raise AssertionError("the last step of a look brings the world")

    async def _failed(self, failures: int, error: Exception) -> int:
        self._metrics.turns_failed.labels(type(error).__name__).inc()
        logger.warning("turn failed", extra={"error": str(error), "failures": failures + 1})
        await asyncio.sleep(
            backoff.delay_s(failures, base_s=BACKOFF_BASE_S, cap_s=BACKOFF_CAP_S, rng=self._rng)
        )
        return failures + 1

    async def _rest(self) -> None:
        await asyncio.sleep(max(PACE_S, RESTS * self._busy_s))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK_S):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(BINDING_PACE_S):
                        await self._actuator.until_low()
                await self._awake.wait()
        self._awake.clear()
