"""The controllers publish nothing before they lead, and before all of their lists are whole."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from railwright_controllers.wiring import ControllerParts

LISTED, KOPF, PUBLISHED = "listed", "kopf", "published"


class EndedError(Exception):
    """Ends the work at its last step."""


class Informer:
    """An informer whose list is whole once a test says so."""

    def __init__(self, happened: list[str]) -> None:
        self.whole = asyncio.Event()
        self._happened = happened

    async def wait_synced(self) -> None:
        await self.whole.wait()
        self._happened.append(LISTED)


async def test_fabric_of_half_the_nodes_is_never_published() -> None:
    """Lists that are late, and a Lease that is late, delay all that writes."""
    happened: list[str] = []
    informers = [Informer(happened) for _ in range(3)]

    async def publish() -> None:
        happened.append(PUBLISHED)
        raise EndedError

    parts = SimpleNamespace(
        tasks=(),
        leading=(publish,),
        informers=SimpleNamespace(all=tuple(informers)),
        runtime=SimpleNamespace(keep_objects=lambda: None),
    )
    leading = asyncio.Event()
    run = ControllerParts.run(cast(Any, parts), leading, lambda: happened.append(KOPF))
    work = asyncio.create_task(run)
    leading.set()
    for informer in informers[:-1]:
        informer.whole.set()
    await _settle()
    assert happened == [LISTED] * 2
    leading.clear()
    informers[-1].whole.set()
    await _settle()
    assert happened == [LISTED] * 3 + [KOPF]
    leading.set()
    with pytest.raises(ExceptionGroup) as ended:
        await work
    assert ended.group_contains(EndedError)
    assert happened[-1] == PUBLISHED


async def _settle() -> None:
    """Let all tasks go on as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)
