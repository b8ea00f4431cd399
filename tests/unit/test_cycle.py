"""What a turn does before it acts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from railwright_operator import cycle
from railwright_operator.cycle import SURE_S, Cycle
from railwright_operator.report.cycle_metrics import CycleMetrics
from railwright_operator.write.ledger import DeposedError
from railwright_scheduler import turn
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.isolation import Isolation
from railwright_scheduler.turn import Turn
from railwright_scheduler.world import AttemptSeen, World
from worlds import node
from worlds.attempts import NODES, entry, pods, seen, world_of
from worlds.shell import until

STARTING = JobRecord(phase=Phase.STARTING, attempt=1, nodes=NODES)


class Replaced:
    """A world to take turns from, and a ledger that another leader has written since."""

    def __init__(self, world: World) -> None:
        self.ledger = world.ledger
        self.acted = 0
        self.awake = asyncio.Event()
        self.now_s = 0.0
        self.watching = False
        self.watched: list[bool] = []
        self._world = world

    async def hear(self) -> None:
        """There is no news of the network."""

    def set_aside(self, ledger: object) -> dict[Any, str]:
        return {}

    @contextmanager
    def watch(self, isolation: object) -> Iterator[None]:
        self.watching = True
        yield
        self.watching = False

    def look(self, ledger: object, isolation: object) -> Iterator[World | None]:
        yield None
        self.watched.append(self.watching)
        yield self._world

    def follow(self, plan: object, isolation: object) -> None:
        """Nobody speaks."""

    async def confirm(self) -> None:
        raise DeposedError("another leader")

    def turn_begins(self) -> None:
        """Nothing is under way."""

    def start(self, actions: object) -> None:
        self.acted += 1


class Idle(Replaced):
    """The same with nothing to do, and so nothing to write: each turn ends ``SURE_S`` later."""

    reports = 0

    def record(self, isolation: object) -> None:
        """No job failed."""

    def start(self, actions: object) -> None:
        """No action is due."""

    def act(self) -> None:
        """No pre-run is due."""

    async def report(self, plan: object) -> None:
        self.reports += 1
        self.now_s += SURE_S
        self.awake.set()

    def forget_all_but(self, keys: object) -> None:
        """Nothing is remembered."""


@pytest.mark.parametrize("gang", ["- -", "n0 -"])
async def test_a_leader_that_was_replaced_without_noticing_binds_nothing(gang: str) -> None:
    attempts = {("a", 1): AttemptSeen(pods=pods(gang), placed=True)}
    nodes = (node("n0"), node("n1"))
    shell = Replaced(world_of(seen(STARTING), nodes=nodes, entries=(entry(),), attempts=attempts))
    await _until_deposed(shell)


async def test_leader_with_nothing_to_do_confirms_its_ledger() -> None:
    shell = Idle(world_of(nodes=()))
    await _until_deposed(shell)
    assert shell.reports >= 1


async def test_watchdog_watches_the_whole_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the look before it."""
    shell = Idle(world_of(nodes=()))

    def take(world: World, isolation: Isolation) -> Turn:
        shell.watched.append(shell.watching)
        return turn.take(world, isolation)

    monkeypatch.setattr(cycle, "turn", SimpleNamespace(take=take))
    await _until_deposed(shell)
    assert len(shell.watched) >= 2
    assert all(shell.watched)


async def test_cycle_that_stopped_in_the_queue_wakes_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing else wakes it."""

    class Quiet(Idle):
        async def report(self, plan: object) -> None:
            await super().report(plan)
            self.awake.clear()

    def take(world: World, isolation: Isolation) -> Turn:
        return replace(turn.take(world, isolation), queue_position=(0, 0, "a"))

    monkeypatch.setattr(cycle, "turn", SimpleNamespace(take=take))
    monkeypatch.setattr(cycle, "TICK_S", 3_600.0)
    shell = Quiet(world_of(nodes=()))
    await _until_deposed(shell)
    assert shell.reports >= 1


async def _until_deposed(shell: Replaced) -> None:
    """Take turns until the ledger turns out to be another leader's, before anything is done."""
    part = cast(Any, shell)
    cycles = Cycle(
        part,
        ledger=part,
        actuator=part,
        pre_runs=part,
        reporter=part,
        faults=part,
        watchdog=part,
        metrics=CycleMetrics(CollectorRegistry()),
        awake=shell.awake,
        clock=lambda: shell.now_s,
        rng=Random(0),
    )
    running = asyncio.create_task(cycles.run())
    try:
        await until(lambda: running.done() or shell.acted, "its end, or an action")
        assert shell.acted == 0
        assert isinstance(running.exception(), DeposedError)
    finally:
        running.cancel()
