"""The operator's parts, constructed as its process does it."""

from __future__ import annotations

import time
from typing import Any, cast

from prometheus_client import CollectorRegistry

from railwright_operator import metrics
from railwright_operator.settings import Settings
from railwright_operator.wiring import OperatorParts, Runtime


async def test_published_times_are_of_the_calendar() -> None:
    registry = CollectorRegistry()
    parts = OperatorParts(
        cast(Any, None),
        Runtime(),
        Settings(
            launcher_image="launcher",
            url="http://operator",
            address=("", 0),
            probe_address=("", 0),
            namespace="railwright",
            identity="one",
        ),
        registry=registry,
        series=metrics.Metrics(registry),
        is_leader=lambda: True,
        leader_address=str,
        mark_hung=lambda *_: None,
        give_up_lease=lambda: None,
    )
    for each in (parts.events, parts.cycle.reporter, parts.state_builder):
        assert abs(each.wall_clock() - time.time()) < 60
        assert each.clock() < time.time() / 2
