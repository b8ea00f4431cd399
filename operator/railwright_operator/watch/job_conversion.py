"""Convert a TrainingJob to values of the core: its roles by its spec, its record by its status.

The roles have what their pods request and what their ranks train.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from railwright_api import schema
from railwright_api.quantities import QuantityError
from railwright_api.training_job import TrainingJob
from railwright_api.workload import Parallelism
from railwright_api.workload import Workload as Stated
from railwright_conversion import (
    checkpoints,
    node_affinities,
    times,
    tolerations,
    topology_constraints,
    workloads,
)
from railwright_operator.watch import causes
from railwright_operator.watch.owned import ProfileRecord
from railwright_scheduler.attempt.causes import Cause
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord, PreRunRecord
from railwright_scheduler.model.reasons import RuntimeClassRefused
from railwright_scheduler.model.snapshot import Amounts, Role
from railwright_scheduler.model.workload import Workload
from railwright_watch import amounts
from railwright_watch.cluster_objects import SiteObject

logger = logging.getLogger(__name__)

Raw = Mapping[str, Any]

RESOURCES_MAX = 32
"""The limit of the ledger for one entry."""

ATTEMPT_MAX = 999_999
"""Two months with an attempt every five seconds. Names of pods have room for these digits."""


def role_of(job: TrainingJob, index: int, pod: Raw, recorded: ProfileRecord | None) -> Role:
    """Convert the role with this index, one of whose pods is rendered as ``pod``; ``recorded`` is
    the job's recorded profile. Raises ValueError."""
    role = job.spec.roles[index]
    is_training = role is job.spec.training_role
    return Role(
        replicas=role.replicas,
        per_pod=_checked(amounts.requested(amounts.asked(pod))),
        name=role.name,
        group=role.group or role.name,
        selector=pod.get("nodeSelector", {}),
        affinity=node_affinities.convert(pod),
        tolerations=tolerations.convert(pod),
        ranks_per_pod=role.processes_per_replica,
        workload=workload_of(job, recorded) if is_training else None,
        constraints=topology_constraints.convert(role.topology or job.spec.topology),
        shares_topology=role.topology is None,
    )


def with_runtime_classes(
    roles: Sequence[Role], classes: Sequence[SiteObject | None]
) -> tuple[tuple[Role, ...], RuntimeClassRefused | None]:
    """The roles with what the API server adds to their pods by the RuntimeClass of each, None for
    no class; and why it would refuse pods, or the ledger what they request. A role of which no pod
    can be created stays as it is, as its pods that run were created before."""
    refused: RuntimeClassRefused | None = None
    added: list[Role] = []
    for role, found in zip(roles, classes, strict=True):
        if found is None:
            added.append(role)
            continue
        try:
            added.append(_with_runtime_class(role, found))
        except ValueError as error:
            refused = RuntimeClassRefused(found.name, str(error))
            added.append(role)
    return tuple(added), refused


def _with_runtime_class(role: Role, found: SiteObject) -> Role:
    """Raises ValueError."""
    selector = found.scheduling.get("nodeSelector", {})
    for label, value in selector.items():
        if role.selector.get(label, value) != value:
            raise ValueError(
                f"it selects nodes with {label}={value}, and the role {role.name!r} those with "
                f"{label}={role.selector[label]}"
            )
    fixed = found.overhead.get("podFixed", {})
    return replace(
        role,
        per_pod=_checked(amounts.with_overhead(role.per_pod, fixed)),
        selector={**role.selector, **selector},
        tolerations=(*role.tolerations, *tolerations.convert(found.scheduling)),
    )


def _checked(per_pod: Amounts) -> Amounts:
    if (count := len(per_pod)) > RESOURCES_MAX:
        raise QuantityError(f"its pods request {count} resources, at most {RESOURCES_MAX}")
    return per_pod


