"""What an entry of the ledger becomes in the API, from its job as it stands now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright_operator.watch.jobs import Jobs
from railwright_operator.write import placements, pods, pre_runs
from railwright_scheduler.attempt.ledger import Entry
from railwright_scheduler.attempt.record import JobRecord

Manifest = Mapping[str, Any]


class Rendering:
    """Looks jobs up for the pure functions that make objects."""

    def __init__(self, jobs: Jobs, *, launcher: pods.Launcher) -> None:
        self._jobs = jobs
        self._launcher = launcher

    def pod(self, entry: Entry, node_rank: int) -> Manifest | None:
        """The pod of one node rank; None when the job is gone, or not the one decided about."""
        known = self._jobs.get(entry.job_uid)
        if known is None or known.shape != entry.shape or known.too_large:
            return None
        return pods.render(
            known.object.whole,
            entry,
            node_rank=node_rank,
            launcher=self._launcher,
            profile_steps=pre_runs.steps(known, aside=_is_aside(entry)),
        )

    def placement(self, entry: Entry, *, epoch: int) -> Manifest | None:
        """The attempt's Placement; None when the job is gone."""
        known = self._jobs.get(entry.job_uid)
        if known is None:
            return None
        points = known.record.checkpoints
        return placements.render(
            entry,
            epoch=epoch,
            resume=tuple(point for point in points if point.attempt < entry.attempt),
            why=_why(known.record),
        )


def _is_aside(entry: Entry) -> bool:
    """Whether what was recorded was taken on other devices than its nodes have."""
    return entry.merits is not None and entry.merits.other_devices != ()


def _why(record: JobRecord) -> str:
    if record.last_end is None:
        return "first start"
    return f"after {record.last_end.code}: {record.last_end.message}"
