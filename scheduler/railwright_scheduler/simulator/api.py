"""An API server in memory, with the semantics of etcd and kube-apiserver that commits rely on.

The ledger and each job carry a version that a write must name. A name is free or taken; a binding
and a delete name the UID. A delete removes a pod that is not bound or has ended at once, and only
marks one that runs: its kubelet removes it. Every change is one event in its table's log, which is
all that a watcher sees, and later.

Each guard is a method of its own: a run without it must violate an invariant, so that its loss is
noticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from railwright_scheduler import checkpoint_commits, invariants
from railwright_scheduler.attempt.causes import Cause
from railwright_scheduler.attempt.ledger import AttemptKey, Entry, Ledger
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.attempt.resume_points import Points
from railwright_scheduler.invariants import Facts, PodFact, ViolationError
from railwright_scheduler.model.snapshot import Amounts, Purpose
from railwright_scheduler.simulator import node_capacity
from railwright_scheduler.simulator.checkpoints import Checkpoints
from railwright_scheduler.simulator.hangs import Hangs
from railwright_scheduler.simulator.network import Network
from railwright_scheduler.simulator.node_capacity import ToleratedCapacity
from railwright_scheduler.simulator.objects import (
    OTHERS,
    JobObject,
    NodeObject,
    PlacementObject,
    Reply,
    ReplyStatus,
)
from railwright_scheduler.simulator.profiling import PreRuns
from railwright_scheduler.simulator.tables import Revision, Stored, Table


class Api:
    """The stored objects. Methods that return a Reply are a leader's requests.

    ``refused`` are ranks whose pods no policy lets in, ``inflated`` jobs whose pods a webhook makes
    larger, ``down`` nodes that fell silent, and when.

    Of the history: ``sizes`` of the attempts that were ever in the ledger, how many pods were
    ``made`` for each; those that were pre-runs, those that were wholly bound at one time, and those
    aborted, and why.
    """

    def __init__(self) -> None:
        self.revision = Revision()
        self.ledger = Ledger(epoch=0, incarnation="simulated", holder="")
        self.ledger_version = 0
        self.jobs: Table[str, JobObject] = Table(self.revision)
        self.pods: Table[str, PodFact] = Table(self.revision)
        self.nodes: Table[str, NodeObject] = Table(self.revision)
        self.placements: Table[str, PlacementObject] = Table(self.revision)
        self.pod_names: dict[str, str] = {}
        self.refused: dict[tuple[str, int], bool] = {}
        self.inflated: dict[str, bool] = {}
        self.down: dict[str, int] = {}
        self.sizes: dict[AttemptKey, int] = {}
        self.profiling: dict[AttemptKey, bool] = {}
        self._began: dict[AttemptKey, int] = {}
        self._died: dict[str, int] = {}
        self.whole: dict[AttemptKey, bool] = {}
        self.revoked: dict[AttemptKey, Cause] = {}
        self.tolerated = ToleratedCapacity()
        self.network = Network()
        self.hangs = Hangs()
        self.pre_runs = PreRuns()
        self.checkpoints = Checkpoints()
        self.made: dict[AttemptKey, int] = {}
        self._ranks_made: dict[AttemptKey, dict[int, bool]] = {}
        self._ranks_bound: dict[AttemptKey, dict[int, bool]] = {}

    @property
    def writes(self) -> int:
        """How often anything changed."""
        return self.revision.newest

    def facts(self) -> Facts:
        """All of it, for the invariants."""
        jobs = self.jobs.objects
        free = self.free()
        facts = Facts(
            allocatable=free,
            pods=[pod for pod in self.pods.objects.values() if pod.job_uid not in OTHERS],
            ledger=self.ledger,
            records={uid: job.record for uid, job in jobs.items()},
            policies={uid: job.failure_policy for uid, job in jobs.items()},
            deadlines_s={uid: job.active_deadline_s for uid, job in jobs.items()},
            whole=self.whole.keys(),
            pre_runs=self.profiling.keys(),
            revoked=self.revoked,
            hung=self.hangs.since_s,
            placements=[placement.key for placement in self.placements.objects.values()],
            down=self.down.keys(),
            news=self.network.changes,
        )
        if self.tolerated.is_tight:
            return replace(facts, allocatable=self.tolerated.of(facts, free))
        return facts

    def free(self) -> dict[str, Amounts]:
        """What each node has for us: all it has, less what pods of others take."""
        return node_capacity.free(self.nodes.objects.values(), self.pods.objects.values())

    def others_took(self) -> None:
        """A node shrank or a foreign pod came: what was promised before stays promised."""
        self.tolerated.taken(self.facts(), self.free())

    def pod(self, name: str) -> Stored[PodFact] | None:
        """The pod of this name."""
        uid = self.pod_names.get(name)
        return None if uid is None else self.pods.get(uid)

    def put_ledger(self, ledger: Ledger, version: int, *, seen: Mapping[str, Amounts]) -> Reply:
        """Replace the ledger of this version; ``seen`` is what its writer takes nodes to have."""
        if not self._is_current(version, self.ledger_version):
            return Reply(ReplyStatus.CONFLICT)
        invariants.check_ledger(self.ledger, ledger)
        invariants.check_entries(self.facts(), ledger)
        for entry in ledger.entries:
            self.sizes.setdefault(entry.key, len(entry.nodes))
            self._began.setdefault(entry.key, self.writes)
            if entry.purpose is Purpose.PRE_RUN:
                self.profiling[entry.key] = True
            if entry.cause is not None and entry.key not in self.revoked:
                invariants.check_lost(entry, living=self._living_since(self._began[entry.key]))
                self.revoked[entry.key] = entry.cause
        self.ledger = ledger
        self.tolerated.granted(self.facts(), self.free(), seen)
        self.ledger_version = self.revision.following()
        return Reply(ReplyStatus.DONE, self.ledger_version)

    def put_record(self, uid: str, record: JobRecord, version: int) -> Reply:
        """Replace the record in the status of the job of this version."""
        stored = self.jobs.get(uid)
        if stored is None:
            return Reply(ReplyStatus.MISSING)
        if not self._is_current(version, stored.version):
            return Reply(ReplyStatus.CONFLICT)
        invariants.check_record(stored.value.record, record)
        _demand_none(checkpoint_commits.late_commits(stored.value.record, record))
        invariants.check_pre_run(record, is_pre_run=(uid, record.attempt) in self.profiling)
        self.jobs.put(uid, replace(stored.value, record=record))
        return Reply(ReplyStatus.DONE)

    def put_placement(self, entry: Entry, resume: Points) -> Reply:
        """Create the Placement of an attempt."""
        name = placement_name(entry.job_name, entry.attempt)
        if name in self.placements.objects:
            return Reply(ReplyStatus.EXISTS)
        job = self.jobs.objects.get(entry.job_uid)
        # A late request lands after its attempt is over too; it is read by none then.
        if job is not None and any(entry.key == each.key for each in self.ledger.entries):
            is_pre_run = entry.purpose is Purpose.PRE_RUN
            _demand_none(
                checkpoint_commits.misplaced(entry.key, resume, job.record, is_pre_run=is_pre_run)
            )
        self.placements.put(name, PlacementObject(*entry.key, entry.topology_hash, resume))
        return Reply(ReplyStatus.DONE)

    def create_pod(self, entry: Entry, node_rank: int, amounts: Amounts) -> Reply:
        """Create the pod of one rank from the spec at that time, with a unique UID."""
        name = f"{entry.job_name}-{entry.attempt}-{node_rank}"
        if name in self.pod_names:
            return Reply(ReplyStatus.EXISTS)
        if (entry.job_uid, node_rank) in self.refused:
            return Reply(ReplyStatus.REFUSED)
        if entry.job_uid in self.inflated:
            amounts = {resource: 2 * amount for resource, amount in amounts.items()}
        uid = f"{name}#{self.revision.newest}"
        pod = PodFact(name, uid, *entry.key, node_rank, amounts)
        invariants.check_create(self.facts(), pod)
        self.pods.put(uid, pod)
        self.pod_names[name] = uid
        self.made[entry.key] = self.made.get(entry.key, 0) + 1
        self._ranks_made.setdefault(entry.key, {})[node_rank] = True
        return Reply(ReplyStatus.DONE, pod=self.pods.get(uid))

    def bind_pod(self, name: str, uid: str, node: str) -> Reply:
        """Bind the pod of this name, if it is this very pod."""
        stored = self.pod(name)
        if stored is None:
            return Reply(ReplyStatus.MISSING)
        pod = stored.value
        if not self._is_same(pod, uid) or not self._may_be_bound(pod):
            return Reply(ReplyStatus.CONFLICT)
        invariants.check_bind(self.ledger, pod, node=node)
        invariants.check_made(self.ledger, pod, self._ranks_made[pod.key])
        self.pods.put(pod.uid, replace(pod, node=node))
        self._note_whole(pod)
        return Reply(ReplyStatus.DONE)

    def delete_pod(self, name: str, uid: str) -> Reply:
        """Delete the pod of this name, if it is this very pod."""
        stored = self.pod(name)
        if stored is None:
            return Reply(ReplyStatus.MISSING)
        pod = stored.value
        if not self._is_same(pod, uid):
            return Reply(ReplyStatus.CONFLICT)
        invariants.check_delete(self.facts(), pod)
        self.remove_pod(pod)
        return Reply(ReplyStatus.DONE, pod=self.pods.get(pod.uid))

    def remove_pod(self, pod: PodFact) -> None:
        """What any delete does: at once if nothing runs, else ask the kubelet."""
        if not pod.live:
            self.drop_pod(pod)
        elif not pod.deleting:
            self.pods.put(pod.uid, replace(pod, deleting=True))

    def drop_pod(self, pod: PodFact) -> None:
        """The pod is no more."""
        self.pods.remove(pod.uid)
        del self.pod_names[pod.name]

    def note_death(self, node: str) -> None:
        """The node is, or was until now, dead or gone."""
        self._died[node] = self.writes

    def _living_since(self, revision: int) -> list[str]:
        return [
            node
            for node in self.nodes.objects
            if node not in self.down and self._died.get(node, -1) < revision
        ]

    def _is_current(self, version: int, stored: int) -> bool:
        return version == stored

    def _is_same(self, pod: PodFact, uid: str) -> bool:
        return pod.uid == uid

    def _may_be_bound(self, pod: PodFact) -> bool:
        return not pod.deleting and not pod.node

    def _note_whole(self, pod: PodFact) -> None:
        ranks = self._ranks_bound.setdefault(pod.key, {})
        ranks[pod.node_rank] = True
        if len(ranks) == self.sizes[pod.key]:
            self.whole[pod.key] = True


def _demand_none(violations: Iterator[str]) -> None:
    for violation in violations:
        raise ViolationError(violation)


def placement_name(job_name: str, attempt: int) -> str:
    """One for each attempt of a job, by name: jobs of one name share them."""
    return f"{job_name}-{attempt}"
