"""The first stage: a job waits in a queue that exists."""

from __future__ import annotations

from collections.abc import Sequence

from railwright_scheduler.budget import WorkBudget
from railwright_scheduler.model.reasons import QueueNotFound
from railwright_scheduler.policy.candidate import Candidate


class ExistingQueues:
    """Refuses jobs of a queue that does not exist."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = tuple(sorted(set(queues)))

    def check(self, candidate: Candidate, _: WorkBudget) -> Candidate:
        """The same candidate."""
        if (queue := candidate.job.queue) in self._queues:
            return candidate
        return candidate.refused(QueueNotFound(queue, self._queues))
