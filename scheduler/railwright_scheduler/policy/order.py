"""The order of the jobs: one order through all queues, so that no job is overtaken forever."""

from __future__ import annotations

from collections.abc import Iterable

from railwright_scheduler.model.snapshot import Job, QueuePosition


def by_priority(jobs: Iterable[Job]) -> list[Job]:
    """Sort by priority (high first), then by age (old first), then by uid."""
    return sorted(jobs, key=position)


def position(job: Job) -> QueuePosition:
    """Where the job is in the queue."""
    return -job.priority, job.submitted_s, job.uid
