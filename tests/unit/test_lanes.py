"""Requests that get no answer keep none of the others waiting."""

from __future__ import annotations

import asyncio

import pytest

from fixtures.shell import DEADLINE_S
from railwright_kube import lanes
from railwright_kube.lanes import Lane


async def test_request_without_an_answer_gives_its_place_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lanes, "SLOW_S", 0.0)
    lane = Lane(1)
    async with asyncio.timeout(DEADLINE_S), lane.place(), lane.place(), lane.place():
        pass


async def test_place_is_given_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its request was late, or in time."""
    lane = Lane(1)
    monkeypatch.setattr(lanes, "SLOW_S", 0.0)
    async with asyncio.timeout(DEADLINE_S), lane.place(), lane.place():
        pass
    monkeypatch.setattr(lanes, "SLOW_S", DEADLINE_S)
    async with lane.place():
        pass
    async with lane.place():
        waiting = asyncio.create_task(_visit(lane))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting


async def _visit(lane: Lane) -> None:
    async with lane.place():
        pass
