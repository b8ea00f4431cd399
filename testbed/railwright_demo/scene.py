"""What the demo sees of the cluster at one moment, out of the API server's JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from railwright_api import names
from railwright_demo.cluster import WatchedCluster
from railwright_testbed.api_client import Json


@dataclass(frozen=True, slots=True)
class Job:
    """A TrainingJob's status; everything is empty before the operator wrote one."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    attempt: int = 0
    nodes: tuple[str, ...] = ()
    step: int = 0
    total_steps: int = 0
    loss: float | None = None
    # The attempt and the step of the newest committed checkpoint.
    checkpoint: tuple[int, int] | None = None
    lost_nodes: tuple[str, ...] = ()
    # The newest attempt that has ended early.
    ended_attempt: int = 0


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod of the job. ``node`` is empty until it is bound."""

    name: str
    attempt: int
    node_rank: int
    node: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Node:
    """One node, by its object in the API server."""

    name: str
    rack: str
    ready: bool = True


@dataclass(frozen=True, slots=True)
class Event:
    """An event on the job."""

    name: str
    reason: str
    note: str


@dataclass(frozen=True, slots=True)
class Scene:
    """All of it. ``elapsed_s`` is since the demo began."""

    elapsed_s: float
    job: Job = field(default_factory=Job)
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    events: tuple[Event, ...] = ()
    # The nodes whose power the demo cut.
    dead: frozenset[str] = frozenset()


def read_scene(
    cluster: WatchedCluster, job: str, *, elapsed_s: float, dead: frozenset[str]
) -> Scene:
    """The job of that name, now. Raises what the cluster's client raises."""
    place = f"namespaces/{cluster.namespace}"
    pods = f"/api/v1/{place}/pods?labelSelector={names.LABEL_JOB_NAME}={job}"
    stored = cluster.get(f"/apis/{names.API_VERSION}/{place}/trainingjobs/{job}")
    found = pods_of(cluster.get(pods)["items"])
    events = f"/api/v1/{place}/events?fieldSelector=involvedObject.name={job}"
    return Scene(
        elapsed_s,
        job_of(stored, found),
        nodes_of(cluster.get(cluster.nodes_path)["items"]),
        found,
        events_of(cluster.get(events)["items"]),
        dead,
    )


def job_of(raw: Json, pods: Sequence[Pod] = ()) -> Job:
    """The job, on the nodes of the pods of its newest attempt while it has nodes."""
    status = raw.get("status", {})
    attempt = status.get("attempt", 0) if status.get("nodes") else None
    progress = status.get("progress", {})
    newest = next(iter(status.get("checkpoints", [])), None)
    ended = status.get("lastTermination", {})
    return Job(
        phase=status.get("phase", ""),
        reason=status.get("reason", ""),
        message=status.get("message", ""),
        attempt=status.get("attempt", 0),
        nodes=tuple(pod.node for pod in pods if pod.attempt == attempt),
        step=progress.get("step", 0),
        total_steps=progress.get("totalSteps", 0),
        loss=float(progress["loss"]) if "loss" in progress else None,
        checkpoint=None if newest is None else (newest["attempt"], newest["step"]),
        lost_nodes=tuple(ended.get("lostNodes", ())),
        ended_attempt=ended.get("attempt", 0),
    )


def nodes_of(items: Sequence[Json]) -> tuple[Node, ...]:
    """The nodes, rack by rack."""
    nodes = [
        Node(
            raw["metadata"]["name"],
            raw["metadata"].get("labels", {}).get(names.LABEL_RACK, ""),
            any(c["type"] == "Ready" and c["status"] == "True" for c in _conditions(raw)),
        )
        for raw in items
    ]
    return tuple(sorted(nodes, key=lambda node: (node.rack, node.name)))


def pods_of(items: Sequence[Json]) -> tuple[Pod, ...]:
    """The pods, attempt by attempt, in the order of their node ranks."""
    pods = [_pod(raw, raw["metadata"].get("labels", {})) for raw in items]
    return tuple(sorted(pods, key=lambda pod: (pod.attempt, pod.node_rank)))


def events_of(items: Sequence[Json]) -> tuple[Event, ...]:
    """The events, the oldest first."""
    oldest_first = sorted(items, key=lambda raw: (raw.get("eventTime") or "", _name(raw)))
    return tuple(Event(_name(raw), raw["reason"], raw.get("message", "")) for raw in oldest_first)


def _pod(raw: Json, labels: Mapping[str, str]) -> Pod:
    return Pod(
        _name(raw),
        attempt=int(labels[names.LABEL_ATTEMPT]),
        node_rank=int(labels[names.LABEL_NODE_RANK]),
        node=raw["spec"].get("nodeName", ""),
        phase=raw["status"].get("phase", ""),
    )


def _name(raw: Json) -> str:
    return str(raw["metadata"]["name"])


def _conditions(raw: Json) -> list[Json]:
    return list(raw.get("status", {}).get("conditions", []))
