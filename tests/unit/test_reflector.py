"""Periodic lists of an informer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from random import Random
from typing import Any, cast

import orjson
import pytest
from prometheus_client import CollectorRegistry

from fixtures.shell import DEADLINE_S, until
from railwright_kube import errors, projections
from railwright_kube.client import Api, Decode
from railwright_kube.core_v1 import PodObject
from railwright_kube.reflector import BACKOFF_S, RESYNC_S, Reflector, StoreWentBackError
from railwright_operator import metrics
from railwright_operator.watch import records
from railwright_operator.watch.records import PodRecord


class Server:
    """Lists one pod, as long as it is there, and ends every stream after these events."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.streams = 0
        self.version = "9"

    async def get(self, path: str, *, decode: Decode, **named: Any) -> Any:
        metadata = {"resourceVersion": self.version}
        return decode(orjson.dumps({"metadata": metadata, "items": self.items}))

    async def stream(self, path: str, **named: Any) -> AsyncIterator[bytes]:
        self.streams += 1
        await asyncio.sleep(0)
        for event in self.events:
            yield orjson.dumps(event)


POD: dict[str, Any] = {
    "metadata": {"uid": "u", "namespace": "team", "name": "p", "resourceVersion": "7"},
    "spec": {"containers": []},
}


def copy_of(
    server: Server,
    now_s: list[float],
    parse: Callable[[PodObject], PodRecord | None] = records.pod,
) -> Reflector[PodRecord]:
    return Reflector(
        cast(Api, server),
        "/api/v1/pods",
        projection=projections.of(PodObject, "Pod"),
        parse=parse,
        on_change=lambda old, new: None,
        metrics=metrics.Metrics(CollectorRegistry()).watch,
        clock=lambda: now_s[0],
        rng=Random(0),
    )


async def test_undeclared_listed_object_is_reported_until_deleted() -> None:
    """An object that cannot be decoded is logged and counted."""
    server = Server()
    odd: dict[str, Any] = {"metadata": {**POD["metadata"], "uid": "odd"}, "status": None}
    server.items += [POD, odd]
    server.events.append({"type": "DELETED", "object": POD | {"status": None}})
    copy = copy_of(server, [100.0])
    running = asyncio.create_task(copy.run())
    await copy.wait_synced()
    assert (copy.errors, list(copy.records)) == (1, ["u"])
    await until(lambda: not copy.records, "the deletion")
    running.cancel()


async def test_time_before_its_first_list_is_no_silence() -> None:
    """A standby has its caches for hours before it leads; a list may be empty."""
    now_s = [0.0]
    copy = copy_of(Server(), now_s)
    now_s[0] = 500.0
    running = asyncio.create_task(copy.run())
    await copy.wait_synced()
    assert copy.receive_age_s() == 0.0
    now_s[0] = 560.0
    assert copy.receive_age_s() == 60.0
    running.cancel()


async def test_lag_of_a_watch_is_from_the_response_to_the_event() -> None:
    """A stream may send other events, and be late with those of our own writes."""
    server, now_s = Server(), [100.0]
    copy = copy_of(server, now_s)

    def measured() -> tuple[float, float]:
        lag = copy.metrics.lag_s.labels("Pod")
        (series,) = lag.collect()
        found = {each.name: each.value for each in series.samples}
        return found["railwright_watch_lag_seconds_count"], found[
            "railwright_watch_lag_seconds_sum"
        ]

    def answered(version: int) -> None:
        metadata = {**POD["metadata"], "resourceVersion": str(version)}
        copy.absorb(records.answered(POD | {"metadata": metadata}))

    answered(8)
    running = asyncio.create_task(copy.run())
    await copy.wait_synced()
    answered(12)
    for _ in range(3):
        now_s[0] += 20.0
        answered(20)
    server.events.append({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "11"}}})
    await until(lambda: copy.events > 0, "an event before")
    assert measured() == (0, 0)
    server.events.append({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "20"}}})
    await until(lambda: measured()[0] > 0, "both versions")
    assert measured() == (2, 60 + 40)
    running.cancel()


