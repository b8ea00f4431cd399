"""The control plane is cut off from all nodes now and then, beside all other faults."""

from __future__ import annotations

from simulator.run import run

SEEDS = 6


def test_cuts_of_the_control_plane_lose_no_living_node() -> None:
    """Invariant I22, with any leader."""
    outcomes = [run(seed, "cuts") for seed in range(SEEDS)]
    assert sum(outcome.events.get("cut", 0) for outcome in outcomes) > SEEDS
    assert sum(outcome.phases.get("Succeeded", 0) for outcome in outcomes) > SEEDS // 4
