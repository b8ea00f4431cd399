"""Render the API objects of a ledger entry, from the current version of its job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright_api import names
from railwright_conversion import checkpoints
from railwright_kube import bodies
from railwright_operator.watch.jobs import Jobs
from railwright_operator.write import placement_score, pods, pre_runs
from railwright_scheduler.attempt import resume_points
from railwright_scheduler.attempt.ledger import Entry
from railwright_scheduler.model.snapshot import Purpose

Manifest = Mapping[str, Any]


class Rendering:
    """Looks up jobs for the pure functions that render objects."""

    def __init__(self, jobs: Jobs, *, launcher: pods.Launcher) -> None:
        self._jobs = jobs
        self._launcher = launcher

    def pod(self, entry: Entry, node_rank: int) -> Manifest | None:
        """The pod with this number; None when the job was deleted, or its spec changed."""
        cached = self._jobs.get(entry.job_uid)
        if cached is None or cached.too_large:
            return None
        is_pre_run = entry.purpose is Purpose.PRE_RUN
        if entry.spec_hash != (cached.pre_run_hash if is_pre_run else cached.spec_hash):
            return None
        return pods.render(
            cached.object.whole,
            entry,
            node_rank=node_rank,
            launcher=self._launcher,
            profile_steps=pre_runs.steps(cached, entry),
        )

    def placement(self, entry: Entry, *, epoch: int) -> Manifest | None:
        """The attempt's Placement; None when the job was deleted."""
        cached = self._jobs.get(entry.job_uid)
        if cached is None:
            return None
        is_pre_run = entry.purpose is Purpose.PRE_RUN
        points = () if is_pre_run else cached.record.checkpoints
        resume = resume_points.readable(points, entry.attempt)
        last_termination = cached.record.last_termination
        reason = (
            f"after {last_termination.code}: {last_termination.message}"
            if last_termination
            else "first start"
        )
        spec: dict[str, Any] = {
            "jobUID": entry.job_uid,
            "attempt": entry.attempt,
            "purpose": entry.purpose.value,
            "epoch": epoch,
            "nodes": list(entry.nodes),
            "roles": [{"name": role.name, "replicas": role.replicas} for role in entry.roles],
            "spans": [{"level": level, "domains": count} for level, count in entry.spans],
            "resume": [checkpoints.render(point) for point in resume],
            "topologyHash": entry.topology_hash,
            "reason": reason,
        }
        if entry.score is not None:
            spec["mapping"] = placement_score.render(entry.score)
        name = names.placement_name(entry.job_name, entry.attempt)
        metadata = pods.attempt_metadata(entry, name)
        return bodies.manifest(names.API_VERSION, "Placement", metadata, spec)
