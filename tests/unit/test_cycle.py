"""The order of writes and actions in a scheduling cycle."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from fixtures import node
from fixtures.attempts import NODES, entry, pods, seen, world_of
from fixtures.shell import until
from railwright_kube.errors import Unreachable
from railwright_operator import cycle
from railwright_operator.cycle import CONFIRM_INTERVAL_S, Cycle
from railwright_operator.report.cycle_metrics import CycleMetrics
from railwright_operator.report.fleet_metrics import FleetMetrics
from railwright_operator.write.ledger import DeposedError
from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.ledger import AttemptKey, Ledger
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.cluster_state import ClusterState, ObservedAttempt
from railwright_scheduler.isolation import Isolation
from railwright_scheduler.model.snapshot import QueueRound
from railwright_scheduler.plan import Plan

ROUND = QueueRound((0, 0, "a"), (0, 9, "z"))
STARTING = JobRecord(phase=Phase.STARTING, attempt=1, nodes=NODES)


class Replaced:
    """A state for cycles, and a ledger that another leader has written since."""

    def __init__(self, world: ClusterState) -> None:
        self.ledger = world.ledger
        self.acted = 0
        self.awake = asyncio.Event()
        self.now_s = 0.0
        self.watching = False
        self.watched: list[bool] = []
        self._world = world

    def set_aside(self, ledger: object) -> dict[Any, str]:
        return {}

    @contextmanager
    def watch(self, isolation: object) -> Iterator[None]:
        self.watching = True
        yield
        self.watching = False

    def build(self, ledger: object, isolation: object) -> Iterator[ClusterState | None]:
        yield None
        self.watched.append(self.watching)
        yield self._world

    def sync_sessions(self, plan: object, isolation: object) -> None:
        """No launchers."""

    async def confirm(self) -> None:
        raise DeposedError("another leader")

    def cycle_begins(self) -> None:
        """Nothing is under way."""

    async def until_low(self) -> None:
        """Nothing is under way."""

    def start(self, actions: object) -> None:
        self.acted += 1


class Idle(Replaced):
    """The same with nothing to do, and so nothing to write: each turn ends ``CONFIRM_INTERVAL_S``
    later."""

    reports = 0

    def record(self, isolation: object) -> None:
        """No job failed."""

    def start(self, actions: object) -> None:
        """No action is due."""

    async def report(self, plan: object) -> None:
        self.reports += 1
        self.now_s += CONFIRM_INTERVAL_S
        self.awake.set()

    def forget_all_but(self, keys: Iterable[AttemptKey]) -> None:
        """Nothing is remembered."""


@pytest.mark.parametrize("gang", ["- -", "n0 -"])
async def test_deposed_leader_binds_nothing(gang: str) -> None:
    """The plan confirms the ledger, which another leader has written."""
    attempts = {("a", 1): ObservedAttempt(pods=pods(gang), placed=True)}
    nodes = (node("n0"), node("n1"))
    shell = Replaced(world_of(seen(STARTING), nodes=nodes, entries=(entry(),), attempts=attempts))
    await _until_deposed(shell)


async def test_leader_with_nothing_to_do_confirms_its_ledger() -> None:
    shell = Idle(world_of(nodes=()))
    await _until_deposed(shell)
    assert shell.reports >= 1


async def test_watchdog_watches_the_whole_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the read before it."""
    shell = Idle(world_of(nodes=()))

    def take(world: ClusterState, isolation: Isolation) -> Plan:
        shell.watched.append(shell.watching)
        return scheduling.plan(world, isolation)

    monkeypatch.setattr(cycle, "scheduling", SimpleNamespace(plan=take))
    await _until_deposed(shell)
    assert len(shell.watched) >= 2
    assert all(shell.watched)


