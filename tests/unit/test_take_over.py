"""A new leader raises the ledger's epoch before it lists what it acts on."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from railwright_kube.reflector import Reflector
from railwright_kube.watching import Watching
from railwright_operator import metrics
from railwright_operator.informers import Informers
from railwright_operator.watch.interconnect import InterconnectCache
from railwright_operator.wiring import OperatorParts
from railwright_operator.write import defaults, rendering
from railwright_process.replica import Runtime

LEADS, TOOK_OVER, MAPPER, TOPOLOGY, CYCLE = "leads", "took over", "mapper", "topology", "cycle"
KEPT, CERTIFICATE = "objects kept", "certificate"


class EndedError(Exception):
    """The first cycle would begin now."""


class Cycle:
    """Records its take-over, which takes a while, and the begin of its first cycle."""

    def __init__(self, order: list[str]) -> None:
        self._order = order

    def started_leading(self) -> None:
        self._order.append(LEADS)

    async def take_over(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        self._order.append(TOOK_OVER)

    async def run(self) -> None:
        self._order.append(CYCLE)
        raise EndedError


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, in order: each list by its kind; nothing asks an API server."""
    happened: list[str] = []

    async def lists(copy: Reflector[Any]) -> None:
        happened.append(copy.kind)
        copy._first_list.set()

    async def nothing(*_: object) -> None:
        """No API server is there."""

    async def waits(cache: InterconnectCache, timeout_s: float) -> None:
        happened.append(TOPOLOGY)

    monkeypatch.setattr(Reflector, "run", lists)
    monkeypatch.setattr(InterconnectCache, "wait_first", waits)
    monkeypatch.setattr(defaults, "ensure", nothing)
    return happened


async def test_pods_and_jobs_are_listed_after_the_take_over(order: list[str]) -> None:
    series = metrics.Metrics(CollectorRegistry()).watch
    watched = Informers(
        Watching(cast(Any, None), series, lambda: 0.0, lambda: Random(0)),
        launcher=rendering.Launcher("launcher", "http://operator"),
        reception_clock=lambda: 0.0,
    )
    warm = [copy.run for copy in watched.warm]

    async def map_ranks() -> None:
        order.append(MAPPER)

    async def has_certificate() -> None:
        order.append(CERTIFICATE)

    parts = SimpleNamespace(
        api=None,
        runtime=Runtime(keep_objects=lambda: order.append(KEPT)),
        cycle=Cycle(order),
        informers=watched,
        tasks=warm,
        leading=(),
        mapping_requests=SimpleNamespace(run=map_ranks),
        certificates=SimpleNamespace(wait_available=has_certificate),
    )
    leading = asyncio.Event()
    leading.set()
    async with asyncio.timeout(10):
        with pytest.raises(ExceptionGroup) as ended:
            await OperatorParts.run(cast(Any, parts), leading)
    assert ended.group_contains(EndedError)
    taken = order.index(TOOK_OVER)
    assert {"Pod", "TrainingJob", "Placement", "Queue"} <= {*order[taken:]} - {*order[:taken]}
    assert order.count(LEADS) == 1
    assert LEADS in order[:taken]
    assert MAPPER in order[:taken]  # Its processes start meanwhile.
    assert {"Node", "NodeHealth", "Fabric"} <= {*order[:taken]}
    assert order[-4:] == [KEPT, CERTIFICATE, TOPOLOGY, CYCLE]
