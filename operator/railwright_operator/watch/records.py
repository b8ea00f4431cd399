"""What this project needs of Pods and Nodes, and nothing else of them.

50,000 pods must fit beside everything else. So each object is read once, when it arrives, into a
slotted record; ``excerpts`` declares all that is read here. Equality ignores the resourceVersion:
an update that changes nothing here is no news.

A stranger can write our labels on any pod. A pod is one of ours only if labels, owner reference and
name agree; that it is in its job's namespace is for the index to see, which knows the jobs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from railwright_api import names
from railwright_operator.watch import amounts
from railwright_scheduler.snapshot import Amounts, Taint

TEXT_MAX = 4096
NUMBER_LENGTH_MAX = 9
TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Exit:
    """How the main container of a pod ended; ``message`` is its termination message, cut."""

    code: int
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container of a pod does not start, such as ImagePullBackOff."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class PodRecord:
    """A pod. Without ``job_uid`` it is not ours, and only what it takes from a node is kept.

    ``node`` is empty while unbound. ``requests`` are exact amounts as the scheduler counts them.
    ``disruption`` is the reason of a true DisruptionTarget condition; ``reason`` that of the pod's
    status, such as Evicted.
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
    job_name: str = ""
    attempt: int = 0
    node_rank: int = 0
    ready: bool = False
    exit: Exit | None = None
    waiting: Waiting | None = None
    reason: str = ""
    disruption: str = ""
    pod_ip: str = ""

    @property
    def terminal(self) -> bool:
        """Whether its containers have ended for good: it takes nothing from its node any more."""
        return self.phase in TERMINAL_PHASES


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node.

    ``unread`` are resources whose allocatable amount could not be read, each with why. That alone
    is no news: the amounts are what counts.
    """

    uid: str
    name: str
    rv: int = field(compare=False)
    ready: bool
    cordoned: bool
    taints: tuple[Taint, ...]
    labels: Mapping[str, str]
    allocatable: Amounts
    unread: Mapping[str, str] = field(default_factory=dict, compare=False)


def pod(raw: Raw) -> PodRecord:
    """The record of a Pod as the API server sends it; raises KeyError when it is none."""
    metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status", {})
    job_uid = _owner(metadata)
    common = {
        "uid": metadata["uid"],
        "namespace": sys.intern(metadata["namespace"]),
        "name": metadata["name"],
        "rv": int(metadata["resourceVersion"]),
        "node": sys.intern(spec.get("nodeName", "")),
        "phase": sys.intern(status.get("phase", "")),
        "deleting": "deletionTimestamp" in metadata,
        "requests": amounts.requested(spec),
    }
    if job_uid is None:
        return PodRecord(**common)
    labels = metadata["labels"]
    return PodRecord(
        **common,
        job_uid=sys.intern(job_uid),
        job_name=sys.intern(labels.get(names.LABEL_JOB_NAME, "")),
        attempt=int(labels[names.LABEL_ATTEMPT]),
        node_rank=int(labels[names.LABEL_NODE_RANK]),
        ready=_condition(status, "Ready").get("status") == "True",
        exit=_exit(spec, status),
        waiting=_waiting(status),
        reason=status.get("reason", ""),
        disruption=_disruption(status),
        pod_ip=status.get("podIP", ""),
    )


def still_bound(held: PodRecord, news: PodRecord) -> PodRecord:
    """The news of a pod that is held as bound: a binding is for good, and older news not of it."""
    return replace(news, node=held.node) if held.node and not news.node else news


def node(raw: Raw) -> NodeRecord:
    """The record of a Node as the API server sends it; raises KeyError when it is none."""
    metadata, spec, status = raw["metadata"], raw.get("spec", {}), raw.get("status", {})
    ready = _condition(status, "Ready")
    allocatable, unread = amounts.allocatable(status.get("allocatable") or {})
    labels = {sys.intern(k): sys.intern(v) for k, v in (metadata.get("labels") or {}).items()}
    is_ready = ready.get("status") == "True"
    return NodeRecord(
        uid=metadata["uid"],
        name=sys.intern(metadata["name"]),
        rv=int(metadata["resourceVersion"]),
        ready=is_ready,
        cordoned=bool(spec.get("unschedulable")),
        taints=tuple(
            Taint(taint["key"], taint.get("value", ""), taint["effect"])
            for taint in spec.get("taints") or ()
        ),
        labels=MappingProxyType(labels),
        allocatable=allocatable,
        unread=unread,
    )


def _owner(metadata: Raw) -> str | None:
    """The job's UID, if labels, owner reference and name all say that this pod is ours."""
    labels = metadata.get("labels") or {}
    job_uid, job_name = labels.get(names.LABEL_JOB_UID), labels.get(names.LABEL_JOB_NAME, "")
    attempt, rank = labels.get(names.LABEL_ATTEMPT, ""), labels.get(names.LABEL_NODE_RANK, "")
    if job_uid is None or not (_is_number(attempt) and _is_number(rank)):
        return None
    named = metadata["name"] == names.pod_name(job_name, int(attempt), int(rank))
    owned = any(
        _is_job(owner, job_uid, job_name) for owner in metadata.get("ownerReferences") or ()
    )
    return str(job_uid) if named and owned else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= NUMBER_LENGTH_MAX


def _is_job(owner: Raw, job_uid: str, job_name: str) -> bool:
    return (
        owner.get("uid") == job_uid
        and owner.get("name") == job_name
        and owner.get("kind") == "TrainingJob"
        and str(owner.get("apiVersion")).startswith(f"{names.GROUP}/")
        and owner.get("controller") is True
    )


def _condition(status: Raw, kind: str) -> Raw:
    for condition in status.get("conditions") or ():
        if condition.get("type") == kind:
            return dict(condition)
    return {}


def _exit(spec: Raw, status: Raw) -> Exit | None:
    """How the first container of the spec, which runs the launcher, ended."""
    main = spec["containers"][0]["name"]
    for container in status.get("containerStatuses") or ():
        ended = container.get("state", {}).get("terminated")
        if container.get("name") == main and ended is not None:
            message = ended.get("message", "")[:TEXT_MAX]
            return Exit(int(ended["exitCode"]), ended.get("reason", ""), message)
    return None


def _waiting(status: Raw) -> Waiting | None:
    """The first container that waits for another reason than that its turn has not come."""
    for field_name in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(field_name) or ():
            waiting = container.get("state", {}).get("waiting") or {}
            reason = waiting.get("reason", "")
            if reason not in ("", "PodInitializing", "ContainerCreating"):
                return Waiting(reason, waiting.get("message", "")[:TEXT_MAX])
    return None


def _disruption(status: Raw) -> str:
    condition = _condition(status, "DisruptionTarget")
    return str(condition.get("reason", "")) if condition.get("status") == "True" else ""
