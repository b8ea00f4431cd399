"""A network that takes long to read or to assemble loses no change in between."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fixtures import observing, office
from fixtures.shell import until
from railwright_controllers import discovery, file_reads
from railwright_controllers.discovery import Discovery
from railwright_controllers.watch.fabric import FabricCache
from railwright_controllers.watch.files import FilesRecord
from railwright_topology.sources.formats import File
from railwright_watch import cluster_objects

CONF = "SwitchName=s1 Nodes=n0\n"


class Network:
    """A node and a ConfigMap; reading and assembly wait for ``goes_on``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started = 0
        self.goes_on = threading.Event()
        self.fabric = FabricCache()
        self.discovery = Discovery(self.fabric, clock=lambda: 0.0)
        self.node = observing.node_record("n0")
        self.given: FilesRecord | None = None
        self._put_together, self._read_all = discovery._put_together, file_reads.read_all
        monkeypatch.setattr(discovery, "_put_together", self.put_together)
        monkeypatch.setattr(file_reads, "read_all", self.read_all)
        monkeypatch.setattr(discovery, "PAUSE_S", 0.01)
        self.label("r0")

    def label(self, rack: str) -> None:
        new = replace(self.node, labels={"railwright.dev/rack": rack})
        self.discovery.node_changed(self.node, new)
        self.node = new

    def give(self, content: str) -> None:
        new = FilesRecord("uid", "site", (File("site", "topology.conf", content),), 1, content)
        self.discovery.files_changed(self.given, new)
        self.given = new

    def put_together(self, *parts: Any, **named: Any) -> Any:
        self._wait()
        return self._put_together(*parts, **named)

    def read_all(self, files: Sequence[Any], before: Sequence[Any]) -> Any:
        if files:
            self._wait()
        return self._read_all(files, before)

    def _wait(self) -> None:
        self.started += 1
        assert self.goes_on.wait(10)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        running = asyncio.create_task(self.discovery.run())
        try:
            yield
        finally:
            self.goes_on.set()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @property
    def place(self) -> tuple[str, ...]:
        return self.discovery.found.fabric.place("n0")

    @property
    def read(self) -> list[str]:
        return [each.time for each in self.discovery.found.files]


async def test_label_that_changes_during_an_assembly_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = Network(monkeypatch)
    async with network.running():
        await until(lambda: network.started == 1, "an assembly")
        network.label("r1")
        network.goes_on.set()
        await until(lambda: network.place == ("r1",), "the new label")
    assert network.discovery.refreshed.is_set()


async def test_file_that_changes_while_it_is_read_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch)
    network.give(CONF)
    newer = CONF.replace("s1", "s2")
    async with network.running():
        await until(lambda: network.started == 1, "a read")
        network.give(newer)
        network.goes_on.set()
        await until(lambda: network.read == [newer], "the newer content")


async def test_label_counts_while_a_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if its read never ends."""
    network = Network(monkeypatch)
    monkeypatch.setattr(discovery, "TICK_S", 0.05)
    network.goes_on.set()
    async with network.running():
        await until(lambda: network.place == ("r0",), "the first assembly")
        hangs = threading.Event()
        monkeypatch.setattr(file_reads, "read_all", lambda files, before: hangs.wait(10) and before)
        network.give(CONF)
        try:
            network.label("r1")
            await until(lambda: network.place == ("r1",), "the new label")
        finally:
            hangs.set()


async def test_levels_that_the_site_configures_count(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch)
    monkeypatch.setattr(discovery, "TICK_S", 0.05)
    network.goes_on.set()
    async with network.running():
        await until(lambda: network.place == ("r0",), "the label")
        configured = office.fabric("railwright.dev/rack", "none")
        network.fabric.change(None, cluster_objects.answered(configured))
        await until(lambda: network.started == 2, "another assembly")


async def test_discovery_ends_when_cancelled_at_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """``asyncio.wait_for`` of Python 3.11 would go on."""
    network = Network(monkeypatch)
    monkeypatch.setattr(discovery, "TICK_S", 600.0)
    monkeypatch.setattr(discovery, "PAUSE_S", 0.0)
    network.goes_on.set()
    network.discovery.due.clear()
    running = asyncio.create_task(network.discovery.run())
    await until(network.discovery.refreshed.is_set, "an assembly")
    for _ in range(3):  # Discovery waits for a change by then.
        await asyncio.sleep(0)
    network.label("r1")
    running.cancel()
    done, _ = await asyncio.wait((running,), timeout=5.0)
    assert done


async def test_exception_in_a_read_ends_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch)

    def broken(files: Sequence[Any], before: Sequence[Any]) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(file_reads, "read_all", broken)
    network.give(CONF)
    with pytest.raises(RuntimeError, match="new thread"):
        await asyncio.wait_for(network.discovery.run(), 5)
