"""Walk a history from its first revision to its last, and hold each write against the invariants.

Charged to us is only what our own writes cause: who holds too much of a node is asked when a
binding of ours lands or a gang of ours is committed, of the nodes it names. `cluster` says why only
what a revision touches is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from history import amounts, invariants, stored
from history.checkpoint_commits import late_commits, misplaced
from history.cluster import NO_LEDGER, Cluster
from history.invariants import ViolationError
from history.notes import Declared
from history.rooms import Guest
from history.stored import PodFact
from history.trail import Trail, Violation
from railwright_scheduler.attempt.ledger import EntryState, Ledger
from railwright_scheduler.attempt.phases import Phase
from railwright_testbed.history import MARKS, REGISTRY, Change, Revision

Json = Mapping[str, Any]
Deletes = Collection[tuple[str, int]]
"""Our deletes of pods that landed, by the pod's key and the revision they made."""

BOUND_S = 60
"""How long a gang may be bound in part without progress while a leader is there."""

TIMED = frozenset({"agents", "freshness"})
"""The fields of the Fabric that change with time alone."""

LATE_S = 12
"""A binding that was sent before its abort was written may land so long after it: the deadline of
a request, and what the clock of a history is coarse by. Of a simulated history it may be more."""


class HistoryChecker:
    """Reads revisions in order. ``deletes`` are those of pods that the operator asked for,
    ``led_since_s`` is since when a leader leads, in seconds since 1970.

    ``timed_writes`` counts the writes at rest that are allowed: time alone makes an agent silent,
    ends the wait for the agents that reported before, and makes the freshness due.
    """

    def __init__(
        self,
        deletes: Deletes,
        *,
        late_s: int = LATE_S,
        bound_s: int = BOUND_S,
        led_since_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.cluster = Cluster()
        self.trail = Trail()
        self.revisions = 0
        self.number = 0
        self.timed_writes = 0
        self._deletes = deletes
        self._late_s = late_s
        self._bound_s = bound_s
        self._led_since_s = led_since_s
        self._declared = Declared()
        self._key = ""
        self._jobs: set[str] = set()
        self._charged: set[str] = set()
        self._fabric: dict[str, object] = {}

    def read(self, revisions: Iterable[Revision]) -> list[Violation]:
        """All violations of these revisions, in order."""
        for revision in revisions:
            self._read(revision)
        return self.trail.violations

    def _read(self, revision: Revision) -> None:
        self.revisions += 1
        self.number = revision.number
        self._jobs, self._charged = set(), set()
        for change in revision.changes:
            self._change(change)
        facts = self.cluster.facts(jobs=self._jobs, nodes=self._charged)
        self.run_check(lambda: invariants.check(facts))
        for key in self.cluster.overdue(self._bound_s, led_since_s=self._led_since_s()):
            self.find(f"I2: {key} was bound in part for {self._bound_s} s, and never whole")

    def find(self, finding: str) -> None:
        """Report this, unless a test declared it."""
        if not self._declared.covers(finding):
            self.trail.find(finding, revision=self.number, key=self._key)

    def run_check(self, check: Callable[[], None]) -> None:
        """Report the violation that this check raises, if any."""
        try:
            check()
        except ViolationError as violation:
            self.find(str(violation))

    def _change(self, change: Change) -> None:
        if change.key == MARKS:
            unneeded = self._declared.read(change.value or {})
            if unneeded is not None:
                self.find(unneeded)
            return
        self._key = change.key
        kind, _, name = change.key.removeprefix(REGISTRY).partition("/")
        if change.value is not None:
            self.cluster.now_s = max(self.cluster.now_s, stored.stamp_s(change.value))
        if kind == "pods":
            self._pod(change.key, change.value)
        elif kind == "minions":
            has = None if change.value is None else amounts.of_node(change.value.get("status", {}))
            self.cluster.rooms.put_node(name, has, now_s=self.cluster.now_s)
        elif kind == "railwright.dev":
            self._of_ours(name.partition("/")[0], change)

    def _of_ours(self, plural: str, change: Change) -> None:
        who = "" if change.value is None else f" by {stored.writers(change.value)}"
        self._trace(f"{'deleted' if change.value is None else 'written'}{who}")
        changed = self._changed_fields(change.value) if plural == "fabrics" else ()
        if self._declared.resting and changed and TIMED.issuperset(changed):
            self.timed_writes += 1
        elif self._declared.resting:
            self.find(f"I20: at rest {change.key} is written {','.join(changed)}".rstrip())
        if plural == "trainingjobs":
            self._job(change.key, change.value)
        elif plural == "ledgers":
            self._ledger(change.value)
        elif plural == "placements":
            before = self.cluster.placements.pop(change.key, None)
            if change.value is not None and stored.is_ours(change.value):
                self.cluster.placements[change.key] = stored.owners(change.value)
                if before is None:
                    self._placed(change.value["spec"])

    def _changed_fields(self, fabric: Json | None) -> list[str]:
        """The fields of its status that differ from the Fabric before; what it says of agents is
        one."""
        before, self._fabric = self._fabric, stored.fabric_status(fabric)
        both = before.keys() | self._fabric.keys()
        return sorted(name for name in both if before.get(name) != self._fabric.get(name))

    def _placed(self, spec: Json) -> None:
        key = spec["jobUID"], spec["attempt"]
        job, resume = self.cluster.jobs.get(key[0]), stored.points(spec.get("resume", ()))
        # A late write may land when its attempt is over.
        if job is not None and self.cluster.entry(key) is not None:
            is_pre_run = spec["purpose"] == "PreRun"
            for found in misplaced(key, resume, job.record, is_pre_run=is_pre_run):
                self.find(found)

    def _trace(self, what: str) -> None:
        where = self._key.removeprefix(REGISTRY).removeprefix("railwright.dev/")
        self.trail.add_change(self.number, self.cluster.now_s, f"{where} {what}")

    def _pod(self, key: str, value: Json | None) -> None:
        old = self.cluster.pod_at(key)
        if value is not None and old is not None and value["metadata"]["uid"] != old.uid:
            self._our_pod(key, old, None)
            old = None
        if old is not None:
            self._our_pod(key, old, None if value is None else stored.pod(value, born=old))
        elif value is not None and stored.is_ours(value) and not value["spec"].get("nodeName"):
            self._our_pod(key, None, stored.pod(value, born=None))
        else:
            self.cluster.rooms.put_guest(key, self._guest(value))

    def _guest(self, value: Json | None) -> Guest | None:
        if value is None or value.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            return None
        node = value["spec"].get("nodeName")
        takes = amounts.of_pod(value["spec"])
        return Guest(node, takes, self.cluster.now_s) if node else None

    def _our_pod(self, key: str, old: PodFact | None, new: PodFact | None) -> None:
        self._trace(_pod_change(old, new))
        going = old is not None and (new is None or new.deleting > old.deleting)
        if old is not None and going and (key, self.number) in self._deletes:
            facts = self.cluster.facts(jobs=[old.job_uid])
            self.run_check(lambda: invariants.check_delete(facts, old))
        if new is not None and new.node and (old is None or not old.node):
            self._bound(new)
        self.cluster.put_pod(key, new)
        self._jobs |= {pod.job_uid for pod in (old, new) if pod is not None}

    def _bound(self, pod: PodFact) -> None:
        self._charged.add(pod.node)
        entry = self.cluster.entry(pod.key)
        if entry is not None and pod.node_rank >= len(entry.nodes):
            self.find(f"I4: {pod.name} is rank {pod.node_rank} of {len(entry.nodes)}")
            return
        self.run_check(lambda: invariants.check_bind(self.cluster.ledger, pod, node=pod.node))
        late_s = self.cluster.now_s - self.cluster.aborted_s.get(pod.key, self.cluster.now_s)
        if entry is not None and entry.state is EntryState.ABORTING and late_s > self._late_s:
            self.find(f"I14: {pod.name} is bound {late_s} s after the abort of its attempt")

    def _ledger(self, value: Json | None) -> None:
        old = self.cluster.ledger
        if value is None:
            self.find("I14: the ledger is deleted")
            return
        try:
            new = stored.ledger(value)
        except AssertionError as error:
            self.find(f"I14: {error}")
            return
        if old is not NO_LEDGER:
            self.run_check(lambda: invariants.check_ledger(old, new))
        self._trace(_ledger_change(old, new))
        self._jobs |= {job_uid for job_uid, _, _ in _states(old) ^ _states(new)}
        earlier = {entry.key for entry in old.entries}
        for entry in new.entries:
            if entry.key not in earlier and entry.state is EntryState.COMMITTING:
                self._charged |= {*entry.nodes}
        self.cluster.put_ledger(new)

    def _job(self, key: str, value: Json | None) -> None:
        old = self.cluster.job_at(key)
        new = None if value is None else stored.job(value)
        self._jobs |= {job.uid for job in (old, new) if job is not None}
        if new is not None:
            is_pre_run = (new.uid, new.record.attempt) in self.cluster.pre_runs
            record = new.record
            self.run_check(lambda: invariants.check_pre_run(record, is_pre_run=is_pre_run))
        if old is not None and new is not None and old.uid == new.uid:
            self.run_check(lambda: invariants.check_record(old.record, new.record))
            for found in late_commits(old.record, new.record):
                self.find(found)
            began = new.record.phase is Phase.RUNNING is not old.record.phase
            if began and (new.uid, new.record.attempt) not in self.cluster.whole:
                self.find(f"I4: {new.name} is Running, and was never bound whole")
            if new.status != old.status and new.comparable_status == old.comparable_status:
                self.find(f"I20: the status of {new.name} is written, and only times are news")
        self.cluster.put_job(key, new)


def _states(ledger: Ledger) -> set[tuple[str, int, EntryState]]:
    return {(entry.job_uid, entry.attempt, entry.state) for entry in ledger.entries}


def _pod_change(old: PodFact | None, new: PodFact | None) -> str:
    if new is None:
        return "is gone"
    if old is None:
        return f"is made, rank {new.node_rank} of attempt {new.attempt}"
    if new.node != old.node:
        return f"is bound to {new.node}"
    if new.deleting != old.deleting:
        return "is told to go"
    return f"is {new.phase}"


def _ledger_change(old: Ledger, new: Ledger) -> str:
    entries = ", ".join(f"{e.job_name}-{e.attempt} {e.state}" for e in new.entries)
    return f"holds epoch {new.epoch} of {new.holder}: {entries or 'nothing in flight'}"
