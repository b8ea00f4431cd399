"""Mutants of what the operator reads of pods and nodes that Kubernetes itself ends or changes."""

from __future__ import annotations

from simulation.planted import TEST, Hunt, Mutant, of_scheduler

HUNTS = (
    of_scheduler(
        "an exit by SIGTERM is a crash",
        "attempt/assessment.py",
        "crash.age_s <= REMOVAL_S",
        "crash.age_s < 0",
        "evictions",
        1003,
    ),
    Hunt(
        Mutant(
            "an evicted pod's exit is a crash",
            "liveness.py",
            'return pod.disruption or (pod.reason if failed else "")',
            'return pod.reason if failed else ""',
            TEST,
        ),
        "evictions",
        1001,
    ),
    Hunt(
        Mutant(
            "a cordoned node is available",
            "machines.py",
            "    elif record.cordoned:\n",
            "    elif record.cordoned and not record.ready:\n",
            TEST,
        ),
        "evictions",
        1000,
    ),
)
