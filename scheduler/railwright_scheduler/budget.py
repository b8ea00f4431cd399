"""The work budget of planning, for each job and for all gang splits of a scheduling cycle.

Problem: a job's workload, which users write, determines the amount of computation. A time limit
would bound it, but the core is pure: the same input must give the same plan everywhere.

Idea: work is counted. Loops and array operations spend units by the sizes of their inputs, before
they allocate memory; beyond the limit ``OverBudgetError`` is raised. A search then ends with its
best result so far; without one the job gets the network's order. A unit is a little less than a
nanosecond of one core of 2 to 3 GHz (compared in ``tests/bench/bench_planning.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

PLANNING_WORK = 700_000_000
"""For the choice of one job's nodes and the order of its ranks: about half a second. Gangs of 2,000
nodes, the largest that are mapped today, take half of it."""

TRAFFIC_WORK = 800_000_000
"""For what running jobs send, of those of which it is not known yet: about a second in one cycle,
however many there are."""

PLACEMENT_WORK = 700_000_000
"""For the exact split of gangs over domains, of all jobs of one decision: about half a second. A
gang of 2,400 of 5,000 nodes on three levels takes a 25th of it."""

QUEUE_WORK = 700_000_000
"""For evaluating waiting jobs, of all jobs of one decision: about half a second (``queue_window``).
"""

SEARCH_WORK = 200_000_000
"""For one search for the nodes of a gang of several roles, which ends with the trial that reaches
it: about a fifth of a second. A job takes one for a start and, if that finds nothing, up to three
for a reservation."""

ELEMENT, SORTED = 4, 50
"""For each element of an array: of a few operations on it, and of sorting it."""

CALL = 10_000
"""For a function that makes a few calls of numpy, however small its arrays are."""


SEARCHED, CHOSEN = 80, 50
"""Percent that a search may spend: the rest judges what it found; and the choice of nodes, before
their ranks are laid out."""


class OverBudgetError(Exception):
    """Planning one job would take more work than it may."""


class WorkBudget:
    """What is left for one job. Spending changes it. ``searched`` is the work of searches for gangs
    of several roles (``SEARCH_WORK``), beside what is spent."""

    def __init__(self, limit: int = PLANNING_WORK) -> None:
        self.limit, self.spent, self.searched = limit, 0, 0
        self.is_cut = False

    @property
    def left(self) -> int:
        """The work that is left."""
        return self.limit - self.spent

    @contextmanager
    def search(self, percent: int = SEARCHED) -> Iterator[None]:
        """A budget of at most this part of the remaining work. Work beyond it ends, and ``is_cut``
        is set; the remaining budget is for the use of its result."""
        limit, self.limit = self.limit, self.spent + self.left * percent // 100
        try:
            yield
        except OverBudgetError:
            self.is_cut = True
        finally:
            self.limit = limit

    def spend(self, work: int) -> None:
        """Count work that is about to be done. Raises OverBudgetError if less is left."""
        if work > self.left:
            raise OverBudgetError
        self.spent += work


UNLIMITED = WorkBudget(1 << 62)
"""For commands and benches, which plan one job: more than a century's worth."""
