"""An API server in memory, with the semantics of etcd and kube-apiserver that commits stand on.

The ledger and each job carry a version that a write must name. A pod's name is free or taken; a
binding and a delete name the UID. A delete removes a pod that is not bound or has ended at once,
and only marks one that runs: its kubelet removes it. Every change is one event in its table's log,
which is all that a watcher sees, and later.

What a run with one guard off must break shows that the simulator would notice: see ``Guards``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Generic, TypeVar

from railwright_scheduler import invariants
from railwright_scheduler.attempt.causes import Cause
from railwright_scheduler.attempt.ledger import Entry, Ledger
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.invariants import AttemptKey, Facts, PodFact
from railwright_scheduler.snapshot import Amounts

K = TypeVar("K")
V = TypeVar("V")


class Answer(StrEnum):
    """How a request ended. UNKNOWN: no reply came, and it may have been carried out or not."""

    DONE = "done"
    CONFLICT = "conflict"
    EXISTS = "exists"
    MISSING = "missing"
    REFUSED = "refused"
    UNKNOWN = "unknown"


Request = Callable[[], Answer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """What keeps leaders apart; each can be left out, to see that it is needed and missed."""

    uid: bool = True
    version: bool = True
    ledger_first: bool = True


@dataclass(frozen=True, slots=True)
class JobObject:
    """A job as it is stored, its status with it."""

    uid: str
    name: str
    num_nodes: int
    per_node: Amounts
    backoff_limit: int
    submitted_s: int
    suspend: bool = False
    record: JobRecord = field(default_factory=JobRecord)
    version: int = 0


@dataclass(frozen=True, slots=True)
class NodeObject:
    """A node as it is stored."""

    name: str
    allocatable: Amounts
    ready: bool = True


class Table(Generic[K, V]):
    """The objects of one kind, and the log of what happened to them."""

    def __init__(self) -> None:
        self.objects: dict[K, V] = {}
        self.log: list[tuple[K, V | None]] = []

    def put(self, key: K, value: V) -> None:
        """Create or replace."""
        self.objects[key] = value
        self.log.append((key, value))

    def remove(self, key: K) -> None:
        """Remove what is there."""
        del self.objects[key]
        self.log.append((key, None))


class Copy(Generic[K, V]):
    """What a watcher holds of a table: always some earlier state of it, never one before that."""

    def __init__(self, table: Table[K, V]) -> None:
        self._table = table
        self.relist()

    def relist(self) -> None:
        """Take the table as it is now."""
        self.objects = dict(self._table.objects)
        self._position = len(self._table.log)

    def catch_up(self, events: int) -> None:
        """Take in up to so many of the events not seen yet."""
        for key, value in self._table.log[self._position : self._position + events]:
            if value is None:
                self.objects.pop(key, None)
            else:
                self.objects[key] = value
            self._position += 1


class Api:
    """The stored objects. Methods that return an Answer are a leader's requests."""

    def __init__(self, guards: Guards) -> None:
        self.ledger = Ledger(epoch=0, incarnation="simulated", holder="")
        self.ledger_version = 0
        self.jobs: Table[str, JobObject] = Table()
        self.pods: Table[str, PodFact] = Table()
        self.nodes: Table[str, NodeObject] = Table()
        self.placements: Table[AttemptKey, bool] = Table()
        self.refused: dict[tuple[str, int], bool] = {}
        self.whole: dict[AttemptKey, bool] = {}
        self.revoked: dict[AttemptKey, Cause] = {}
        self.writes = 0
        self._ranks_bound: dict[AttemptKey, dict[int, bool]] = {}
        self._guards = guards

    def facts(self) -> Facts:
        """All of it, for the invariants."""
        jobs = self.jobs.objects
        return Facts(
            allocatable={node.name: node.allocatable for node in self.nodes.objects.values()},
            pods=self.pods.objects.values(),
            ledger=self.ledger,
            records={uid: job.record for uid, job in jobs.items()},
            limits={uid: job.backoff_limit for uid, job in jobs.items()},
            whole=self.whole.keys(),
            revoked=self.revoked,
        )

    def put_ledger(self, ledger: Ledger, version: int) -> Answer:
        """Replace the ledger of this version."""
        if self._guards.version and version != self.ledger_version:
            return Answer.CONFLICT
        invariants.check_ledger(self.ledger, ledger)
        for entry in ledger.entries:
            if entry.cause is not None:
                self.revoked.setdefault(entry.key, entry.cause)
        self.ledger = ledger
        self.ledger_version += 1
        return self._written()

    def put_record(self, uid: str, record: JobRecord, version: int) -> Answer:
        """Replace the record in the status of the job of this version."""
        job = self.jobs.objects.get(uid)
        if job is None:
            return Answer.MISSING
        if version != job.version:
            return Answer.CONFLICT
        invariants.check_record(job.record, record)
        self.jobs.put(uid, replace(job, record=record, version=job.version + 1))
        return self._written()

    def put_placement(self, entry: Entry) -> Answer:
        """Create the Placement of an attempt."""
        if entry.key in self.placements.objects:
            return Answer.EXISTS
        self.placements.put(entry.key, True)
        return self._written()

    def create_pod(self, entry: Entry, node_rank: int) -> Answer:
        """Create the pod of one rank; its UID is new for ever."""
        name = f"{entry.job_name}-{entry.attempt}-{node_rank}"
        if name in self.pods.objects:
            return Answer.EXISTS
        if (entry.job_uid, node_rank) in self.refused:
            return Answer.REFUSED
        self.writes += 1
        self.pods.put(
            name,
            PodFact(
                name=name,
                uid=f"pod{self.writes}",
                job_uid=entry.job_uid,
                attempt=entry.attempt,
                node_rank=node_rank,
                amounts=entry.per_node,
            ),
        )
        return Answer.DONE

    def bind_pod(self, name: str, uid: str, node: str) -> Answer:
        """Bind the pod of this name, if it is this very pod."""
        pod = self.pods.objects.get(name)
        if pod is None:
            return Answer.MISSING
        if (self._guards.uid and pod.uid != uid) or pod.deleting or pod.node:
            return Answer.CONFLICT
        invariants.check_bind(self.ledger, pod, node=node)
        self.pods.put(name, replace(pod, node=node))
        self._note_whole(pod)
        return self._written()

    def delete_pod(self, name: str, uid: str) -> Answer:
        """Delete the pod of this name, if it is this very pod."""
        pod = self.pods.objects.get(name)
        if pod is None:
            return Answer.MISSING
        if self._guards.uid and pod.uid != uid:
            return Answer.CONFLICT
        invariants.check_delete(self.facts(), pod)
        self.remove_pod(pod)
        return Answer.DONE

    def remove_pod(self, pod: PodFact) -> None:
        """What any delete does: at once if nothing runs, else ask the kubelet."""
        if not pod.live:
            self.pods.remove(pod.name)
            self.writes += 1
        elif not pod.deleting:
            self.pods.put(pod.name, replace(pod, deleting=True))
            self.writes += 1

    def _written(self) -> Answer:
        self.writes += 1
        return Answer.DONE

    def _note_whole(self, pod: PodFact) -> None:
        entry = next((entry for entry in self.ledger.entries if entry.key == pod.key), None)
        ranks = self._ranks_bound.setdefault(pod.key, {})
        ranks[pod.node_rank] = True
        if entry is not None and len(ranks) == len(entry.nodes):
            self.whole[pod.key] = True