async def test_undeclared_object_keeps_last_state_and_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A streamed object that cannot be decoded does not change the cache."""
    server = Server()
    server.items.append(POD)
    odd = POD | {"metadata": {**POD["metadata"], "resourceVersion": "10"}, "status": {"phase": 7}}
    bookmark = {"metadata": {"resourceVersion": "11"}, "spec": {"containers": None}}
    server.events += [
        {"type": "MODIFIED", "object": odd},
        {"type": "BOOKMARK", "object": bookmark},
    ]
    copy = copy_of(server, [100.0])
    running = asyncio.create_task(copy.run())
    await until(lambda: copy.events >= 2, "both events")
    running.cancel()
    assert (copy.relists, copy.errors, copy.records["u"].rv) == (1, 1, 7)
    (reported,) = [each for each in caplog.records if each.message == "object not readable"]
    assert (reported.__dict__["object"], "status.phase" in reported.__dict__["error"]) == (
        "p",
        True,
    )


async def test_object_that_cannot_be_parsed_stops_no_list() -> None:
    def parse(found: PodObject) -> PodRecord | None:
        if found.metadata.name == "odd":
            raise RecursionError
        return records.pod(found)

    server = Server()
    server.items += [{**POD, "metadata": {**POD["metadata"], "uid": "o", "name": "odd"}}, POD]
    copy = copy_of(server, [100.0], parse)
    running = asyncio.create_task(copy.run())
    await until(lambda: copy.synced, "a whole list", deadline_s=2.0)
    assert (copy.errors, list(copy.records)) == (1, ["u"])
    running.cancel()


async def test_event_missing_from_stream_is_found_by_next_list() -> None:
    """The informer lists again after `RESYNC_S`."""
    server, now_s = Server(), [100.0]
    server.items.append(POD)
    copy = copy_of(server, now_s)
    running = asyncio.create_task(copy.run())
    await copy.wait_synced()
    server.items.clear()
    await until(lambda: server.streams > 1, "the stream is resumed")
    assert (copy.relists, list(copy.records)) == (1, ["u"])
    now_s[0] += RESYNC_S
    await until(lambda: not copy.records, "the lost event is made good")
    running.cancel()


async def test_what_a_list_lacks_is_dropped_before_anything_is_added() -> None:
    """A pod that is gone and the one in its place would hold a node twice."""
    server, now_s = Server(), [100.0]
    server.items.append(POD)
    copy = copy_of(server, now_s)
    running = asyncio.create_task(copy.run())
    await copy.wait_synced()
    seen: list[tuple[str, ...]] = []
    copy.on_change = lambda old, new: seen.append(tuple(copy.records))
    metadata = {**POD["metadata"], "uid": "v", "name": "a", "resourceVersion": "10"}
    server.items[:] = [POD | {"metadata": metadata}]
    server.version = "11"
    now_s[0] += RESYNC_S
    await until(lambda: "v" in copy.records, "the next list")
    running.cancel()
    assert seen == [(), ("v",)]


async def test_news_of_a_list_do_not_undo_a_later_write() -> None:
    """The response to a binding comes while the pages of a list are taken in."""
    server, now_s = Server(), [100.0]
    server.items.append(POD)
    copy = copy_of(server, now_s)
    running = asyncio.create_task(copy.run())
    await copy.wait_synced()
    other = {**POD["metadata"], "uid": "gone", "name": "gone"}
    copy.absorb(records.answered(POD | {"metadata": {**other, "resourceVersion": "12"}}))
    newer = records.answered(POD | {"metadata": {**POD["metadata"], "resourceVersion": "14"}})
    copy.on_change = lambda old, new: copy.absorb(newer) if new is None else None
    server.items[:] = [POD | {"metadata": {**POD["metadata"], "resourceVersion": "13"}}]
    server.version = "13"
    now_s[0] += RESYNC_S
    await until(lambda: "gone" not in copy.records, "the next list")
    await until(lambda: copy.relists == 2 and copy.records["u"].rv == 14, "the newest version")
    running.cancel()


async def test_no_list_from_an_overloaded_server() -> None:
    """A list is the most expensive request; the stream goes on where it was."""

    class Overloaded(Server):
        async def stream(self, path: str, **named: Any) -> AsyncIterator[bytes]:
            async for line in super().stream(path, **named):
                yield line
            raise errors.ApiError(429, "TooManyRequests", message="later")

    server = Overloaded()
    copy = copy_of(server, [100.0])
    running = asyncio.create_task(copy.run())
    await until(lambda: server.streams >= 2, "another stream")
    running.cancel()
    assert copy.relists == 1


async def test_pod_made_since_the_list_stays() -> None:
    """The answer to a create comes before the pages of a list that is older."""
    copy = copy_of(Server(), [100.0])
    newer = {**POD, "metadata": {**POD["metadata"], "resourceVersion": "12"}}
    copy.absorb(records.answered(newer))
    running = asyncio.create_task(copy.run())
    await copy.wait_synced()
    running.cancel()
    assert list(copy.records) == ["u"]


async def test_store_older_than_the_stream_ends_the_copy() -> None:
    server = Server()
    newer = {**POD, "metadata": {**POD["metadata"], "resourceVersion": "12"}}
    gone = {"code": 410, "message": "gone"}
    server.events += [{"type": "ADDED", "object": newer}, {"type": "ERROR", "object": gone}]
    with pytest.raises(StoreWentBackError):
        await asyncio.wait_for(copy_of(server, [100.0]).run(), DEADLINE_S)


class SlowLists(Server):
    """Each list takes ``list_s`` of the clock, and each pause its own time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, list_s: float) -> None:
        super().__init__()
        self.now_s, self.list_s = [100.0], list_s
        self.pauses: list[float] = []
        self._sleep = asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", self._pause)

    async def get(self, path: str, *, decode: Decode, **named: Any) -> Any:
        self.now_s[0] += self.list_s
        return await super().get(path, decode=decode, **named)

    async def _pause(self, delay_s: float) -> None:
        self.now_s[0] += delay_s
        if delay_s:
            self.pauses.append(delay_s)
        await self._sleep(0)


