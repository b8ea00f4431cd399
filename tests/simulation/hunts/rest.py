"""Mutants that the checks of a cluster at rest catch."""

from __future__ import annotations

from simulation.planted import TEST, Hunt, Mutant

HUNTS = (
    Hunt(
        Mutant(
            "a waiting job gets no reason",
            "report/reporter.py",
            "wait=plan.waits.get(cached.uid),",
            "wait=None,",
            TEST,
        ),
        "all",
        1000,
    ),
)
