"""The controllers' own parts in simulated time: what they published stays, and jobs go on."""

from __future__ import annotations

from collections import Counter

from simulation import hunting
from simulator.emphasis import CONTROLLERS
from simulator.run import run

SEEDS = (*range(1000, 1010), 1_000_019)
"""In the last one the controllers are killed in a step of their own."""


def test_killed_controllers_lose_no_fact() -> None:
    """I31, of every version of the Fabric and of NodeHealths, and all invariants of jobs."""
    events, phases = Counter[str](), Counter[str]()
    compared = left_out = 0
    for seed in SEEDS:
        outcome = run(seed, CONTROLLERS.name)
        events += Counter(outcome.events)
        phases += Counter(outcome.phases)
        compared += outcome.compared
        left_out += outcome.left_out
    # A run in which nothing happens shows nothing.
    assert events.keys() >= CONTROLLERS.weights.keys()
    assert phases["Succeeded"] >= 5
    assert compared >= 150
    assert left_out == 0


def test_run_with_a_site_is_one_run_in_any_process() -> None:
    digests = {hunting.digest(CONTROLLERS.name, 1003, hash_seed=each) for each in (1, 2)}
    assert digests == {run(1003, CONTROLLERS.name).digest}
