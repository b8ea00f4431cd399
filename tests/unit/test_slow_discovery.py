"""A network that takes long to read or to put together delays no cycle, and loses no news."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from fixtures import observing
from fixtures.shell import until
from railwright_operator import discovery
from railwright_operator.discovery import Discovery
from railwright_operator.watch.files import FilesRecord
from railwright_operator.watch.site import Site
from railwright_topology.sources.formats import File

LATE = "the last fabric stays in use: the assembly takes"
CONF = "SwitchName=s1 Nodes=n0\n"


class Network:
    """A node and a ConfigMap; putting the network together waits for ``goes_on``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.takes_s, self.under_way, self.most = 0.0, 1.0, 0, 0
        self.awake, self.goes_on = asyncio.Event(), threading.Event()
        self.discovery = Discovery(Site(), wake=self.awake.set, clock=lambda: self.now_s)
        self.node = observing.node_record("n0")
        self.given: FilesRecord | None = None
        self._put_together, self._read_all = discovery._put_together, discovery._read_all
        monkeypatch.setattr(discovery, "_put_together", self.put_together)
        monkeypatch.setattr(discovery, "PATIENCE_S", 0.05)
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
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        assert self.goes_on.wait(10)
        self.now_s += self.takes_s
        self.under_way -= 1
        return self._put_together(*parts, **named)

    def read_first_slowly(self, files: Sequence[Any], before: Sequence[Any]) -> Any:
        if files[0][1] == CONF:
            assert self.goes_on.wait(10)
        return self._read_all(files, before)

    @property
    def read(self) -> list[str]:
        return [each.time for each in self.discovery._read]


async def test_network_that_takes_long_keeps_no_cycle_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hang would be one that never ends: the Lease is renewed all the while."""
    network = Network(monkeypatch)
    async with asyncio.timeout(5):
        for number in range(3):
            network.label(f"r{number}")
            await network.discovery.refresh()
    assert network.most == 1
    assert network.discovery.found.problem.startswith(LATE)
    network.goes_on.set()
    await until(lambda: network.discovery._assembly is None, "the network")
    await network.discovery.refresh()
    await until(lambda: network.discovery._assembly is None, "its last change")
    assert network.discovery.found.problem == ""
    assert network.discovery.found.fabric.places["n0"]


async def test_network_that_took_long_is_not_waited_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = Network(monkeypatch)
    monkeypatch.setattr(discovery, "PATIENCE_S", 10.0)
    network.goes_on.set()
    network.takes_s = 20.0
    await network.discovery.refresh()
    network.goes_on.clear()
    network.takes_s = 1.0
    network.label("r1")
    async with asyncio.timeout(5):
        await network.discovery.refresh()
    assert network.discovery.found.problem.startswith(LATE)
    network.goes_on.set()
    await asyncio.wait_for(network.awake.wait(), 5)
    network.goes_on.clear()
    network.label("r2")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(network.discovery.refresh(), 0.2)
    network.goes_on.set()


async def test_slow_first_reading_replaces_no_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch)
    monkeypatch.setattr(discovery, "_read_all", network.read_first_slowly)
    network.give(CONF)
    await network.discovery.read_first_files()
    assert network.read == []
    running = asyncio.create_task(network.discovery.run())
    newer = CONF.replace("s1", "s2")
    network.give(newer)
    network.goes_on.set()
    await until(lambda: network.read == [newer], "the newer content")
    running.cancel()


async def test_exception_in_the_first_reading_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch)

    def broken(files: Sequence[Any], before: Sequence[Any]) -> Any:
        assert network.goes_on.wait(10)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(discovery, "_read_all", broken)
    network.give(CONF)
    await network.discovery.read_first_files()
    network.goes_on.set()
    with pytest.raises(RuntimeError, match="new thread"):
        await asyncio.wait_for(network.discovery.run(), 5)
    with pytest.raises(RuntimeError, match="new thread"):
        await network.discovery.read_first_files()
