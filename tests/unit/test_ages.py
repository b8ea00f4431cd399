"""Ages of facts, on a clock that the test moves."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from railwright_operator.watch.ages import Ages


@dataclass
class Clock:
    """Monotonic seconds, moved by hand."""

    now_s: float = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_fact_is_new_when_first_seen_and_ages_with_the_clock() -> None:
    clock = Clock()
    ages = Ages(clock)
    assert ages.of("unready", "n0") == 0.0
    clock.now_s += 7.5
    ages.begin_cycle()
    assert ages.of("unready", "n0") == 7.5
    assert ages.of("unready", "n1") == 0.0


def test_no_fact_is_younger_than_new_however_the_clock_runs() -> None:
    """An age below 0 is below every limit, so a job without a back-off would still wait."""
    ticks = itertools.count()
    ages = Ages(lambda: float(next(ticks)))
    ages.begin_cycle()
    assert ages.of("ended", "job", 0) == ages.of("ended", "other", 0) == 0.0


def test_fact_in_every_cycle_keeps_its_age() -> None:
    clock = Clock()
    ages = Ages(clock)
    for _ in range(3):
        ages.begin_cycle()
        ages.of("bound", "job", 1)
        ages.end_cycle()
        clock.now_s += 1.0
    ages.begin_cycle()
    assert ages.of("bound", "job", 1) == 3.0


def test_fact_that_missed_a_cycle_begins_again() -> None:
    clock = Clock()
    ages = Ages(clock)
    ages.of("unready", "n0")
    ages.end_cycle()
    clock.now_s += 5.0
    ages.end_cycle()
    assert ages.of("unready", "n0") == 0.0
    assert repr(ages) == "<Ages facts=1>"
