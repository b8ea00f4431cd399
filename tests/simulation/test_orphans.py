"""Pods of jobs that do not exist are bound beside others: double bookings, and then rest."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.live_invariants import DoubleBooking
from simulator.machines import GPU
from simulator.run import run

SEEDS = range(8)


def test_double_booked_nodes_get_nothing_and_all_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every invariant holds in hundreds of plans with a double booking."""
    booked: list[DoubleBooking] = []
    plan = scheduling.plan

    def observed(*given: Any) -> Any:
        made = plan(*given)
        booked.extend(made.double_bookings)
        return made

    monkeypatch.setattr(scheduling, "plan", observed)
    phases = Counter[str]()
    for seed in SEEDS:
        phases += Counter(run(seed, "orphans").phases)
    assert len(booked) > 20 * len(SEEDS)
    assert {GPU} == {each.resource for each in booked}
    assert phases[Phase.SUCCEEDED] > len(SEEDS) // 3
