"""The order of the queue: one order for all jobs, so that no job is overtaken forever; and the
first stage, as a job waits in a queue that exists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from railwright_scheduler.budget import WorkBudget
from railwright_scheduler.model.reasons import QueueNotFound
from railwright_scheduler.model.snapshot import Job, QueuePosition
from railwright_scheduler.policy.candidate import Candidate


def by_priority(jobs: Iterable[Job]) -> list[Job]:
    """Sort by priority (high first), then by age (old first), then by uid."""
    return sorted(jobs, key=position)


def position(job: Job) -> QueuePosition:
    """Where the job is in the queue."""
    return -job.priority, job.submitted_s, job.uid


class ExistingQueues:
    """Refuses jobs of a queue that does not exist."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(sorted(set(queues)))

    def check(self, candidate: Candidate, _: WorkBudget) -> Candidate:
        """The same candidate."""
        if (queue := candidate.job.queue) in self._queues:
            return candidate
        return candidate.refused(QueueNotFound(queue=queue, existing=self._queues))
