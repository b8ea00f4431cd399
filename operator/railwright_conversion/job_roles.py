"""Convert the roles of a TrainingJob, with what their pods request and what their ranks train."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from railwright_api import schema
from railwright_api.quantities import QuantityError
from railwright_api.training_job import TrainingJob
from railwright_api.workload import Parallelism
from railwright_api.workload import Workload as Stated
from railwright_conversion import (
    amounts,
    node_affinities,
    tolerations,
    topology_constraints,
    workloads,
)
from railwright_scheduler.model.reasons import RuntimeClassRefused
from railwright_scheduler.model.snapshot import Amounts, Role
from railwright_scheduler.model.workload import Workload

logger = logging.getLogger(__name__)

RESOURCES_MAX = 32
"""The limit of the ledger for one entry."""


class RecordedProfile(Protocol):
    """What the ranks of a job recorded, and the parallelism that it stated then."""

    @property
    def document(self) -> str: ...

    @property
    def parallelism(self) -> dict[str, Any] | None: ...


class RuntimeClass(Protocol):
    """What the API server adds to pods of a RuntimeClass."""

    @property
    def name(self) -> str: ...

    @property
    def overhead(self) -> Mapping[str, Any]: ...

    @property
    def scheduling(self) -> Mapping[str, Any]: ...


def convert(
    job: TrainingJob, index: int, pod: Mapping[str, Any], recorded: RecordedProfile | None
) -> Role:
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
        workload=workload(job, recorded) if is_training else None,
        constraints=topology_constraints.convert(role.topology or job.spec.topology),
        shares_topology=role.topology is None,
    )


def with_runtime_classes(
    roles: Sequence[Role], classes: Sequence[RuntimeClass | None]
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


def _with_runtime_class(role: Role, found: RuntimeClass) -> Role:
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


def workload(job: TrainingJob, recorded: RecordedProfile | None) -> Workload | None:
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


def _check_parallelism(stored: Stated | None, recorded: RecordedProfile) -> None:
    """Raise ValueError for a profile of another parallelism."""
    if stored is None or recorded.parallelism is None:
        return
    then = schema.read(Parallelism, recorded.parallelism)
    if then.fixed != stored.parallelism.fixed:
        raise ValueError(f"it is of parallelism {then}, and the job has {stored.parallelism}")
