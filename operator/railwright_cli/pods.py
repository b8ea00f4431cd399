"""The pods of a job, and which of them runs a rank."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from railwright_api import names
from railwright_cli.api_objects import JobView, PodView, RoleView
from railwright_cli.api_server import CORE
from railwright_cli.errors import AccessDeniedError, UsageError
from railwright_cli.jobs import JobReference


def pods_path(namespace: str) -> str:
    """The pods of a namespace."""
    return f"{CORE}/namespaces/{namespace}/pods"


def pod_path(pod: PodView) -> str:
    """The path of a pod."""
    return f"{pods_path(pod.metadata.namespace)}/{pod.metadata.name}"


def pods_of(its: JobReference, job: JobView) -> list[PodView]:
    """The pods of a job that are there, of all attempts, the oldest attempt first."""
    selector = f"{names.LABEL_JOB_NAME}={its.name},{names.LABEL_JOB_UID}={job.metadata.uid}"
    found = its.server.items(pods_path(its.namespace), PodView, {"labelSelector": selector})
    return sorted(found, key=lambda pod: (pod.attempt, pod.metadata.name))


def roles_of_attempt(its: JobReference, job: JobView, attempt: int) -> tuple[RoleView, ...]:
    """The roles whose pods the attempt has. Those of a pre-run are fewer, and smaller, than those
    of the job, and the job may have changed since."""
    try:
        placement = its.find_placement(attempt) if attempt else None
    except AccessDeniedError:
        placement = None
    roles = {each.name: each for each in job.spec.roles}
    placed = placement.spec.roles if placement is not None else ()
    if not placed or any(each.name not in roles for each in placed):
        return job.spec.roles
    return tuple(msgspec.structs.replace(roles[it.name], replicas=it.replicas) for it in placed)


def place_of_rank(
    roles: Sequence[RoleView], role_name: str, rank: int | None
) -> tuple[RoleView, int]:
    """The role that runs this RANK, and the index of its pod. Roles of one group count their ranks
    together, in the order of the list. The role is the first one if none is named, and the rank
    its lowest.

    Raises UsageError with the roles or ranks that there are.
    """
    role = next((each for each in roles if role_name in ("", each.name)), None)
    if role is None:
        existing = ", ".join(each.name for each in roles)
        raise UsageError(f"there is no role {role_name!r}: the attempt has {existing}")
    if rank is None:
        return role, 0
    first = 0
    for each in roles:
        if each.rank_group != role.rank_group:
            continue
        ranks = each.replicas * each.processes_per_replica
        if first <= rank < first + ranks:
            return each, (rank - first) // each.processes_per_replica
        first += ranks
    raise UsageError(
        f"there is no rank {rank} in group {role.rank_group}: its ranks are 0 to {first - 1}"
    )
