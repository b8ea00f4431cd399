"""I26: which checkpoints later attempts may read, in each write of a record and of a Placement.

The simulator checks this after each such write, and the history checker for a recorded history.
"""

from __future__ import annotations

from collections.abc import Iterator

from railwright_scheduler.attempt.ledger import AttemptKey
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.resume_points import Points


def late_commits(old: JobRecord, new: JobRecord) -> Iterator[str]:
    """The points of a written record that rose after their attempt, or in a pre-run."""
    held = {(point.group, point.attempt): point.step for point in old.checkpoints}
    trains = new.live and new.phase is not Phase.PROFILING
    for point in new.checkpoints:
        rises = point.step > held.get((point.group, point.attempt), -1)
        if rises and not (trains and point.attempt == new.attempt):
            yield f"I26: {point} is recorded, and its attempt is not live: {new}"


def misplaced(
    key: AttemptKey, resume: Points, record: JobRecord, *, is_pre_run: bool
) -> Iterator[str]:
    """Why the resume points of a new Placement are not those of its job's record."""
    earlier = [point for point in record.checkpoints if point.attempt < key[1]]
    if [*resume] != ([] if is_pre_run else earlier):
        yield f"I26: {key} may read {resume}, recorded are {record.checkpoints}"
