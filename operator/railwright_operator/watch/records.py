"""Compact records of Pods.

50,000 pods must fit in memory. So each object is converted once, when it arrives, into a slotted
record of the used fields (``projections``). Equality ignores the resourceVersion: an update without
a change of these fields is no change.

Any user can put our labels on a pod. A pod belongs to a job only if labels, owner reference and
name agree. The pod index checks that it is in the job's namespace, and that the attempt has such a
rank.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from railwright import protocol
from railwright_api import names
from railwright_conversion import amounts
from railwright_kube import core_v1, projections
from railwright_kube.core_v1 import (
    NOT_ENDED,
    TERMINAL_PHASES,
    ContainerStatus,
    PodObject,
    PodStatus,
    Waiting,
)
from railwright_kube.projections import Metadata, Owner
from railwright_scheduler.attempt.gang import Pod
from railwright_scheduler.model.snapshot import Amounts

TEXT_MAX = 4096
NUMBER_LENGTH_MAX = 9
STARTING_PHASES = frozenset({"", "Pending"})
TURN_NOT_COME = ("", "PodInitializing", "ContainerCreating")
IMAGE_IS_THERE = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
)
"""Reasons of a container that waits after its image was pulled."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a pod's main container; ``message`` is its termination message, cut.

    ``failure`` is the launcher's part of the message; None if there is none. It is decoded once, as
    every scheduling cycle reads it again, for gangs of thousands of pods.
    """

    code: int
    reason: str = ""
    message: str = ""
    failure: protocol.Failure | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "failure", _failure(self.message))


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod. Without ``job_uid`` it belongs to no job, and only its usage of a node is kept.

    ``node`` is empty while unbound. ``requests`` are exact amounts as the scheduler counts them.
    ``disruption`` is the reason of a true DisruptionTarget condition; ``reason`` that of the pod's
    status, such as Evicted. ``pulled`` are the containers whose images are there, while the pod
    has not started. ``core`` is the pod of an attempt as a value of the core.
    """

    uid: str
    namespace: str
    name: str
    rv: int = field(compare=False)
    node: str
    phase: str
    deleting: bool
    requests: Amounts
    job_uid: str | None = None
    attempt: int = 0
    node_rank: int = 0
    role: str = ""
    index: int = 0
    exit: Exit | None = None
    waiting: Waiting | None = None
    pulled: tuple[str, ...] = ()
    reason: str = ""
    disruption: str = ""
    core: Pod | None = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        identity = self.name, self.uid, self.node_rank, self.node
        pod = Pod(*identity, self.terminal, self.deleting, self.requests)
        object.__setattr__(self, "core", None if self.job_uid is None else pod)

    @property
    def terminal(self) -> bool:
        """Whether all containers have ended: the pod uses nothing of its node any more."""
        return self.phase in TERMINAL_PHASES

    @property
    def starting(self) -> bool:
        """Whether one of its containers has yet to start."""
        return self.phase in STARTING_PHASES


def is_decisive(old: PodRecord | None, new: PodRecord | None) -> bool:
    """Whether a change matters to decisions: it is more than a step of a pod's start."""
    if old is None or new is None or new.terminal:
        return True
    return replace(old, phase=new.phase, pulled=new.pulled) != new


def pod(found: PodObject) -> PodRecord:
    """The record of a Pod. Raises ValueError for what Kubernetes would not have stored."""
    metadata, spec, status = found.metadata, found.spec, found.status
    record = functools.partial(
        PodRecord,
        uid=metadata.uid,
        namespace=sys.intern(metadata.namespace),
        name=metadata.name,
        rv=int(metadata.resource_version),
        node=sys.intern(spec.node_name),
        phase=sys.intern(status.phase),
        deleting=bool(metadata.deletion_timestamp),
        requests=amounts.counted(spec),
    )
    job_uid = _owner(metadata)
    if job_uid is None:
        return record()
    labels = metadata.labels
    disrupted = core_v1.condition(status, "DisruptionTarget")
    return record(
        job_uid=sys.intern(job_uid),
        attempt=int(labels[names.LABEL_ATTEMPT]),
        node_rank=int(labels[names.LABEL_NODE_RANK]),
        role=sys.intern(labels[names.LABEL_ROLE]),
        index=int(labels[names.LABEL_COMPLETION_INDEX]),
        exit=_exit(spec.containers[0].name, status.container_statuses),
        waiting=_waiting(status),
        pulled=_pulled(status) if status.phase in STARTING_PHASES else (),
        reason=status.reason,
        disruption=disrupted.reason if disrupted.status == "True" else "",
    )


def answered(raw: Mapping[str, Any]) -> PodRecord:
    """The record of a Pod from the response to a write. Raises ValueError for another kind."""
    return pod(projections.converted(raw, PodObject))


def still_bound(held: PodRecord, news: PodRecord) -> PodRecord:
    """Keep the node of a bound pod, which an older version may lack: a binding is final."""
    return replace(news, node=held.node) if held.node and not news.node else news


def _owner(metadata: Metadata) -> str | None:
    """The job's UID if labels, owner reference and name of the pod agree on it."""
    labels = metadata.labels
    texts = names.LABEL_JOB_UID, names.LABEL_JOB_NAME, names.LABEL_ROLE
    job_uid, job_name, role = (labels.get(name, "") for name in texts)
    numbers = names.LABEL_COMPLETION_INDEX, names.LABEL_ATTEMPT, names.LABEL_NODE_RANK
    index, attempt, rank = (labels.get(name, "") for name in numbers)
    numbered = all(map(_is_number, (index, attempt, rank)))
    if not (job_uid and job_name and role and numbered):
        return None
    named = metadata.name == names.pod_name(job_name, role, int(index), int(attempt))
    owned = any(_is_job(owner, job_uid, job_name) for owner in metadata.owner_references)
    return job_uid if named and owned else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= NUMBER_LENGTH_MAX


def _is_job(owner: Owner, job_uid: str, job_name: str) -> bool:
    return (
        owner.uid == job_uid
        and owner.name == job_name
        and owner.kind == "TrainingJob"
        and owner.api_version.startswith(f"{names.GROUP}/")
        and owner.controller
    )


def _exit(main: str, statuses: Iterable[ContainerStatus]) -> Exit | None:
    """The end of the first container of the spec, which runs the launcher."""
    for container in statuses:
        ended = container.state.terminated
        if container.name == main and ended.exit_code != NOT_ENDED:
            return Exit(ended.exit_code, ended.reason, ended.message[:TEXT_MAX])
    return None


def _failure(message: str) -> protocol.Failure | None:
    if not message.startswith("{"):
        return None
    try:
        return protocol.decode(protocol.Failure, message.encode("utf-8", "replace"))
    except protocol.ProtocolError:
        return None


def _waiting(status: PodStatus) -> Waiting | None:
    """The first container that waits for another reason than the containers before it."""
    for statuses in (status.init_container_statuses, status.container_statuses):
        for container in statuses:
            waiting = container.state.waiting
            if waiting.reason not in TURN_NOT_COME:
                return Waiting(waiting.reason, waiting.message[:TEXT_MAX])
    return None


def _pulled(status: PodStatus) -> tuple[str, ...]:
    """The containers that exist, or wait for another reason than their images."""
    return tuple(
        sys.intern(container.name)
        for statuses in (status.init_container_statuses, status.container_statuses)
        for container in statuses
        if container.container_id or container.state.waiting.reason in IMAGE_IS_THERE
    )
