"""kopf with a watch that is silent while its connection stays open."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

import kopf
import pytest

from fixtures import proxy, shell
from fixtures.api_faults import Fault, Reply
from integration import manifests
from railwright_api import names, routes
from railwright_operator import handlers
from railwright_operator.handlers import KopfThread
from railwright_testbed import ControlPlane

# kopf closes its loop over sockets that still say goodbye; the collector finds them.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@asynccontextmanager
async def followed(kubeconfig: str) -> AsyncIterator[list[str]]:
    """The names of the objects that kopf brings, while it watches."""
    seen: list[str] = []
    watching = KopfThread(
        kubeconfig,
        lambda plural, raw, event: seen.append(raw["metadata"]["name"]),
        clock=time.monotonic,
        rng=Random(0),
    )
    watching.start()
    try:
        yield seen
    finally:
        await asyncio.to_thread(watching.stop, deadline_s=10.0)
        gc.collect()


async def apply(plane: ControlPlane, name: str) -> None:
    async with shell.api(shell.connect(plane)) as api:
        await api.create(routes.kind(names.QUEUES), manifests.cluster_object("Queue", name))


async def test_a_watch_of_kopfs_that_fell_silent_is_left_for_another(
    control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = handlers._settings

    def impatient() -> kopf.OperatorSettings:
        settings = usual()
        assert 0 < (settings.watching.inactivity_timeout or 0) <= 75
        settings.watching.inactivity_timeout = 2
        return settings

    monkeypatch.setattr(handlers, "_settings", impatient)
    async with (
        proxy.in_front_of(control_plane) as between,
        followed(shell.connect(control_plane, through=between.entrance)) as seen,
    ):
        await shell.until(lambda: between.count("watch queues"), "a watch")
        silent = between.fail("event queues", Fault.SILENCE, times=None)
        await apply(control_plane, "unheard")
        await shell.until(lambda: silent.met, "silence")
        watches = between.count("watch queues")
        await shell.until(lambda: between.count("watch queues") > watches, "another")
        silent.lift()
        await shell.until(lambda: "unheard" in seen, "the news")


async def test_kopf_is_started_again_when_an_error_ended_it(control_plane: ControlPlane) -> None:
    async with (
        proxy.in_front_of(control_plane) as between,
        followed(shell.connect(control_plane, through=between.entrance)) as seen,
    ):
        await shell.until(lambda: between.count("watch queues"), "a watch")
        fatal = between.fail("event queues", Reply(500))
        await apply(control_plane, "first")
        await shell.until(lambda: fatal.met, "the error")
        await apply(control_plane, "second")
        await shell.until(lambda: {"first", "second"} <= set(seen), "the news")
