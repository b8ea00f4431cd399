"""Mutants of what the operator reads of pods and nodes that Kubernetes itself ends or changes."""

from __future__ import annotations

from simulation.planted import CONVERSION, TEST, Hunt, Mutant, of_scheduler

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
            "CORDONED if cordoned else None",
            "CORDONED if cordoned and not ready else None",
            TEST,
            package=CONVERSION,
        ),
        "evictions",
        1000,
    ),
)
