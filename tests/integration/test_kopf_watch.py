"""kopf with a watch that is silent while its connection stays open."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import kopf
import pytest

from fixtures import proxy, shell
from fixtures.api_faults import Fault, Reply
from integration import manifests
from railwright_api import names, routes
from railwright_controllers import handlers
from railwright_controllers.handlers import KopfThread
from railwright_kube import bodies
from railwright_kube.client import Api
from railwright_kube.errors import NotFoundError
from railwright_testbed import ControlPlane

# kopf closes its loop over sockets that still say goodbye; the collector finds them.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

Seen = tuple[Any, str | None]
FABRIC = routes.one(names.FABRICS, names.SINGLETON)


@pytest.fixture(autouse=True)
async def fabric(control_plane: ControlPlane) -> AsyncIterator[None]:
    """A Fabric without levels, which is deleted after the test."""
    async with shell.api(shell.connect(control_plane)) as api:
        await delete(api)
        await api.create(routes.kind(names.FABRICS), manifests.cluster_object("Fabric"))
        yield
        await delete(api)


async def delete(api: Api) -> None:
    with contextlib.suppress(NotFoundError):
        found = await api.get(FABRIC)
        await api.delete(FABRIC, bodies.deletion(found["metadata"]["uid"]))


@asynccontextmanager
async def followed(kubeconfig: str) -> AsyncIterator[list[Seen]]:
    """The levels of the Fabric, and the type of each event that kopf brings while it watches."""
    seen: list[Seen] = []
    watching = KopfThread(
        kubeconfig,
        lambda raw, event: seen.append((raw["spec"].get("levels"), event)),
        clock=time.monotonic,
        rng=Random(0),
    )
    watching.start()
    try:
        yield seen
    finally:
        await asyncio.to_thread(watching.stop, deadline_s=10.0)
        gc.collect()


async def set_level(plane: ControlPlane, level: str) -> None:
    async with shell.api(shell.connect(plane)) as api:
        await api.patch(FABRIC, {"spec": {"levels": [level]}})


async def test_changes_and_the_deletion_of_the_fabric_are_seen(
    control_plane: ControlPlane,
) -> None:
    async with followed(shell.connect(control_plane)) as seen:
        await shell.until(lambda: (None, None) in seen, "the list")
        await set_level(control_plane, "rack")
        await shell.until(lambda: (["rack"], "MODIFIED") in seen, "the change")
        async with shell.api(shell.connect(control_plane)) as api:
            await delete(api)
        await shell.until(lambda: (["rack"], "DELETED") in seen, "the deletion")


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
        await shell.until(lambda: between.count("watch fabrics"), "a watch")
        silent = between.fail("event fabrics", Fault.SILENCE, times=None)
        await set_level(control_plane, "rack")
        await shell.until(lambda: silent.met, "silence")
        watches = between.count("watch fabrics")
        await shell.until(lambda: between.count("watch fabrics") > watches, "another")
        silent.lift()
        await shell.until(lambda: ["rack"] in [levels for levels, _ in seen], "the change")


async def test_kopf_is_started_again_when_an_error_ended_it(control_plane: ControlPlane) -> None:
    async with (
        proxy.in_front_of(control_plane) as between,
        followed(shell.connect(control_plane, through=between.entrance)) as seen,
    ):
        await shell.until(lambda: between.count("watch fabrics"), "a watch")
        fatal = between.fail("event fabrics", Reply(500))
        await set_level(control_plane, "first")
        await shell.until(lambda: fatal.met, "the error")
        await shell.until(lambda: (["first"], None) in seen, "the list of another run")
        await set_level(control_plane, "second")
        await shell.until(lambda: (["second"], "MODIFIED") in seen, "the change")
