"""What only the simulated cluster knows, held against what each replica of the operator does.

The history checker reads what is stored. These checks also know who wrote it, what an admission
webhook answered, and which launcher received which answer from whom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from history import stored
from history.cluster import NO_LEDGER, Cluster
from railwright_api import names, routes
from railwright_kube import paths
from railwright_scheduler import invariants, job_budgets
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import AttemptKey, Ledger
from railwright_scheduler.invariants import ViolationError
from simulator.api_server import ApiRequest, ApiServer
from simulator.replicas import Replica

Json = Mapping[str, Any]

REFUSALS_MAX = 3
"""How often a replica may send a create that is refused: the answers to some may be lost."""

DELETES_MAX = 8
"""How often a replica may delete a pod that is being deleted: the answers to some may be lost, and
its watch may be late."""

UNSUSPENDED_S = 600
"""How long a leader may take to observe that a job was suspended: it may have been paused, and its
watch may have lost the change."""

CACHES = {
    "pods": (paths.PODS, "pods"),
    "nodes": (paths.NODES, "nodes"),
    "jobs": (routes.kind(names.TRAINING_JOBS), "job_objects"),
    "placements": (routes.kind(names.PLACEMENTS), "placement_objects"),
}
"""The path of a kind, and the informer of it."""


class WorldChecks:
    """The checks of one run. ``cluster`` is what the history checker read so far."""

    def __init__(self, server: ApiServer, cluster: Cluster) -> None:
        self._server = server
        self._cluster = cluster
        self._writers: dict[int, str] = {}
        self._refused: Counter[tuple[str, str, AttemptKey]] = Counter()
        self._deletes: Counter[tuple[str, str]] = Counter()
        self._suspended_s: dict[str, int] = {}
        self._stopping: set[tuple[str, AttemptKey]] = set()
        self._made: dict[AttemptKey, dict[int, str]] = {}

    def before_ledger(self, value: Json, writer: str) -> None:
        """I3, I6, I7, I12 and I14, of a ledger that a replica writes, by what was stored before."""
        cluster, new = self._cluster, stored.ledger(value)
        other = self._writers.setdefault(new.epoch, writer)
        if other != writer:
            raise ViolationError(f"I14: {writer} writes the ledger in epoch {new.epoch} of {other}")
        if cluster.ledger is not NO_LEDGER:
            facts = cluster.facts(jobs=[*dict.fromkeys(_jobs(cluster.ledger) + _jobs(new))])
            invariants.check_entries(facts, new)
            self._check_suspended(new)

    def _check_suspended(self, new: Ledger) -> None:
        """I12: no attempt begins of a job that has been suspended for long."""
        for entry in new.entries:
            job, since_s = (
                self._cluster.jobs.get(entry.job_uid),
                self._suspended_s.get(entry.job_uid),
            )
            if job is None or since_s is None or entry.attempt <= job.record.attempt:
                continue
            if self._cluster.now_s - since_s > UNSUSPENDED_S:
                raise ViolationError(f"I12: {entry.key} begins, and its job has been suspended")

    def after_status(self, job: Json) -> None:
        """I24 and I25: a job ends as Failed after as many failures as it may have, or at its
        deadline. Its policy never changes here."""
        uid, status = job["metadata"]["uid"], job.get("status") or {}
        if job["spec"].get("suspend"):
            self._suspended_s.setdefault(uid, self._cluster.now_s)
        else:
            self._suspended_s.pop(uid, None)
        last, started = status.get("lastTermination"), status.get("startedAt")
        record = replace(
            self._cluster.jobs[uid].record,
            last_termination=None
            if last is None
            else Cause(CauseCode(last["cause"]), "", time_s=stored.time_s(last["time"])),
            started_s=None if started is None else stored.time_s(started),
        )
        facts = self._cluster.holders(jobs=[uid], nodes=())
        causes = [facts.revoked[key] for key in sorted(facts.revoked)]
        deadline_s = job["spec"].get("activeDeadlineSeconds")
        for finding in (
            *job_budgets.violations(uid, record, facts.policies[uid], causes, news=None),
            *job_budgets.deadline_violations(uid, record, deadline_s),
        ):
            raise ViolationError(finding)

    def after_create(self, pod: Json) -> None:
        """I14: a pod of a committing attempt is there, and so is the Placement of the attempt."""
        made = stored.pod(pod, born=None)
        self._made.setdefault(made.key, {}).setdefault(made.node_rank, made.uid)
        entry = self._cluster.entry(made.key)
        if entry is None or entry.job_uid not in self._cluster.jobs:
            return
        name = names.placement_name(entry.job_name, entry.attempt)
        placements = self._server.objects(routes.kind(names.PLACEMENTS))
        own = [
            each["spec"]
            for each in placements
            if each["metadata"]["name"] == name and each["spec"]["jobUID"] == entry.job_uid
        ]
        if entry.cause is None and (not own or own[0]["nodes"] != list(entry.nodes)):
            raise ViolationError(f"I14: {made.name} is made, and no Placement of {made.key} is")

    def after_change(self, pod: Json) -> None:
        """I2: all pods of a gang were made before one of them is bound."""
        if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]:
            bound = stored.pod(pod, born=None)
            invariants.check_made(self._cluster.ledger, bound, self._made[bound.key])

    def request_landed(self, writer: str, request: ApiRequest, status: int, pod: Json) -> None:
        """A request of a replica landed; ``pod`` is the one that it deletes, if it does."""
        if request.method == "DELETE" and status == 200 and pod:
            key = _attempt(pod)
            if key is not None:
                self._stopping.add((writer, key))
            if "deletionTimestamp" in pod["metadata"]:
                self._count_delete(writer, pod["metadata"])
        is_create = request.method == "POST" and request.path.endswith("/pods")
        if is_create and status == 403:
            key = _attempt(request.body)
            assert key is not None, request.body
            found = writer, request.body["metadata"]["name"], key
            self._refused[found] += 1
            if self._refused[found] > REFUSALS_MAX:
                raise ViolationError(f"I20: {found} is refused, and sent {REFUSALS_MAX} times")

    def _count_delete(self, writer: str, metadata: Json) -> None:
        """I20: a pod that is being deleted needs no other delete."""
        deletes = writer, metadata["uid"]
        self._deletes[deletes] += 1
        if self._deletes[deletes] > DELETES_MAX:
            name = metadata["name"]
            raise ViolationError(f"I20: {writer} deletes {name} {DELETES_MAX} times, and it goes")

    def launcher_continues(self, replica: Replica, key: AttemptKey) -> None:
        """A launcher may go on: I28, unless this very replica has begun to delete its attempt."""
        if (replica.name, key) in self._stopping:
            raise ViolationError(f"I28: {replica.name} deletes pods of {key} and lets others go on")

    def launcher_stops(self, pod: Json, key: AttemptKey) -> None:
        """A launcher must stop: I27, unless its attempt is over or revoked, or may have started
        with an earlier pod of its rank, which somebody deleted."""
        job, uid = self._cluster.jobs.get(key[0]), pod["metadata"]["uid"]
        if job is None or key in self._cluster.aborted_s:
            return
        if uid not in self._made[key].values():
            return
        record = job.record
        if record.live and record.attempt == key[1]:
            raise ViolationError(f"I27: a launcher of {key} has to stop, and its attempt lives")

    def check_caches(self, replica: Replica) -> None:
        """I17, at rest: the caches of the leader hold what is stored."""
        for kind, (path, informer) in CACHES.items():
            records = getattr(replica.parts.informers, informer).records
            held = {uid: record.rv for uid, record in records.items()}
            objects = (found["metadata"] for found in self._server.objects(path))
            there = {found["uid"]: int(found["resourceVersion"]) for found in objects}
            invariants.check_copy(kind, held, there)


def _jobs(ledger: Ledger) -> list[str]:
    return [entry.job_uid for entry in ledger.entries]


def _attempt(pod: Json) -> AttemptKey | None:
    labels = pod["metadata"].get("labels", {})
    uid = labels.get(names.LABEL_JOB_UID)
    return None if uid is None else (uid, int(labels[names.LABEL_ATTEMPT]))