async def test_slow_list_makes_no_failed_watch_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses grow while watches fail, no matter how long the lists before them take."""

    class Expired(SlowLists):
        async def stream(self, path: str, **named: Any) -> AsyncIterator[bytes]:
            async for line in super().stream(path, **named):
                yield line
            if len(self.pauses) == 8:
                raise StoreWentBackError("the end of the test")
            raise errors.ApiError(410, "Expired", message="too old resource version")

    server = Expired(monkeypatch, list_s=6.0)
    with pytest.raises(StoreWentBackError):
        await copy_of(server, server.now_s).run()
    assert min(server.pauses[-3:]) >= BACKOFF_S.cap_s / 2


class FailedResyncs(SlowLists):
    """Its watches last 400 s, with one new pod each. After the first list none is answered before
    ``good_s``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, good_s: float) -> None:
        super().__init__(monkeypatch, list_s=0.0)
        self.good_s = good_s
        self.lists_s: list[float] = []
        self.positions: list[str] = []

    async def get(self, path: str, *, decode: Decode, **named: Any) -> Any:
        self.lists_s.append(self.now_s[0])
        if len(self.lists_s) > 1 and self.now_s[0] < self.good_s:
            raise errors.ApiError(504, "Timeout", message="the list takes too long")
        return await super().get(path, decode=decode, **named)

    async def stream(self, path: str, **named: Any) -> AsyncIterator[bytes]:
        if self.now_s[0] > self.good_s:
            raise StoreWentBackError("the end of the test")
        self.positions.append(named["query"]["resourceVersion"])
        self.now_s[0] += 400.0
        version = str(9 + len(self.positions))
        metadata = POD["metadata"] | {"uid": version, "resourceVersion": version}
        self.items = [*self.items, POD | {"metadata": metadata}]
        self.version = version
        yield orjson.dumps({"type": "ADDED", "object": self.items[-1]})


async def test_watch_goes_on_while_resyncs_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each watch begins where the last one ended, and lists are tried with pauses."""
    server = FailedResyncs(monkeypatch, good_s=9000.0)
    copy = copy_of(server, server.now_s)
    with pytest.raises(StoreWentBackError):
        await copy.run()
    watches = int(server.good_s / 400)
    assert server.positions[:watches] == [str(9 + number) for number in range(watches)]
    pauses = [after - before for before, after in pairwise(server.lists_s[1:])]
    assert min(pauses) > 300.0
    assert max(pauses) < 1300.0
    assert len(copy.records) == len(server.positions)
