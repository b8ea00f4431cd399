"""A store that was restored from a backup ends the process, whatever else holds a copy together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from random import Random
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from railwright_operator import metrics
from railwright_operator.kube.client import Api
from railwright_operator.watch import records
from railwright_operator.watch.records import PodRecord
from railwright_operator.watch.reflector import Reflector, StoreWentBackError
from worlds.observing import raw_pod


class Restored:
    """Lists of one pod, of these versions one after the other; every watch ends with a 410."""

    def __init__(self, *versions: int) -> None:
        self._versions = list(versions)

    async def get(self, path: str, *, query: Mapping[str, str], deadline_s: float) -> Any:
        version = str(self._versions.pop(0))
        pod = raw_pod("n0", 0, {"phase": "Running"})
        pod["metadata"]["resourceVersion"] = version
        return {"metadata": {"resourceVersion": version}, "items": [pod]}

    async def stream(self, *_: Any, **__: Any) -> AsyncGenerator[bytes, None]:
        yield b'{"type":"ERROR","object":{"code":410}}'


async def test_a_list_from_the_past_ends_the_copy_and_drops_nothing_of_it_before() -> None:
    changes: list[tuple[PodRecord | None, PodRecord | None]] = []
    copy = Reflector(
        cast("Api", Restored(7, 9, 8)),
        "/api/v1/pods",
        kind="pods",
        parse=records.pod,
        on_change=lambda old, new: changes.append((old, new)),
        metrics=metrics.build(CollectorRegistry()).watch,
        clock=asyncio.get_running_loop().time,
        rng=Random(0),
    )
    with pytest.raises(StoreWentBackError, match="pods: from 9 to 8"):
        await asyncio.wait_for(copy.run(), 30)
    assert [new for _, new in changes if new is None] == []
    assert [held.rv for held in copy.records.values()] == [9]
