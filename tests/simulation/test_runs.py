"""The operator's own parts hold every invariant in simulated time, among all faults."""

from __future__ import annotations

from collections import Counter

import pytest

from simulation import hunting, kept_seeds
from simulation.hunts import HUNTS
from simulation.planted import Hunt
from simulator.emphasis import ALL, TURNS, of_seed
from simulator.run import run

SEEDS = range(4 * len(TURNS))
"""The emphases take turns."""

CAUSES = {
    "CommitRefused",
    "Hung",
    "JobDeleted",
    "NodeLost",
    "PodDeleted",
    "RankFailed",
    "Suspended",
}
CAUGHT = HUNTS[:3]


def test_seeds_hold_every_invariant() -> None:
    requests, causes, events = 0, Counter[str](), Counter[str]()
    for emphasis, seed in (*((of_seed(seed), seed) for seed in SEEDS), *kept_seeds.runs()):
        outcome = run(seed, emphasis)
        requests += sum(outcome.requests.values())
        causes += Counter(outcome.causes)
        events += Counter(outcome.events)
    # A run in which nothing happens shows nothing.
    assert requests >= 10_000
    assert causes.keys() >= CAUSES
    assert events.keys() >= ALL.weights.keys()


def test_one_seed_is_one_run_in_any_process() -> None:
    """Also where the order of sets of strings is another one."""
    digests = {hunting.digest("all", 7, hash_seed=hash_seed) for hash_seed in (1, 2)}
    assert digests == {run(7, "all").digest}


@pytest.mark.parametrize("hunt", CAUGHT, ids=lambda hunt: hunt.mutant.name)
def test_mutant_is_caught_by_its_seed(hunt: Hunt) -> None:
    assert hunting.is_caught(hunt)
