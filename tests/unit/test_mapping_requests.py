"""Mappings that plans request are computed one at a time, and nobody waits for one that failed."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from railwright_operator import mapping_requests
from railwright_operator.mapping_requests import MappingRequests
from railwright_operator.metrics import MappingMetrics
from railwright_scheduler.mapping import gang_mapping
from railwright_scheduler.mapping.gang_mapping import MappingRequest, MappingResult
from railwright_scheduler.policy.mappings import RequestedMapping, Unmapped
from unit.test_mappings import gang, request, world

DEADLINE_S = 10.0


class Desk:
    """The mappings of an operator, the time, and whether a cycle was woken."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.woken = asyncio.Event()
        self.registry = CollectorRegistry()
        self.mappings = MappingRequests(
            metrics=MappingMetrics(self.registry), clock=lambda: self.now_s, wake=self.woken.set
        )

    async def request(self, requested: RequestedMapping) -> RequestedMapping:
        """Request it, and wait for what becomes of it."""
        self.mappings.update({"a": requested})
        async with asyncio.timeout(DEADLINE_S):
            while self.mappings.state()["a"].outcome is None:
                self.woken.clear()
                await self.woken.wait()
        return self.mappings.state()["a"]

    def counted(self, outcome: str) -> float | None:
        labels = {"outcome": outcome}
        return self.registry.get_sample_value("railwright_mappings_total", labels)


def returning(monkeypatch: pytest.MonkeyPatch, result: object) -> None:
    def computed(asked: MappingRequest) -> object:
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(mapping_requests, "map_ranks", computed)


async def test_a_mapping_is_part_of_the_next_state_with_its_age() -> None:
    desk, requested = Desk(), request(world(gang()))
    found = await desk.request(requested)
    assert found.outcome == gang_mapping.map_ranks(requested.request)
    desk.now_s += 1.5
    assert desk.mappings.state()["a"].age_s == 1.5
    assert desk.counted("Mapped") == 1.0
    desk.mappings.update({})
    assert desk.mappings.state() == {}


async def test_a_mapping_that_raises_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    returning(monkeypatch, ZeroDivisionError("no"))
    desk = Desk()
    assert (await desk.request(request(world(gang())))).outcome is Unmapped.FAILED
    assert desk.counted("MappingFailed") == 1.0


async def test_too_much_work_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    returning(monkeypatch, None)
    assert (await Desk().request(request(world(gang())))).outcome is Unmapped.OVER_BUDGET


@pytest.mark.parametrize("order", [(0,) * 8, tuple(range(1, 9)), tuple(range(7))])
async def test_an_order_that_is_none_has_failed(
    monkeypatch: pytest.MonkeyPatch, order: tuple[int, ...]
) -> None:
    requested = request(world(gang()))
    right = gang_mapping.map_ranks(requested.request)
    assert right is not None
    for wrong in (
        replace(right, order=replace(right.order, order=order)),
        replace(right, choice=99),
    ):
        returning(monkeypatch, wrong)
        assert (await Desk().request(requested)).outcome is Unmapped.FAILED


async def test_another_request_of_the_job_is_as_old(monkeypatch: pytest.MonkeyPatch) -> None:
    returning(monkeypatch, None)
    desk, requested = Desk(), request(world(gang()))
    await desk.request(requested)
    desk.now_s += 1.0
    other = await desk.request(request(world(gang())))
    assert (other.request is requested.request, other.age_s) == (False, 1.0)


async def test_a_request_that_is_over_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    desk, begun, go = Desk(), list[MappingRequest](), threading.Event()

    def computed(asked: MappingRequest) -> MappingResult | None:
        begun.append(asked)
        go.wait(DEADLINE_S)
        return None

    monkeypatch.setattr(mapping_requests, "map_ranks", computed)
    first, other, last = (request(world(gang())) for _ in range(3))
    desk.mappings.update({"a": first, "b": other, "c": last})
    desk.mappings.update({"a": first, "c": last})
    go.set()
    async with asyncio.timeout(DEADLINE_S):
        while not all(each.outcome for each in desk.mappings.state().values()):
            desk.woken.clear()
            await desk.woken.wait()
    assert [each in (first.request, last.request) for each in begun] == [True, True]
