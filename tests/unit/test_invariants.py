"""A fresh list finds what a watch lost; an event that is still on its way is no difference."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from prometheus_client import CollectorRegistry

from fixtures.attempts import RUNNING
from fixtures.observing import LEDGER
from fixtures.shell import until
from railwright_kube import projections, verified
from railwright_kube.client import Api, Decode
from railwright_kube.core_v1 import PodObject
from railwright_kube.verified import VerifiedReflector
from railwright_operator import invariants, metrics
from railwright_operator.invariants import Verification
from railwright_operator.report.cycle_metrics import CycleMetrics
from railwright_operator.watch import records
from railwright_operator.watch.pod_index import PodIndex
from railwright_operator.watch.records import PodRecord
from railwright_scheduler.attempt.record import JobRecord

Json = dict[str, Any]


def pod(name: str, version: int, node: str = "") -> Json:
    metadata = {"uid": f"{name}-uid", "namespace": "team", "name": name}
    spec = {"nodeName": node, "containers": []}
    return {"metadata": metadata | {"resourceVersion": str(version)}, "spec": spec}


class Server:
    """Lists pods at a version, and streams the events that a test sends."""

    def __init__(self, version: int, *items: Json) -> None:
        self.version, self.items = version, [*items]
        self.listed = asyncio.Event()
        self._events: asyncio.Queue[Json] = asyncio.Queue()

    async def get(self, path: str, *, decode: Decode, **named: Any) -> Any:
        self.listed.set()
        metadata = {"resourceVersion": str(self.version)}
        return decode(orjson.dumps({"metadata": metadata, "items": self.items}))

    async def stream(self, path: str, **named: Any) -> AsyncIterator[bytes]:
        while True:
            yield orjson.dumps(await self._events.get())

    def send(self, kind: str, found: Json) -> None:
        self._events.put_nowait({"type": kind, "object": found})

    def bookmark(self, version: int) -> None:
        self.send("BOOKMARK", pod("", version))


@asynccontextmanager
async def watching(server: Server) -> AsyncIterator[VerifiedReflector[PodRecord]]:
    """A copy of what the server has at first."""
    copy = VerifiedReflector(
        cast(Api, server),
        "/api/v1/pods",
        projection=projections.of(PodObject, "Pod"),
        parse=records.pod,
        on_change=lambda old, new: None,
        metrics=metrics.Metrics(CollectorRegistry()).watch,
        clock=lambda: 100.0,
        rng=Random(0),
        lasting=records.still_bound,
    )
    running = asyncio.create_task(copy.run())
    await copy.wait_synced()
    server.listed.clear()
    try:
        yield copy
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def held(copy: VerifiedReflector[PodRecord]) -> dict[str, tuple[int, str]]:
    return {record.name: (record.rv, record.node) for record in copy.records.values()}


async def test_lost_events_are_corrected() -> None:
    """One of each kind; a copy that is right afterwards has no more to find."""
    server = Server(9, pod("changed", 1), pod("deleted", 2), pod("same", 3))
    async with watching(server) as copy:
        server.version, server.items = (
            20,
            [pod("changed", 11, "n1"), pod("same", 3), pod("new", 12)],
        )
        server.bookmark(20)
        found = await copy.verify()
        assert held(copy) == {"changed": (11, "n1"), "same": (3, ""), "new": (12, "")}
        assert [any(name in each for each in found) for name in ("changed", "deleted", "new")] == (
            [True] * 3
        )
        assert len(found) == 3
        assert await copy.verify() == []


async def test_events_that_come_late_are_no_violation() -> None:
    server = Server(9, pod("changed", 1), pod("deleted", 2))
    async with watching(server) as copy:
        server.version, server.items = 20, [pod("changed", 11, "n1"), pod("new", 12)]
        verifying = asyncio.create_task(copy.verify())
        await server.listed.wait()
        for _ in range(100):
            await asyncio.sleep(0)
        assert not verifying.done(), "the watch has not passed the list yet"
        server.send("MODIFIED", pod("changed", 11, "n1"))
        server.send("ADDED", pod("new", 12))
        server.send("DELETED", pod("deleted", 20))
        assert await verifying == []


async def test_list_that_is_older_than_the_copy_undoes_nothing() -> None:
    """What happened after the list is neither undone nor reported."""
    server = Server(9, pod("changed", 1), pod("deleted", 2))
    async with watching(server) as copy:
        server.send("MODIFIED", pod("changed", 31, "n1"))
        server.send("ADDED", pod("new", 32))
        await until(lambda: len(copy.records) == 3, "the news")
        server.version = 20
        verifying = asyncio.create_task(copy.verify())
        await server.listed.wait()
        server.send("DELETED", pod("deleted", 33))
        assert await verifying == []
        assert held(copy) == {"changed": (31, "n1"), "new": (32, "")}


async def test_deletion_of_uncached_object_is_no_violation() -> None:
    """The event that it was added was lost; the one that it was deleted was not."""
    server = Server(9)
    async with watching(server) as copy:
        server.version, server.items = 20, [pod("brief", 12)]
        verifying = asyncio.create_task(copy.verify())
        await server.listed.wait()
        server.send("DELETED", pod("brief", 25))
        assert await verifying == []
        assert held(copy) == {}


async def test_list_of_the_informer_ends_verification() -> None:
    """Its list may lack what was deleted since that of the verification."""
    server = Server(9)
    async with watching(server) as copy:
        server.version, server.items = 20, [pod("brief", 12)]
        verifying = asyncio.create_task(copy.verify())
        await server.listed.wait()
        await asyncio.sleep(0)
        server.version, server.items = 30, []
        server.send("ERROR", {"code": 410, "message": "expired"})
        assert await verifying == []
        assert (copy.relists, held(copy)) == (2, {})


async def test_too_many_deletions_end_verification(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "DROPPED_MAX", 2)
    server = Server(9)
    async with watching(server) as copy:
        server.version, server.items = 20, [pod("a", 12), pod("new", 13)]
        verifying = asyncio.create_task(copy.verify())
        await server.listed.wait()
        for version, name in enumerate("abc", start=25):
            server.send("DELETED", pod(name, version))
        assert await verifying == []
        assert held(copy) == {}


async def test_answer_to_a_bind_is_no_violation() -> None:
    """It shows the node and no new version."""
    server = Server(9, pod("bound", 1))
    async with watching(server) as copy:
        copy.absorb(replace(copy.records["bound-uid"], node="n1"))
        assert await copy.verify() == []
        assert held(copy) == {"bound": (1, "n1")}


async def test_stalled_watch_is_not_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "REACH_S", 2 * verified.POLL_S)
    server = Server(9, pod("changed", 1))
    async with watching(server) as copy:
        server.version, server.items = 20, [pod("changed", 11, "n1")]
        with pytest.raises(TimeoutError):
            await copy.verify()
        assert held(copy) == {"changed": (1, "")}


def of_attempt(number: int, name: str, *, deleting: bool = False) -> PodRecord:
    record = records.answered(pod(name, 1, "n1"))
    return replace(record, job_uid="a", attempt=number, phase="Running", deleting=deleting)


class Leader:
    """A verification over caches that a test fills; job a is as in its record."""

    def __init__(self, record: JobRecord, *pods: PodRecord, wrong: tuple[str, ...] = ()) -> None:
        self.now_s = 0.0
        self.verified = 0
        self.registry = CollectorRegistry()
        index = PodIndex(lambda uid: "team")
        for each in pods:
            index.change(None, each)

        async def verify() -> list[str]:
            self.verified += 1
            return [*wrong]

        informers = SimpleNamespace(
            nodes=SimpleNamespace(verify=verify),
            pods=SimpleNamespace(verify=verify),
            pod_index=index,
            jobs={"a": SimpleNamespace(record=record)},
        )
        self.verification = Verification(
            cast(Any, informers),
            ledger=lambda: LEDGER,
            violations=CycleMetrics(self.registry).violations,
            clock=lambda: self.now_s,
        )

    def count(self, invariant: str) -> float:
        name, labels = "railwright_invariant_violations_total", {"invariant": invariant}
        return self.registry.get_sample_value(name, labels) or 0.0


async def test_verification_of_a_sound_cluster_finds_nothing() -> None:
    leader = Leader(RUNNING, of_attempt(1, "a-worker-0-1"))
    await leader.verification.verify()
    assert [leader.count(each) for each in ("I2", "I3", "I17")] == [0, 0, 0]


async def test_unrecorded_attempt_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    leader = Leader(RUNNING, of_attempt(1, "a-worker-0-1"), of_attempt(7, "a-worker-0-7"))
    await leader.verification.verify()
    assert [leader.count(each) for each in ("I2", "I3", "I17")] == [1, 1, 0]
    assert {record.message for record in caplog.records} == {"invariant violated"}


@pytest.mark.parametrize(("deleting", "reported"), [(True, 0), (False, 1)])
async def test_pod_of_no_job_may_be_on_its_way(deleting: bool, reported: int) -> None:
    """Such as two whose job was never known, on a node that is down."""
    pods = (of_attempt(7, "x-worker-0-7"), of_attempt(8, "x-worker-0-8"))
    orphans = [replace(each, job_uid="unknown", deleting=deleting) for each in pods]
    leader = Leader(RUNNING, *orphans)
    await leader.verification.verify()
    assert [leader.count(each) for each in ("I2", "I3")] == [0, reported]


async def test_copy_that_was_wrong_is_reported() -> None:
    leader = Leader(RUNNING, wrong=("p was deleted and is in the copy",))
    await leader.verification.verify()
    assert leader.count("I17") == 2


async def test_verification_comes_after_a_take_over_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(invariants, "TICK_S", 0.0)
    leader = Leader(RUNNING)
    running = asyncio.create_task(leader.verification.run())
    for passes_s, checks in ((0, 0), (59, 0), (1, 2), (599, 2), (1, 4)):
        leader.now_s += passes_s
        for _ in range(20):
            await asyncio.sleep(0)
        assert leader.verified == checks
    running.cancel()
