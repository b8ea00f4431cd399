"""Gangs commit and recover while leaders, machines and people do their worst, seed by seed."""

from __future__ import annotations

import pytest

from railwright_scheduler.simulator.disturbances import SOMETIMES
from railwright_scheduler.simulator.run import run
from railwright_scheduler.simulator.seeded_random import SeededRandom
from simulation.kept import kept_seeds
from simulation.short_cycles import short_cycles

SEEDS = 240
STEPS = 500


@pytest.mark.parametrize("seed", kept_seeds())
def test_a_seed_that_broke_something_once_holds(seed: int) -> None:
    run(seed, steps=STEPS)


def test_hundreds_of_seeds_keep_every_invariant_and_settle() -> None:
    outcomes = [run(seed, steps=STEPS) for seed in range(SEEDS)]
    assert sum(outcome.steps for outcome in outcomes) == SEEDS * STEPS >= 100_000
    # A run in which nothing can happen proves nothing.
    assert sum(outcome.writes for outcome in outcomes) > 20 * SEEDS
    assert sum(outcome.succeeded for outcome in outcomes) > SEEDS // 2
    assert set().union(*(outcome.counts for outcome in outcomes)) >= {"late", *SOMETIMES}


def test_queue_longer_than_a_cycle_comes_to_rest() -> None:
    """Each cycle evaluates one job at the front, and one where the last cycle stopped."""
    with short_cycles():
        outcomes = [run(seed, steps=STEPS) for seed in range(SEEDS // 4)]
    assert sum(outcome.succeeded for outcome in outcomes) > SEEDS // 8


def test_gangs_of_several_roles_commit_and_settle() -> None:
    """Every invariant holds for jobs of one or two roles, with all other faults."""
    outcomes = [
        run(seed, steps=STEPS, roles=True, hangs=seed % 4 == 2, pre_runs=seed % 3 == 0)
        for seed in range(SEEDS // 2)
    ]
    assert sum(outcome.succeeded for outcome in outcomes) > SEEDS // 4


def test_chance_is_splitmix64() -> None:
    # The numbers that Rosetta Code publishes for this seed.
    source = SeededRandom(1234567)
    assert [source.number() for _ in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_one_seed_is_one_run() -> None:
    assert run(7, steps=STEPS) == run(7, steps=STEPS)
