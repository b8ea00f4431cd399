"""The cluster at one revision, kept up one change at a time.

An invariant is about one job, or about one node, or about one write. So after a revision it is
enough to look at the jobs and nodes that it touched: all else stood in the revision before, and was
looked at then. That makes the cost of a revision that of what it changes, not of the cluster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from history.invariants import Facts
from history.job_budgets import PolicyRange
from history.rooms import Rooms
from history.stored import Job, PodFact
from railwright_scheduler.attempt.causes import Cause
from railwright_scheduler.attempt.ledger import AttemptKey, Entry, Ledger
from railwright_scheduler.model.snapshot import Purpose

NO_LEDGER = Ledger(epoch=0, incarnation="", holder="")


class Cluster:
    """What stands, by key and by job; and of the past what an invariant asks of it."""

    def __init__(self) -> None:
        self.now_s = 0
        self.rooms = Rooms()
        self.ledger = NO_LEDGER
        self.pods: dict[str, PodFact] = {}
        self.jobs: dict[str, Job] = {}
        self.placements: dict[str, tuple[str, ...]] = {}
        self.whole: set[AttemptKey] = set()
        self.pre_runs: set[AttemptKey] = set()
        self._ranks_bound: dict[AttemptKey, set[int]] = {}
        self.sizes: dict[AttemptKey, int] = {}
        self.aborted_s: dict[AttemptKey, int] = {}
        self.partial_s: dict[AttemptKey, int] = {}
        self.attempts_at: dict[str, set[AttemptKey]] = {}
        self._policies: dict[str, PolicyRange] = {}
        self._revoked: dict[str, dict[AttemptKey, Cause]] = {}
        self._keys_of_job: dict[str, dict[str, None]] = {}
        self._keys_on_node: dict[str, dict[str, None]] = {}
        self._uid_of: dict[str, str] = {}

    def pod_at(self, key: str) -> PodFact | None:
        """Our pod under this key."""
        return self.pods.get(key)

    def job_at(self, key: str) -> Job | None:
        """The job under this key."""
        return self.jobs.get(self._uid_of.get(key, ""))

    def entry(self, key: AttemptKey) -> Entry | None:
        """The ledger's entry of an attempt."""
        return next((entry for entry in self.ledger.entries if entry.key == key), None)

    def put_pod(self, key: str, pod: PodFact | None) -> None:
        """Our pod under this key; None when it is gone."""
        before = self.pods.pop(key, None)
        if before is not None:
            self._keys_of_job[before.job_uid].pop(key)
            self._keys_on_node.get(before.node, {}).pop(key, None)
        if pod is not None:
            self.pods[key] = pod
            self.attempts_at.setdefault(key, set()).add(pod.key)
            self._keys_of_job.setdefault(pod.job_uid, {})[key] = None
            self._keys_on_node.setdefault(pod.node, {})[key] = None
            if pod.node:
                ranks = self._ranks_bound.setdefault(pod.key, set())
                if pod.node_rank not in ranks:
                    ranks.add(pod.node_rank)
                    self.partial_s.pop(pod.key, None)
        for changed in filter(None, (before, pod)):
            self._count(changed.key)

    def put_job(self, key: str, job: Job | None) -> None:
        """The job under this key; None when it is gone."""
        before = self._uid_of.pop(key, None)
        if before is not None:
            del self.jobs[before]
        if job is not None:
            self._uid_of[key] = job.uid
            self.jobs[job.uid] = job
            # Whoever changes the policy afterwards does not make what was counted wrong.
            held = self._policies.get(job.uid, PolicyRange(job.policy, job.policy, job.deadline_s))
            self._policies[job.uid] = held.changed(job.policy, job.deadline_s)

    def put_ledger(self, ledger: Ledger) -> None:
        """The ledger as it is written now."""
        self.ledger = ledger
        for entry in ledger.entries:
            self.sizes.setdefault(entry.key, len(entry.nodes))
            if entry.purpose is Purpose.PRE_RUN:
                self.pre_runs.add(entry.key)
            if entry.cause is not None:
                self._revoked.setdefault(entry.job_uid, {}).setdefault(entry.key, entry.cause)
                self.aborted_s.setdefault(entry.key, self.now_s)

    def facts(self, *, jobs: Collection[str], nodes: Collection[str] = ()) -> Facts:
        """What invariants need to check these jobs, and what was given away of these nodes."""
        available = {node: self.rooms.available(node, now_s=self.now_s) for node in nodes}
        return replace(self.holders(jobs=jobs, nodes=nodes), allocatable=available)

    def holders(self, *, jobs: Collection[str], nodes: Collection[str]) -> Facts:
        """The same without what the nodes have."""
        keys = {key: None for uid in jobs for key in self._keys_of_job.get(uid, ())}
        keys |= {key: None for node in nodes for key in self._keys_on_node.get(node, ())}
        pods = [self.pods[key] for key in keys]
        uids = {*jobs, *(pod.job_uid for pod in pods)}
        here = set(nodes)
        entries = [e for e in self.ledger.entries if e.job_uid in uids or here & {*e.nodes}]
        return Facts(
            allocatable={},
            pods=pods,
            ledger=replace(self.ledger, entries=tuple(entries)),
            # One that is being deleted gets no other attempt, and may have no status any more.
            records={
                uid: self.jobs[uid].record
                for uid in uids
                if uid in self.jobs and not self.jobs[uid].deleting
            },
            policies={uid: self._policies[uid] for uid in uids if uid in self.jobs},
            whole=self.whole,
            revoked={k: cause for uid in uids for k, cause in self._revoked.get(uid, {}).items()},
            pre_runs=self.pre_runs,
        )

    def overdue(self, bound_s: int, *, led_since_s: float) -> Iterable[AttemptKey]:
        """Gangs that have been bound in part, and never whole, for longer than this since the last
        binding of a rank, while a leader led."""
        return [
            key
            for key, since_s in self.partial_s.items()
            if self.now_s - max(since_s, led_since_s) > bound_s
        ]

    def bound(self, key: AttemptKey) -> list[PodFact]:
        """The pods of an attempt that were bound, also those that ended since."""
        keys = self._keys_of_job.get(key[0], ())
        return [p for p in (self.pods[each] for each in keys) if p.key == key and p.node]

    def _count(self, key: AttemptKey) -> None:
        """Whether a gang is whole, or bound in part; what is told to go counts as neither.

        It is whole once each of its ranks was bound, although a pod may be gone before the last is
        bound: a node is removed while the last binding is under way.
        """
        if key in self.whole:
            return
        bound = self.bound(key)
        ranks = self._ranks_bound.get(key, set())
        if key in self.sizes and ranks == set(range(self.sizes[key])):
            self.whole.add(key)
            self.partial_s.pop(key, None)
        elif any(pod.live and not pod.deleting for pod in bound):
            self.partial_s.setdefault(key, self.now_s)
        else:
            self.partial_s.pop(key, None)
