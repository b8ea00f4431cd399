"""What kopf does with a watch that says nothing any more while its connection stands."""

from __future__ import annotations

import asyncio
import time
from random import Random

import kopf
import pytest

from integration import manifests
from railwright_api import names
from railwright_operator import handlers
from railwright_operator.handlers import KopfThread
from railwright_operator.kube import paths
from railwright_testbed import ControlPlane
from worlds import proxy, shell
from worlds.api_faults import Fault


async def test_a_watch_of_kopfs_that_fell_silent_is_left_for_another(
    control_plane: ControlPlane, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, seen = handlers._settings, []

    def impatient() -> kopf.OperatorSettings:
        settings = usual()
        assert 0 < (settings.watching.inactivity_timeout or 0) <= 75
        settings.watching.inactivity_timeout = 2
        return settings

    monkeypatch.setattr(handlers, "_settings", impatient)
    async with (
        proxy.in_front_of(control_plane) as between,
        shell.api(shell.connect(control_plane)) as api,
    ):
        watching = KopfThread(
            shell.connect(control_plane, through=between.entrance),
            lambda plural, raw, event: seen.append(raw["metadata"]["name"]),
            clock=time.monotonic,
            rng=Random(0),
        )
        watching.start()
        try:
            await shell.until(lambda: between.count("watch trainingjobs"), "a watch")
            silent = between.fail("event trainingjobs", Fault.SILENCE, times=None)
            job = manifests.job("unheard")
            await api.create(paths.kind(names.TRAINING_JOBS, namespace), job)
            await shell.until(lambda: silent.met, "silence")
            watches = between.count("watch trainingjobs")
            await shell.until(
                lambda: between.count("watch trainingjobs") > watches, "another watch"
            )
            silent.lift()
            await shell.until(lambda: "unheard" in seen, "the news")
        finally:
            await asyncio.to_thread(watching.stop, deadline_s=10.0)