async def test_cpu_time_is_of_the_build_and_the_plan_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each reading of the clock is a second later: a part that is counted takes one."""
    readings = itertools.count()
    monkeypatch.setattr(cycle, "time", SimpleNamespace(thread_time=lambda: next(readings)))
    async with _cycles(shell := Idle(world_of(nodes=()))) as cycles:
        await until(lambda: shell.reports, "a cycle")
    (samples,) = (each.samples for each in cycles.metrics.cycle_cpu_s.collect())
    found = {each.name.rpartition("_")[2]: each.value for each in samples}
    assert found["count"] >= 1
    assert found["sum"] == 2 * found["count"]


def _with_round(queue_round: QueueRound, world: ClusterState, isolation: Isolation) -> Plan:
    return replace(scheduling.plan(world, isolation), queue_round=queue_round)


async def test_cycle_that_stopped_in_the_queue_wakes_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else wakes it; and it does not where nothing could start sooner."""

    class Quiet(Idle):
        async def report(self, plan: object) -> None:
            await super().report(plan)
            self.awake.clear()

    take = functools.partial(_with_round, ROUND)
    monkeypatch.setattr(cycle, "scheduling", SimpleNamespace(plan=take))
    monkeypatch.setattr(cycle, "TICK_S", 3_600.0)
    shell = Quiet(world_of(nodes=()))
    await _until_deposed(shell)
    assert shell.reports >= 1
    blocked = replace(ROUND, is_blocked=True)
    take_blocked = functools.partial(_with_round, blocked)
    monkeypatch.setattr(cycle, "scheduling", SimpleNamespace(plan=take_blocked))
    shell = Quiet(world_of(nodes=()))
    async with _cycles(shell):
        with pytest.raises(AssertionError):
            await until(lambda: shell.reports > 1, "another", deadline_s=6 * cycle.PAUSE_S_MIN)


class Recorded(Idle):
    """Notes what a cycle does, and whether the watchdog watches. The plan changes the ledger."""

    def __init__(self, world: ClusterState) -> None:
        super().__init__(world)
        self.did: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in STEPS:
            note = f"{name}, watched" if self.watching else name
            object.__getattribute__(self, "did").append(note)
        return object.__getattribute__(self, name)

    async def write(self, ledger: Ledger) -> None:
        self.ledger = ledger


STEPS = (
    *("cycle_begins", "set_aside", "build", "write", "confirm"),
    *("sync_sessions", "record", "start", "start_requests", "report", "forget_all_but"),
)


async def test_cycle_acts_under_the_written_ledger() -> None:
    """In the one safe order, with nothing left out."""
    world = world_of(seen(JobRecord()), nodes=(node("n0"), node("n1")))
    shell = Recorded(world)
    await _until_deposed(shell)
    watched = ("sync_sessions", "record", "start")
    cycle_of = [
        *("cycle_begins", "set_aside", "build, watched", "write"),
        *(f"{step}, watched" for step in watched),
        *("report", "forget_all_but"),
    ]
    assert shell.did[: len(cycle_of)] == cycle_of


async def test_state_of_requests_for_swept_pods_is_kept() -> None:
    """No entry of the ledger has these pods: a refused deletion of one keeps its pause."""

    class Sweeping(Idle):
        kept: tuple[AttemptKey, ...] = ()

        async def confirm(self) -> None:
            if self.reports:
                raise DeposedError("another leader")

        def forget_all_but(self, keys: Iterable[AttemptKey]) -> None:
            self.kept = (*keys,)

    failed = seen(JobRecord(phase=Phase.FAILED, attempt=1, ended=1))
    left = {("a", 1): ObservedAttempt(pods=pods("n0"), placed=True)}
    shell = Sweeping(world_of(failed, nodes=(node("n0"),), attempts=left))
    await _until_deposed(shell)
    assert shell.kept == (("a", 1),)


