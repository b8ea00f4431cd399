"""Mutants that the checks of a cluster at rest catch, and those of what requests cost."""

from __future__ import annotations

from simulation.planted import TEST, Hunt, Mutant, of_scheduler

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
    of_scheduler(
        "pods are deleted again and again",
        "attempt/gang.py",
        "for pod in live if not pod.deleting)",
        "for pod in live)",
        "all",
        1026,
    ),
    of_scheduler(
        "the commit of a deleted job goes on",
        "cancellation.py",
        "        return _DELETED\n",
        "        return None\n",
        "all",
        1016,
    ),
)
