"""The copy of a kind of object stays equal to what the API server has, whatever happens between."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random

import pytest
from msgspec import Struct
from prometheus_client import CollectorRegistry

from fixtures import proxy, shell
from fixtures.api_faults import Reply
from railwright_kube import projections
from railwright_kube.client import Api
from railwright_kube.pages import OBJECTS_MAX
from railwright_kube.projections import Identity
from railwright_kube.reflector import STALL_S, WATCH_S
from railwright_kube.verified import VerifiedReflector
from railwright_operator import metrics
from railwright_operator.watch import start_events
from railwright_testbed import ControlPlane


@dataclass(frozen=True, slots=True)
class Note:
    """A ConfigMap's name and text."""

    uid: str
    name: str
    text: str
    rv: int = field(compare=False)


UNREADABLE = "unreadable"
Change = tuple[Note | None, Note | None]
Copy = VerifiedReflector[Note]


class ConfigMap(Struct, frozen=True):
    """What is read of one."""

    metadata: Identity
    data: dict[str, str] = {}


def note(found: ConfigMap) -> Note:
    metadata, text = found.metadata, found.data.get("text", "")
    if text == UNREADABLE:
        raise ValueError(text)
    return Note(metadata.uid, metadata.name, text, int(metadata.resource_version))


async def written(api: Api, namespace: str, name: str, *, text: str) -> Note:
    """The note of a new ConfigMap, out of the answer."""
    made = await api.create(place(namespace), shell.config_map(name, text=text))
    return note(projections.converted(made, ConfigMap))


