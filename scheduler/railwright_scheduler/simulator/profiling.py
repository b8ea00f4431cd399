"""Pre-runs, in the runs that ask for them: which jobs want one, and when one has recorded.

In other runs no job wants any.
"""

from __future__ import annotations

from dataclasses import replace

from railwright_scheduler.attempt.ledger import AttemptKey
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.model.workload import Parallelism, Workload
from railwright_scheduler.simulator.network import RANKS_PER_NODE, workload_of
from railwright_scheduler.simulator.objects import JobObject
from railwright_scheduler.simulator.seeded_random import SeededRandom
from railwright_scheduler.simulator.tables import Table

WANTED_PERMILLE = 700
RECORDS_PERMILLE = 500
CHANGES_PERMILLE = 30


class PreRuns:
    """What users and ranks do about pre-runs, drawn from a random source of its own."""

    def __init__(self, rng: SeededRandom | None = None) -> None:
        self._random = rng

    def is_wanted(self) -> bool:
        """Whether the user of a new job wants one."""
        return self._random is not None and self._random.happens(WANTED_PERMILLE)

    def workload(self, num_nodes: int) -> Workload | None:
        """What a job of so many nodes does: one node, or two, can stand for it."""
        if self._random is None or num_nodes == 1:
            return None
        if num_nodes == 2:
            return workload_of(Parallelism(data=num_nodes * RANKS_PER_NODE))
        return workload_of(Parallelism(tensor=RANKS_PER_NODE, data=num_nodes))

    def pass_time(self, jobs: Table[str, JobObject]) -> str:
        """A user may change his mind, or what the job does: then its profile no longer fits."""
        rng = self._random
        if rng is None or not jobs.objects or not rng.happens(CHANGES_PERMILLE):
            return ""
        job = rng.pick(list(jobs.objects.values()))
        is_wanted = rng.happens(WANTED_PERMILLE)
        jobs.put(job.uid, replace(job, wants_pre_run=is_wanted, profiled=False))
        return f"{job.uid} wants a pre-run: {is_wanted}"

    def record(self, jobs: Table[str, JobObject], key: AttemptKey) -> bool:
        """Whether the ranks of this attempt, which are about to end, have recorded now: a leader
        wrote the Profile of their job."""
        job = jobs.objects.get(key[0])
        if self._random is None or job is None or job.profiled:
            return False
        is_live = job.record.phase is Phase.PROFILING and job.record.attempt == key[1]
        if not is_live or not self._random.happens(RECORDS_PERMILLE):
            return False
        jobs.put(job.uid, replace(job, profiled=True))
        return True
