"""Pods are deleted, drained and evicted while they train, and all is blamed on what it was."""

from __future__ import annotations

from collections import Counter

from simulator.run import run

SEEDS = range(8)


def test_ended_pods_are_no_failures_and_all_settles() -> None:
    """Every invariant holds, also of pods that a kubelet which is away cannot end."""
    causes, events = Counter[str](), Counter[str]()
    for seed in SEEDS:
        outcome = run(seed, "evictions")
        causes += Counter(outcome.causes)
        events += Counter(outcome.events)
    assert causes["PodEvicted"] > len(SEEDS)
    assert causes["PodDeleted"] > len(SEEDS)
    assert events["evicted with its node"]