@asynccontextmanager
async def copy_of(
    api: Api, namespace: str, *, stall_s: float = STALL_S, watch_s: int = WATCH_S
) -> AsyncIterator[tuple[Copy, list[Change]]]:
    """A running reflector of a namespace's ConfigMaps, synced, and the changes it told."""
    changes: list[Change] = []
    copy = Copy(
        api,
        place(namespace),
        projection=projections.of(ConfigMap),
        parse=note,
        on_change=lambda old, new: changes.append((old, new)),
        metrics=metrics.Metrics(CollectorRegistry()).watch,
        clock=time.monotonic,
        rng=Random(0),
        query={"fieldSelector": "metadata.name!=kube-root-ca.crt"},
        stall_s=stall_s,
        watch_s=watch_s,
    )
    running = asyncio.create_task(copy.run())
    try:
        await asyncio.wait_for(copy.wait_synced(), shell.DEADLINE_S)
        yield copy, changes
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def place(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def texts(copy: Copy) -> dict[str, str]:
    return {held.name: held.text for held in copy.records.values()}


async def write(api: Api, namespace: str, **texts: str) -> None:
    for name, text in texts.items():
        await api.create(place(namespace), shell.config_map(name, text=text))


async def write_many(api: Api, namespace: str, names: list[str]) -> None:
    """Some at a time: each of them opens a connection, and a busy machine needs long for 500."""
    for first in range(0, len(names), 25):
        some = names[first : first + 25]
        await asyncio.gather(*(write(api, namespace, **{name: "a"}) for name in some))


async def test_list_of_several_pages_is_read_whole_then_watched(
    control_plane: ControlPlane, namespace: str
) -> None:
    """Objects of all pages are cached, and the watch starts at the version of the list."""
    count = OBJECTS_MAX + 7
    async with shell.api(shell.connect(control_plane)) as api:
        names = [f"n{number}" for number in range(count)]
        await write_many(api, namespace, names)
        async with copy_of(api, namespace) as (copy, changes):
            assert texts(copy) == dict.fromkeys(names, "a")
            assert len(changes) == count
            await api.patch(f"{place(namespace)}/n3", {"data": {"text": "b"}})
            await api.delete(f"{place(namespace)}/n4")
            await shell.until(
                lambda: len(copy.records) == count - 1 and texts(copy)["n3"] == "b", "two changes"
            )
            assert copy.relists == 1


async def verified(api: Api, namespace: str, copy: Copy) -> list[str]:
    """What a verification finds, while news goes on: it waits until the watch passes its list."""
    verifying = asyncio.create_task(copy.verify())
    for number in itertools.count():
        done, _ = await asyncio.wait([verifying], timeout=0.2)
        if done:
            break
        await write(api, namespace, **{f"later-{copy.events}-{number}": "a"})
    return await verifying


async def test_copy_that_lost_events_is_corrected(
    control_plane: ControlPlane, namespace: str
) -> None:
    async with (
        shell.api(shell.connect(control_plane)) as api,
        copy_of(api, namespace) as (copy, _),
    ):
        await write(api, namespace, kept="a", changed="a", lost="a")
        await shell.until(lambda: len(copy.records) == 3, "all of them")
        assert await verified(api, namespace, copy) == []
        held = {each.name: each for each in copy.records.values()}
        del copy._records[held["lost"].uid]
        copy._records[held["changed"].uid] = replace(held["changed"], text="b")
        copy._records["ghost"] = replace(held["kept"], uid="ghost", name="ghost")
        found = await verified(api, namespace, copy)
        assert len(found) == 3
        assert {held["lost"], held["changed"], held["kept"]} <= {*copy.records.values()}
        assert "ghost" not in copy.records


async def test_update_without_change_of_record_is_no_event(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The callback is not called when only unused fields change."""
    async with (
        shell.api(shell.connect(control_plane)) as api,
        copy_of(api, namespace) as (copy, changes),
    ):
        await write(api, namespace, one="a")
        await api.patch(f"{place(namespace)}/one", {"data": {"other": "1"}})
        await api.patch(f"{place(namespace)}/one", {"data": {"text": "b"}})
        await shell.until(lambda: texts(copy) == {"one": "b"}, "the last change")
        reported = [(old and old.text, new and new.text) for old, new in changes]
        assert reported == [(None, "a"), ("a", "b")]


async def test_own_write_is_held_at_once_and_dies_with_the_object(
    control_plane: ControlPlane, namespace: str
) -> None:
    """The response to a write is cached, and a later deletion removes it."""
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(shell.connect(control_plane)) as api,
        shell.api(shell.connect(control_plane, through=between.entrance)) as watching,
        copy_of(watching, namespace) as (copy, changes),
    ):
        await shell.until(lambda: between.count("watch configmaps"), "a watch")
        between.stall()
        made = await written(api, namespace, "one", text="a")
        copy.absorb(made)
        assert texts(copy) == {"one": "a"}
        await api.delete(f"{place(namespace)}/one")
        between.flow()
        await shell.until(lambda: not copy.records, "the deletion")
        copy.absorb(made)
        assert not copy.records
        assert len(changes) == 2


async def test_a_stale_answer_does_not_undo_what_the_stream_has_shown(
    control_plane: ControlPlane, namespace: str
) -> None:
    async with (
        shell.api(shell.connect(control_plane)) as api,
        copy_of(api, namespace) as (copy, _),
    ):
        made = await written(api, namespace, "one", text="a")
        await api.patch(f"{place(namespace)}/one", {"data": {"text": "b"}})
        await shell.until(lambda: texts(copy) == {"one": "b"}, "the change")
        copy.absorb(made)
        assert texts(copy) == {"one": "b"}


async def test_a_silent_stream_is_cut_and_resumed_without_a_new_list(
    control_plane: ControlPlane, namespace: str
) -> None:
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(shell.connect(control_plane)) as api,
        shell.api(shell.connect(control_plane, through=between.entrance)) as watching,
        copy_of(watching, namespace, stall_s=1.0) as (copy, _),
    ):
        await shell.until(lambda: between.count("watch configmaps"), "a watch")
        between.stall()
        await write(api, namespace, one="a")
        await shell.until(lambda: copy.receive_age_s() > 1.0, "silence")
        assert not copy.records
        await shell.until(lambda: between.count("watch configmaps") >= 2, "a second watch")
        between.flow()
        await shell.until(lambda: texts(copy) == {"one": "a"}, "what was missed")
        assert copy.relists == 1


async def test_quiet_streams_end_in_time(control_plane: ControlPlane, namespace: str) -> None:
    """Those of events have no bookmarks, so each must end before it looks dead."""
    assert 2 * start_events.WATCH_S < STALL_S
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(shell.connect(control_plane, through=between.entrance)) as watching,
        copy_of(watching, namespace, watch_s=1) as (copy, _),
    ):
        await shell.until(lambda: between.count("watch configmaps") >= 3, "a third watch")
        assert (copy.errors, copy.relists) == (0, 1)


async def test_a_stream_that_is_cut_misses_nothing(
    control_plane: ControlPlane, namespace: str
) -> None:
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(shell.connect(control_plane)) as api,
        shell.api(shell.connect(control_plane, through=between.entrance)) as watching,
        copy_of(watching, namespace) as (copy, changes),
    ):
        for number in range(5):
            await shell.until(lambda: between.streams, "an open watch")
            between.cut_streams()
            await write(api, namespace, **{f"n{number}": "a"})
        await shell.until(lambda: len(copy.records) == 5, "every object")
        assert len(changes) == 5
        assert copy.relists == 1


@pytest.mark.parametrize(
    ("verb", "code", "lists"),
    [("watch", 410, 2), ("watch", 504, 2), ("watch", 503, 1), ("continue", 410, 3)],
)
async def test_an_answer_that_forbids_to_go_on_leads_to_a_new_list(
    control_plane: ControlPlane, namespace: str, *, verb: str, code: int, lists: int
) -> None:
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(shell.connect(control_plane)) as api,
        shell.api(shell.connect(control_plane, through=between.entrance)) as watching,
    ):
        names = [f"n{number}" for number in range(OBJECTS_MAX + 1)]
        await write_many(api, namespace, names)
        times = 2 if verb == "continue" else 1
        between.fail(f"{verb} configmaps", Reply(code), times=times)
        async with copy_of(watching, namespace) as (copy, changes):
            await write(api, namespace, last="a")
            await shell.until(lambda: len(copy.records) == len(names) + 1, "every object")
            assert copy.relists == lists
            assert len(changes) == len(copy.records)


async def test_expired_versions_lead_to_a_new_list(
    control_plane: ControlPlane, namespace: str
) -> None:
    """410 ends the stream, and the informer lists again."""
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(shell.connect(control_plane)) as api,
        shell.api(shell.connect(control_plane, through=between.entrance)) as watching,
    ):
        await write(api, namespace, gone="a", stays="a")
        async with copy_of(watching, namespace) as (copy, _):
            await shell.until(lambda: between.streams, "an open watch")
            between.stall()
            await api.delete(f"{place(namespace)}/gone")
            await write(api, namespace, new="a")
            await asyncio.to_thread(control_plane.stop_api_server)
            await asyncio.to_thread(control_plane.start_api_server)
            between.cut_streams()
            between.flow()
            await shell.until(lambda: texts(copy) == {"stays": "a", "new": "a"}, "the truth")


async def test_error_events_lead_to_a_new_list_and_never_end_the_watch(
    control_plane: ControlPlane, namespace: str
) -> None:
    """ERROR events with any code are handled so."""
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(shell.connect(control_plane)) as api,
        shell.api(shell.connect(control_plane, through=between.entrance)) as watching,
    ):
        for code in (410, 500):
            event = {"type": "ERROR", "object": {"kind": "Status", "code": code}}
            between.fail("watch configmaps", Reply(200, body=event))
        between.fail("watch configmaps", Reply(200, body={"type": "NEW", "object": 1}))
        async with copy_of(watching, namespace) as (copy, _):
            await shell.until(lambda: copy.relists == 4, "three new lists")
            await write(api, namespace, one="a")
            await shell.until(lambda: texts(copy) == {"one": "a"}, "the change")
            assert copy.errors == 3


async def test_an_object_that_cannot_be_read_is_left_as_it_was(
    control_plane: ControlPlane, namespace: str
) -> None:
    async with (
        shell.api(shell.connect(control_plane)) as api,
        copy_of(api, namespace) as (copy, _),
    ):
        await write(api, namespace, one="a")
        await shell.until(lambda: texts(copy) == {"one": "a"}, "the object")
        await api.patch(f"{place(namespace)}/one", {"data": {"text": UNREADABLE}})
        await write(api, namespace, two="a")
        await shell.until(lambda: texts(copy) == {"one": "a", "two": "a"}, "the other object")
        assert (copy.errors, copy.relists) == (1, 1)


async def test_an_outage_of_the_server_is_survived(
    control_plane: ControlPlane, namespace: str
) -> None:
    async with (
        shell.api(shell.connect(control_plane)) as api,
        copy_of(api, namespace) as (copy, _),
    ):
        await write(api, namespace, one="a")
        await shell.until(lambda: texts(copy) == {"one": "a"}, "the object")
        await asyncio.to_thread(control_plane.stop_api_server)
        try:
            await shell.until(lambda: copy.errors >= 2, "failed attempts")
            assert copy.synced
            assert texts(copy) == {"one": "a"}
        finally:
            await asyncio.to_thread(control_plane.start_api_server)
        await write(api, namespace, two="a")
        await shell.until(lambda: texts(copy) == {"one": "a", "two": "a"}, "both")
