"""The operator's own parts hold every invariant in simulated time, among all faults."""

from __future__ import annotations

from collections import Counter

import pytest

from simulation import shell_hunts
from simulation.shell_hunts import HUNTS, Hunt
from simulator import shell_run
from simulator.disturbances import SOMETIMES

SEEDS = range(45)
KEPT = (58, 1005, 8_000_076)
"""Seeds that failed once without a mutant, by faults of the simulation. A seed is another run once
the simulation changes."""

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
    for seed in (*SEEDS, *KEPT):
        outcome = shell_run.run(seed)
        requests += sum(outcome.requests.values())
        causes += Counter(outcome.causes)
        events += Counter(outcome.events)
    # A run in which nothing happens shows nothing.
    assert requests >= 10_000
    assert causes.keys() >= CAUSES
    assert events.keys() >= {"job created", *SOMETIMES}


def test_one_seed_is_one_run_in_any_process() -> None:
    """Also where the order of sets of strings is another one."""
    digests = {shell_hunts.digest(seed=7, hash_seed=hash_seed) for hash_seed in (1, 2)}
    assert digests == {shell_run.run(7).digest}


@pytest.mark.parametrize("hunt", CAUGHT, ids=lambda hunt: hunt.mutant.name)
def test_mutant_is_caught_by_its_seed(hunt: Hunt) -> None:
    assert shell_hunts.is_caught(hunt.mutant, hunt.seed)


def test_unchanged_copy_is_not_caught() -> None:
    assert not shell_hunts.is_caught(None, CAUGHT[0].seed)
