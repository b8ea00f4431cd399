"""The operator's parts, constructed as its process does it."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry

from fixtures import constructed


async def test_published_times_are_of_the_calendar() -> None:
    parts = constructed.operator(CollectorRegistry())
    for each in (parts.events, parts.cycle.reporter, parts.state_builder):
        assert abs(each.wall_clock() - time.time()) < 60
        assert each.clock() < time.time() / 2