async def test_failures_count_until_a_cycle_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause grows with failures in a row, not with those of a whole day."""

    class Failing(Idle):
        outcomes = iter([True, True, False, True])

        def cycle_begins(self) -> None:
            if next(self.outcomes, False):
                raise Unreachable("no answer")

    paused: list[int] = []

    def delay_s(failures: int, rng: object) -> float:
        paused.append(failures)
        return 0.0

    monkeypatch.setattr(cycle, "BACKOFF_S", SimpleNamespace(delay_s=delay_s))
    shell = Failing(world_of(nodes=()))
    shell.awake.set()
    await _until_deposed(shell)
    assert paused == [0, 1, 0]


class Sure(Idle):
    """The ledger is found as it was; a cycle takes no time."""

    confirmed = 0

    async def confirm(self) -> None:
        self.confirmed += 1

    async def report(self, plan: object) -> None:
        self.reports += 1

    def has_reported(self, count: int) -> bool:
        return self.reports >= count


async def test_cycle_waits_for_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "TICK_S", 3_600.0)
    shell = Sure(world_of(nodes=()))
    async with _cycles(shell):
        await until(lambda: shell.reports, "a cycle")
        shell.awake.set()
        await until(lambda: shell.reports == 2, "another one")
        with pytest.raises(AssertionError):
            await until(lambda: shell.reports > 2, "a third", deadline_s=6 * cycle.PAUSE_S_MIN)


class Full(Sure):
    """So many requests are under way that a cycle could start no more, until ``low`` is set."""

    def __init__(self, world: ClusterState) -> None:
        super().__init__(world)
        self.low = asyncio.Event()

    async def until_low(self) -> None:
        await self.low.wait()

    async def report(self, plan: object) -> None:
        await super().report(plan)
        self.awake.set()


async def test_cycle_rests_while_requests_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cycle, "TICK_S", 3_600.0)
    shell = Full(world_of(nodes=()))
    async with _cycles(shell):
        await until(lambda: shell.reports, "a cycle")
        with pytest.raises(AssertionError):
            await until(lambda: shell.reports > 1, "another one", deadline_s=6 * cycle.PAUSE_S_MIN)
        shell.low.set()
        await until(lambda: shell.reports > 1, "another one")


async def test_requests_that_never_end_delay_no_cycle_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cycle, "TICK_S", 0.01)
    shell = Full(world_of(nodes=()))
    async with _cycles(shell):
        await until(lambda: shell.reports > 2, "three cycles")


async def test_ledger_is_confirmed_once_in_a_while() -> None:
    shell = Sure(world_of(nodes=()))
    async with _cycles(shell):
        shell.now_s += CONFIRM_INTERVAL_S
        for count in (2, 3, 4):
            shell.awake.set()
            await until(functools.partial(shell.has_reported, count), "a cycle")
    assert shell.confirmed == 1


async def test_slow_planning_leaves_time_for_the_rest() -> None:
    """Events that never stop do not keep the loop planning."""

    class Slow(Sure):
        def build(self, ledger: object, isolation: object) -> Iterator[ClusterState | None]:
            self.now_s += 0.2
            return super().build(ledger, isolation)

        async def report(self, plan: object) -> None:
            await super().report(plan)
            self.awake.set()

    shell = Slow(world_of(nodes=()))
    loop = asyncio.get_running_loop()
    async with _cycles(shell):
        await until(lambda: shell.reports, "a cycle")
        began_s = loop.time()
        await until(lambda: shell.reports == 2, "another one")
    assert loop.time() - began_s >= cycle.PAUSE_FACTOR * 0.2 - 0.1


async def test_age_of_a_cycle_counts_from_its_end() -> None:
    shell = Idle(world_of(nodes=()))
    async with _cycles(shell) as cycles:
        await until(lambda: shell.reports, "a cycle")
        assert cycles.completed_age_s() == 0.0


@asynccontextmanager
async def _cycles(shell: Replaced) -> AsyncIterator[Cycle]:
    """Cycles of these parts, which run meanwhile."""
    cycles = _cycle_of(shell)
    running = asyncio.create_task(cycles.run())
    try:
        yield cycles
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _until_deposed(shell: Replaced) -> None:
    """Run cycles until the ledger is found to be another leader's, before any action."""
    running = asyncio.create_task(_cycle_of(shell).run())
    try:
        await until(lambda: running.done() or shell.acted, "its end, or an action")
        assert shell.acted == 0
        assert isinstance(running.exception(), DeposedError)
    finally:
        running.cancel()


def _cycle_of(shell: Replaced) -> Cycle:
    part = cast(Any, shell)
    return Cycle(
        part,
        ledger=part,
        executor=part,
        reporter=part,
        faults=part,
        watchdog=part,
        metrics=CycleMetrics(CollectorRegistry()),
        fleet_metrics=FleetMetrics(CollectorRegistry()),
        awake=shell.awake,
        clock=lambda: shell.now_s,
        rng=Random(0),
    )
