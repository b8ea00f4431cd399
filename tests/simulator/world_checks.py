"""What only the simulated cluster knows, held against what each replica of the operator does.

The history checker reads what is stored. These checks also know who wrote it, what an admission
webhook answered, and which launcher received which answer from whom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from history import invariants, job_budgets, stored
from history.cluster import NO_LEDGER, Cluster
from history.invariants import ViolationError
from railwright import profile, protocol
from railwright_api import names, routes
from railwright_kube import paths
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.ledger import AttemptKey, Entry, Ledger
from simulator.api_server import ApiRequest, ApiServer
from simulator.replicas import Replica

Json = Mapping[str, Any]

REFUSALS_MAX = 3
"""How often a replica may send a create that is refused: the answers to some may be lost."""

REQUESTS_S = 120
"""How long one leader may take to act on a change while requests fail: a new leader takes over and
lists, an event is 16 s late or its watch is opened again, and the ledger and pods are written. Each
of these six steps is given up after 10 s and tried again after up to 10 s; a retry succeeds."""

CACHES = {
    "pods": (paths.PODS, "pods"),
    "nodes": (paths.NODES, "nodes"),
    "jobs": (routes.kind(names.TRAINING_JOBS), "job_objects"),
    "placements": (routes.kind(names.PLACEMENTS), "placement_objects"),
    "profiles": (routes.kind(names.PROFILES), "profiles"),
}
"""The path of a kind, and the informer of it."""


class WorldChecks:
    """The checks of one run. ``cluster`` is what the history checker read so far, ``led_since_s``
    since when one leader leads undisturbed, in seconds since 1970."""

    def __init__(
        self, server: ApiServer, cluster: Cluster, *, led_since_s: Callable[[], float]
    ) -> None:
        self._led_since_s = led_since_s
        self._server = server
        self._cluster = cluster
        self._writers: dict[int, str] = {}
        self._refused: Counter[tuple[str, str, AttemptKey]] = Counter()
        self._suspended_s: dict[str, int] = {}
        self._stopping: set[tuple[str, AttemptKey]] = set()
        self._made: dict[AttemptKey, dict[int, str]] = {}
        self._profiled: set[str] = set()
        self._links: object = None
        self._news = 0
        self._earlier: frozenset[AttemptKey] | None = None
        self._costs: Counter[AttemptKey] = Counter()

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
            is_new = self._cluster.entry(entry.key) is None
            if is_new and self._cluster.now_s - max(since_s, self._led_since_s()) > REQUESTS_S:
                raise ViolationError(f"I12: {entry.key} begins, and its job has been suspended")

    def after_status(self, job: Json) -> None:
        """I18: a job is moved no more often than links changed."""
        uid = job["metadata"]["uid"]
        if job["spec"].get("suspend"):
            self._suspended_s.setdefault(uid, self._cluster.now_s)
        else:
            self._suspended_s.pop(uid, None)
        causes = self._cluster.holders(jobs=[uid], nodes=()).revoked.values()
        for finding in job_budgets.move_violations(uid, causes, news=self._news):
            raise ViolationError(finding)

    def after_topology(self, fabric: Json) -> None:
        """Count the changes of what is published of links."""
        links = fabric.get("status", {}).get("topology", {}).get("levels")
        self._news += links != self._links
        self._links = links

    def after_profile(self, spec: Json, recorded: Collection[int]) -> None:
        """I23: a Profile is what all ranks of its attempt recorded."""
        found = profile.profile(spec["document"].encode())
        if {*recorded} != {*range(found.ranks)}:
            key = spec["jobUID"], spec["attempt"]
            raise ViolationError(f"I23: a Profile of {key} is stored, {recorded} have recorded")
        self._profiled.add(spec["jobUID"])

    def check_cause(self, entry: Entry) -> None:
        """I18 and I23, of an abort that is written: for its profile a pre-run alone ends, and once
        that is stored; a pre-run is not moved."""
        assert entry.cause is not None
        is_pre_run, code = entry.key in self._cluster.pre_runs, entry.cause.code
        is_recorded = entry.job_uid in self._profiled
        if code is CauseCode.PROFILED and not (is_pre_run and is_recorded):
            raise ViolationError(f"I23: {entry.key} ended as profiled, and nothing was recorded")
        if code is CauseCode.NOT_PROFILED and not is_pre_run:
            raise ViolationError(f"I23: {entry.key} ended as not profiled, and is no pre-run")
        if code is CauseCode.REMAPPED and is_pre_run:
            raise ViolationError(f"I18: {entry.key} is moved, and is a pre-run")

    def launcher_starts(self, key: AttemptKey, world: protocol.WorldInfo) -> None:
        """I26: a pre-run reads no checkpoint, and none of a pre-run is read."""
        for group in world.groups:
            sources = {(key[0], point.attempt) for point in group.resume}
            if sources and (key in self._cluster.pre_runs or sources & self._cluster.pre_runs):
                raise ViolationError(f"I26: {key} may read {group}, which no pre-run has part in")

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

    def request_landed(
        self, writer: str, request: ApiRequest, status: int, pod: Json, *, known_version: int
    ) -> None:
        """A request of a replica landed; ``pod`` is the one that it is about, if that was
        there. Its sender knew pods up to a version."""
        if self._earlier is not None and request.method != "GET" and status < 400:
            self._count_cost(request, pod)
        if request.method == "DELETE" and status == 200 and pod:
            metadata, key = pod["metadata"], _attempt(pod)
            is_known = int(metadata["resourceVersion"]) <= known_version
            if "deletionTimestamp" in metadata and is_known:
                raise ViolationError(f"I20: {writer} deletes {metadata['name']} again and again")
            if key is not None:
                self._stopping.add((writer, key))
        is_create = request.method == "POST" and request.path.endswith("/pods")
        if is_create and status == 403:
            key = _attempt(request.body)
            assert key is not None, request.body
            found = writer, request.body["metadata"]["name"], key
            self._refused[found] += 1
            if self._refused[found] > REFUSALS_MAX:
                raise ViolationError(f"I20: {found} is refused, and sent {REFUSALS_MAX} times")

    def count_costs(self) -> None:
        """Count the requests of attempts that begin from now on: nothing fails any more."""
        self._earlier = frozenset(self._cluster.sizes)

    def _count_cost(self, request: ApiRequest, pod: Json) -> None:
        key = None if not pod else _attempt(pod)
        if request.path.endswith("/pods"):
            key = _attempt(request.body)
        elif request.path.endswith("/placements"):
            key = request.body["spec"]["jobUID"], request.body["spec"]["attempt"]
        if key is not None and key not in (self._earlier or ()):
            self._costs[key] += 1

    def check_costs(self) -> None:
        """I20, of the attempts that began since nothing fails any more."""
        for key, requests in self._costs.items():
            pods = max(self._cluster.sizes.get(key, 0), len(self._made.get(key, ())))
            invariants.check_cost(key, requests=requests, pods=pods)

    def is_stopping(self, replica: Replica, key: AttemptKey) -> bool:
        """Whether this replica has begun to delete the attempt: it lets no launcher go on (I28)."""
        return (replica.name, key) in self._stopping

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

    def stale_caches(self, replica: Replica) -> Iterator[str]:
        """I17, at rest: how the caches of the leader differ from what is stored."""
        for kind, (path, informer) in CACHES.items():
            records = getattr(replica.parts.informers, informer).records
            held = {uid: record.rv for uid, record in records.items()}
            objects = (found["metadata"] for found in self._server.objects(path))
            there = {found["uid"]: int(found["resourceVersion"]) for found in objects}
            yield from invariants.differences(kind, held, there)


def _jobs(ledger: Ledger) -> list[str]:
    return [entry.job_uid for entry in ledger.entries]


def _attempt(pod: Json) -> AttemptKey | None:
    labels = pod["metadata"].get("labels", {})
    uid = labels.get(names.LABEL_JOB_UID)
    return None if uid is None else (uid, int(labels[names.LABEL_ATTEMPT]))