def workload_of(job: TrainingJob, recorded: ProfileRecord | None) -> Workload | None:
    """The workload, with the profile of the spec, or else the recorded one if that fits the
    parallelism; otherwise the next attempt records a new one. A job that states none has what was
    recorded of it. Raises ValueError."""
    stored, ranks = job.spec.workload, job.spec.training_role.ranks
    servers = job.spec.server_role.ranks if job.spec.server_role else 0
    if recorded and not (stored and stored.profile):
        try:
            _check_parallelism(stored, recorded)
            return workloads.convert(stored, ranks, recorded.document, servers=servers)
        except ValueError as error:
            logger.info("recorded profile dropped", extra={"why": str(error)})
    return workloads.convert(stored, ranks, servers=servers)


def _check_parallelism(stored: Stated | None, recorded: ProfileRecord) -> None:
    """Raise ValueError for a profile of another parallelism."""
    if stored is None or recorded.parallelism is None:
        return
    then = schema.read(Parallelism, recorded.parallelism)
    if then.fixed != stored.parallelism.fixed:
        raise ValueError(f"it is of parallelism {then}, and the job has {stored.parallelism}")


class StatusError(ValueError):
    """A status that the operator does not write."""

    def __init__(self, what: str) -> None:
        super().__init__(f"its status was not written by the operator: {what}")


def record_of(raw: Raw) -> JobRecord:
    """The record in a job's status; a job without one is new. The nodes of a live attempt are in
    its Placement.

    Raises ValueError for a status that the operator does not write.
    """
    status = raw.get("status") or {}
    last_termination = status.get("lastTermination")
    points, pre_run = status.get("checkpoints", ()), status.get("preRun")
    started = status.get("startedAt")
    record = JobRecord(
        phase=_phase(status),
        attempt=status.get("attempt", 0),
        ended=status.get("endedAttempt", 0),
        spec_hash=status.get("specHash", ""),
        moves=status.get("moves", 0),
        restarts=status.get("restarts", 0),
        failures=status.get("failures", 0),
        failure_times_s=tuple(map(times.parse, status.get("failureTimes", ()))),
        start_failures=status.get("startFailures", 0),
        hangs=status.get("hangs", 0),
        last_termination=None if last_termination is None else _cause(last_termination),
        checkpoints=tuple(map(checkpoints.parse, points)),
        pre_run=pre_run
        and PreRunRecord(pre_run["specHash"], pre_run["attempts"], pre_run.get("message", "")),
        started_s=None if started is None else times.parse(started),
    )
    _check(record)
    return record


def _phase(status: Raw) -> Phase:
    """The phase. A phase of a later version is mapped to one of this version.

    A live attempt counts as starting until its launchers report that it runs, a finished job as
    failed, and any other as queued. Raises ValueError for a value that is not a string.
    """
    value = status.get("phase", Phase.QUEUED.value)
    if not isinstance(value, str):
        raise StatusError(f"phase is {value!r}, expected a string")
    if value in list(Phase):
        return Phase(value)
    if status.get("attempt", 0) > status.get("endedAttempt", 0):
        return Phase.STARTING
    return Phase.FAILED if status.get("finishedAt") else Phase.QUEUED


def _check(record: JobRecord) -> None:
    """Refuse a record that contradicts itself."""
    live = record.phase in (Phase.PROFILING, Phase.STARTING, Phase.RUNNING)
    if record.attempt != record.ended + live:
        expected = "the one after endedAttempt" if live else "endedAttempt"
        raise StatusError(
            f"phase {record.phase} with attempt {record.attempt} and endedAttempt {record.ended}, "
            f"expected attempt to be {expected}"
        )
    if record.attempt > ATTEMPT_MAX:
        raise StatusError(f"attempt is {record.attempt}, expected at most {ATTEMPT_MAX}")


def _cause(last_termination: Raw) -> Cause:
    return causes.parse({**last_termination, "code": last_termination["cause"]})
