"""The operator's parts, constructed as its process does it."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from fixtures import constructed
from railwright_operator import __main__ as operator
from railwright_operator.write import defaults


async def test_published_times_are_of_the_calendar() -> None:
    parts = constructed.operator(CollectorRegistry())
    for each in (parts.events, parts.cycle.reporter, parts.state_builder):
        assert abs(each.wall_clock() - time.time()) < 60
        assert each.clock() < time.time() / 2


async def test_standby_that_gets_the_lease_has_time_for_a_cycle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waited for days, and its first requests take long."""
    parts = constructed.operator(CollectorRegistry())
    parts.cycle._completed_s -= 3 * 86_400
    began, leading = asyncio.Event(), asyncio.Event()

    async def ensure(api: object) -> None:
        began.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(defaults, "ensure", ensure)
    monkeypatch.setattr(parts, "tasks", ())
    monkeypatch.setattr(parts.mapping_requests, "run", began.wait)
    running = asyncio.create_task(parts.run(leading))
    leading.set()
    await began.wait()
    lease = cast(Any, SimpleNamespace(held=lambda: True))
    assert operator._stuck(parts, lease) == []
    parts.cycle._completed_s -= operator.STUCK_S + 1
    assert len(operator._stuck(parts, lease)) == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
