"""The scheduling cycle: build the state, plan, write the ledger, act, publish statuses.

The plan is a pure function (``railwright_scheduler.plan``). This module gives it the state and
starts what it returns, in the one safe order: the ledger, then the actions that it allows, then
the statuses of jobs. If the plan ``confirms`` an unchanged ledger, the ledger is read again first.

Events wake the cycle early. It runs at least once a tick, as a silent launcher causes no event. A
cycle that fails is logged, counted and run again from the observed state; only a ledger written by
another leader ends the loop. A job whose handling raises fails no cycle (``faults``), and a cycle
that hangs ends the process (``watchdog``).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from random import Random

from railwright_kube import errors
from railwright_kube.backoff import Backoff
from railwright_kube.yielding import TimeSlice
from railwright_operator.faults import JobFaults
from railwright_operator.report.cycle_metrics import CycleMetrics
from railwright_operator.report.fleet_metrics import FleetMetrics
from railwright_operator.report.reporter import Reporter
from railwright_operator.state_builder import StateBuilder
from railwright_operator.watchdog import CycleWatchdog
from railwright_operator.write.executor import Executor
from railwright_operator.write.ledger import DeposedError, LedgerStore
from railwright_scheduler import plan as scheduling
from railwright_scheduler.cluster_state import ClusterState
from railwright_scheduler.isolation import Isolation

logger = logging.getLogger(__name__)

TICK_S = 1.0
PAUSE_S_MIN = 0.1
PAUSE_FACTOR = 2.0
"""The shortest pause between two cycles, in seconds, so that a burst of events is one cycle; and as
a multiple of the time that the last plan took, so that most of the time is left for requests."""

CONFIRM_INTERVAL_S = 10.0
"""How long a leader goes on without reading its own ledger from the store. A write that timed out
may still land, or another leader raise the epoch, and a leader without a write would not notice."""

BACKOFF_S = Backoff(0.2, 10.0)


@dataclass(eq=False, repr=False)
class Cycle:
    """Runs scheduling cycles as long as this process leads."""

    state_builder: StateBuilder
    _: KW_ONLY
    ledger: LedgerStore
    executor: Executor
    reporter: Reporter
    faults: JobFaults
    watchdog: CycleWatchdog
    metrics: CycleMetrics
    fleet_metrics: FleetMetrics
    awake: asyncio.Event
    clock: Callable[[], float]
    rng: Random

    def __post_init__(self) -> None:
        self._completed_s = self.clock()
        self._busy_s = 0.0
        self._confirmed_s = self.clock()

    def completed_age_s(self) -> float:
        """Seconds since a cycle was last completed, or the first one was due."""
        return self.clock() - self._completed_s

    def started_leading(self) -> None:
        """From now on a cycle is due: this process got the Lease."""
        self._completed_s = self.clock()

    async def take_over(self) -> None:
        """Become the writer of the ledger. Raises RequestFailed, or DeposedError."""
        await self.ledger.take_over()
        self.started_leading()

    async def run(self) -> None:
        """Run cycles until cancelled. Raises DeposedError when another leader wrote the ledger."""
        failures = 0
        while True:
            try:
                await self._run_once()
                failures = 0
            except errors.RequestFailed as error:
                failures = await self._back_off(failures, error)
            except DeposedError:
                raise
            except Exception as error:
                logger.exception("scheduling cycle raised", extra={"error": str(error)})
                failures = await self._back_off(failures, error)
            await self._rest()

    async def _run_once(self) -> None:
        started_s = self.clock()
        self.executor.cycle_begins()
        isolation = Isolation(self.faults.set_aside(self.ledger.ledger))
        cpu_time = _CpuTime()
        with self.watchdog.watch(isolation):
            state = await self._build(isolation, cpu_time)
            self.metrics.record_breaker(state.breaker)
            # The plan reads and returns values only, so it can run beside the event loop.
            plan = await asyncio.to_thread(_plan, state, isolation, cpu_time)
        self._busy_s = self.clock() - started_s
        self.metrics.cycle_s.observe(self._busy_s)
        self.metrics.cycle_cpu_s.observe(cpu_time.spent_s)
        if plan.ledger != self.ledger.ledger:
            await self.ledger.write(plan.ledger)
            self.metrics.ledger_writes.inc()
            self._confirmed_s = self.clock()
        elif plan.confirms or self.clock() - self._confirmed_s >= CONFIRM_INTERVAL_S:
            await self.ledger.confirm()
            self._confirmed_s = self.clock()
        with self.watchdog.watch(isolation):
            self.state_builder.sync_sessions(plan, isolation)
            self.faults.record(isolation)
            self.executor.start(plan.actions)
        await self.reporter.report(plan)
        acting = (action.entry.key for action in plan.actions)
        self.executor.forget_all_but([*(entry.key for entry in plan.ledger.entries), *acting])
        self.metrics.record(plan, self.clock())
        self.fleet_metrics.record(state, plan)
        if plan.queue_round is not None and not plan.queue_round.is_blocked:
            self.awake.set()
        self._completed_s = self.clock()

    async def _build(self, isolation: Isolation, cpu_time: _CpuTime) -> ClusterState:
        time_slice = TimeSlice(self.clock)
        steps = self.state_builder.build(self.ledger.ledger, isolation)
        while True:
            with cpu_time.counted():
                state = next(each for each in steps if each is not None or time_slice.is_over)
            if state is not None:
                return state
            await time_slice.yield_to_others()

    async def _back_off(self, failures: int, error: Exception) -> int:
        """Wait after a failed cycle; return the number of failures in a row."""
        self.metrics.count_failure(error)
        extra = {"error": str(error), "failures": failures + 1}
        logger.warning("scheduling cycle failed", extra=extra)
        await asyncio.sleep(BACKOFF_S.delay_s(failures, self.rng))
        return failures + 1

    async def _rest(self) -> None:
        await asyncio.sleep(max(PAUSE_S_MIN, PAUSE_FACTOR * self._busy_s))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TICK_S):
                await self.executor.until_low()
                await self.awake.wait()
        self.awake.clear()


def _plan(state: ClusterState, isolation: Isolation, cpu_time: _CpuTime) -> scheduling.Plan:
    with cpu_time.counted():
        return scheduling.plan(state, isolation)


class _CpuTime:
    """CPU seconds of parts of a cycle, without what runs between them or in other threads."""

    spent_s = 0.0

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        began_s = time.thread_time()
        yield
        self.spent_s += time.thread_time() - began_s
