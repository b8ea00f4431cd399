"""A queue that is longer than what one scheduling cycle evaluates."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import pytest

from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.policy.decide import decide
from railwright_scheduler.policy.queue_window import QueueWindow
from simulator.run import run

SEEDS = range(12)


def test_queue_longer_than_a_cycle_comes_to_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cycle evaluates one job at the front, and one where the last cycle stopped."""
    stopped: list[object] = []
    plan = scheduling.plan

    def observed(*given: Any) -> Any:
        made = plan(*given)
        stopped.extend([] if made.queue_round is None else [made.queue_round])
        return made

    monkeypatch.setattr(scheduling, "plan", observed)
    one_at_the_front = functools.partial(QueueWindow, limit=1)
    monkeypatch.setitem(decide.__globals__, "QueueWindow", one_at_the_front)
    phases = Counter[str]()
    for seed in SEEDS:
        phases += Counter(run(seed, "queue").phases)
    assert len(stopped) > 20 * len(SEEDS)
    assert phases[Phase.SUCCEEDED] > 2 * len(SEEDS)
