"""The pods of a job, and which of them runs a rank."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from railwright_api import names
from railwright_cli.api_objects import Job, Metadata, Role
from railwright_cli.api_server import CORE
from railwright_cli.errors import UsageError
from railwright_cli.jobs import JobReference


class Container(Struct, frozen=True):
    """A container of a pod."""

    name: str


class PodSpec(Struct, rename="camel", frozen=True):
    """What a pod consists of, and where it is."""

    containers: tuple[Container, ...] = ()
    node_name: str = ""


class PodStatus(Struct, rename="camel", frozen=True):
    """How far a pod is."""

    phase: str = ""
    start_time: datetime | None = None


class Pod(Struct, frozen=True):
    """A pod of a job."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def attempt(self) -> int:
        """The attempt that it is of."""
        return int(self.metadata.labels.get(names.LABEL_ATTEMPT, "0"))

    @property
    def path(self) -> str:
        """Its path."""
        return f"{pods_path(self.metadata.namespace)}/{self.metadata.name}"

    @property
    def is_ended(self) -> bool:
        """Whether its containers have ended for good."""
        return self.status.phase in ("Succeeded", "Failed")


def pods_path(namespace: str) -> str:
    """The pods of a namespace."""
    return f"{CORE}/namespaces/{namespace}/pods"


def pods_of(its: JobReference, job: Job) -> list[Pod]:
    """The pods of a job that are there, of all attempts, the oldest attempt first."""
    selector = f"{names.LABEL_JOB_NAME}={its.name},{names.LABEL_JOB_UID}={job.metadata.uid}"
    found = its.server.items(pods_path(its.namespace), Pod, {"labelSelector": selector})
    return sorted(found, key=lambda pod: (pod.attempt, pod.metadata.name))


def place_of_rank(job: Job, role_name: str, rank: int) -> tuple[Role, int]:
    """The role that runs this RANK, and the index of its pod. Roles of one group count their ranks
    together, in the order of the list; the role is the first one if none is named.

    Raises UsageError with the ranks that there are.
    """
    role = _role(job, role_name)
    group = role.group or role.name
    first = 0
    for each in job.spec.roles:
        if (each.group or each.name) != group:
            continue
        ranks = each.replicas * each.processes_per_replica
        if first <= rank < first + ranks:
            return each, (rank - first) // each.processes_per_replica
        first += ranks
    raise UsageError(f"there is no rank {rank} in group {group}: its ranks are 0 to {first - 1}")


def first_rank(job: Job, role_name: str) -> int:
    """The lowest RANK of a role."""
    role = _role(job, role_name)
    group, first = role.group or role.name, 0
    for each in job.spec.roles:
        if each.name == role.name:
            break
        if (each.group or each.name) == group:
            first += each.replicas * each.processes_per_replica
    return first


def _role(job: Job, name: str) -> Role:
    found = next((each for each in job.spec.roles if name in ("", each.name)), None)
    if found is None:
        existing = ", ".join(each.name for each in job.spec.roles)
        raise UsageError(f"there is no role {name!r}: the job has {existing}")
    return found
