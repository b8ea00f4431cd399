"""A queue that is longer than what one scheduling cycle evaluates."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.phases import Phase
from simulation.short_cycles import short_cycles
from simulator.run import run

SEEDS = range(6)


def test_queue_longer_than_a_cycle_comes_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cycle evaluates one job at the front, and one where the last cycle stopped."""
    stopped: list[object] = []
    plan = scheduling.plan

    def observed(*given: Any) -> Any:
        made = plan(*given)
        stopped.extend([] if made.queue_round is None else [made.queue_round])
        return made

    monkeypatch.setattr(scheduling, "plan", observed)
    phases = Counter[str]()
    with short_cycles():
        for seed in SEEDS:
            phases += Counter(run(seed, "queue").phases)
    assert len(stopped) > 20 * len(SEEDS)
    assert phases[Phase.SUCCEEDED] > 2 * len(SEEDS)
