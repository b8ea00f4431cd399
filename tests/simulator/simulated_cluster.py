"""The whole simulated cluster of one seed: replicas of the operator, machines, launchers, users.

Every stored change goes to the history checker at once, as if it were read from etcd; beside it
stands what only this cluster knows: which nodes are dead, and which ranks hang.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter, deque
from collections.abc import Collection, Mapping
from functools import partial
from random import Random
from typing import Any

from history import invariants, stored
from history.checker import HistoryChecker
from history.invariants import Facts, ViolationError
from railwright_kube import paths
from railwright_scheduler.attempt import gang
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.ledger import AttemptKey, Entry
from railwright_scheduler.attempt.phases import Phase
from railwright_testbed.history import REGISTRY, Revision
from railwright_testbed.history import Change as RecordedChange
from simulator.api_server import ApiRequest, ApiResponse, ApiServer
from simulator.checkpoints import Checkpoints
from simulator.control_plane import ControlPlane
from simulator.controllers import Controllers
from simulator.disruptions import Disruptions
from simulator.double_bookings import DoubleBookings
from simulator.launchers import Launchers
from simulator.links import LATE_S_MAX, ApiLink, LinkFaults
from simulator.machines import Machines
from simulator.processes import EPOCH_S
from simulator.reads import Reads
from simulator.replicas import Replica
from simulator.site import Site
from simulator.stored_objects import Change
from simulator.times import timestamp
from simulator.tolerance import ToleratedRooms
from simulator.training import Training
from simulator.users import Users
from simulator.virtual_loop import VirtualLoop
from simulator.workloads import Workloads
from simulator.world_checks import REQUESTS_S, WorldChecks

OPERATOR, OTHERS = "railwright", "others"
TRACE_LINES = 80
BOUND_S = round(gang.COMMIT_DEADLINE_S) + REQUESTS_S
"""How long a gang may be bound in part without progress under one leader, which then revokes it."""

CUT_FORGOTTEN_S = LATE_S_MAX + 20.0
"""How long after its cut has ended a node may still be taken for lost by one leader. Its launcher
sends a message again within 7 s (a connection that times out, a tick, an interval), its kubelet
renews within 11 s, and the leader reads that within 2 s. A write of the ledger that was sent before
is answered within 10 s, or lands late."""

REPLICAS_MAX = 3
CLOCK_ERRORS_S = (0, 0, 0, -400, 60, 1_000, 10**8)
RECORDED = {"Pod": "pods", "Node": "minions", "Lease": "leases"}


class SimulatedCluster:
    """The cluster of one seed."""

    def __init__(self, loop: VirtualLoop, seed: int, *, has_site: bool = False) -> None:
        self.loop = loop
        self.rng = Random(seed)
        self.faults = LinkFaults()
        self.server = ApiServer(wall_clock=lambda: EPOCH_S + loop.time())
        self.server.admission.append(_with_requests)
        self.server.on_change.append(self._record)
        self.requests: Counter[str] = Counter()
        self.reads = Reads()
        self.digest = hashlib.sha256()
        self.trace: deque[str] = deque(maxlen=TRACE_LINES)
        self.checker = HistoryChecker(
            _Deletes(self),
            late_s=math.ceil(LATE_S_MAX) + 1,
            bound_s=BOUND_S,
            led_since_s=lambda: EPOCH_S + self.led_since_s,
        )
        self._rooms = self.checker.cluster.rooms = ToleratedRooms(
            self._holders, version=lambda: self.server.version
        )
        self._bookings = DoubleBookings(lambda: self.server.version)
        self._disruptions = Disruptions(lambda: self.server.version)
        self.causes: dict[AttemptKey, CauseCode] = {}
        self._began_s: dict[AttemptKey, float] = {}
        self.checks = WorldChecks(
            self.server, self.checker.cluster, led_since_s=lambda: EPOCH_S + self.led_since_s
        )
        self.checkpoints = Checkpoints(Random(f"{seed} checkpoints"))
        self._writer, self._replica = OTHERS, ""
        self._born = 0
        self.replicas: list[Replica] = []
        self.holder: Replica | None = None
        self.workloads = Workloads(Random(f"{seed} workloads"))
        self.users = Users(self.server, Random(f"{seed} users"), self.workloads)
        machines_rng, terminations = Random(f"{seed} machines"), Random(f"{seed} terminations")
        self.machines = Machines(
            loop,
            self.server,
            machines_rng,
            terminations,
            on_started=lambda pod: self.launchers.start(pod),
            on_sigterm=lambda pod: self.launchers.sigterm(pod),
        )
        self.control_plane = ControlPlane(loop, self.server, machines_rng, self.machines)
        self.controllers = self._controllers(Random(f"{seed} controllers"), has_site=has_site)
        self.launchers = Launchers(
            loop,
            self.server,
            lambda: self.machines,
            Random(f"{seed} launchers"),
            terminations,
            route=self._route,
            total_steps=self.users.total_steps,
            workloads=self.workloads,
            checks=self.checks,
            checkpoints=self.checkpoints,
        )

    def _controllers(self, rng: Random, *, has_site: bool) -> Controllers | Site:
        if not has_site:
            return Controllers(self.loop, self.server, rng)
        machines, faults = self.machines, self.faults
        return Site(self.loop, self.server, rng, machines=machines, faults=faults, note=self.note)

    def note(self, line: str) -> None:
        """Add a line to the trace."""
        timed = f"{self.loop.time():8.2f} {line}"
        self.trace.append(timed)
        self.digest.update(f"{timed}\n".encode())

    @property
    def leader(self) -> Replica | None:
        """The holder of the Lease, or whoever takes itself for it."""
        if self.holder is not None and self.holder.is_leader:
            return self.holder
        return next((replica for replica in reversed(self.replicas) if replica.is_leader), None)

    @property
    def led_since_s(self) -> float:
        """Since when one leader leads that is not paused and gets all events; inf if none does."""
        leading = [replica for replica in self.replicas if replica.is_leader]
        if len(leading) != 1 or leading[0].paused or self.faults.missed:
            return math.inf
        return leading[0].undisturbed_since_s

    @property
    def writes(self) -> int:
        """How many requests of the operator landed that were no reads."""
        return sum(self.requests.values()) - self.requests["GET"]

    def start_replica(self) -> Replica:
        """Another replica, which does not lead yet."""
        self._born += 1
        link = ApiLink(
            self.loop,
            self.server,
            self.faults,
            Random(self.rng.getrandbits(60)),
            carry_out=partial(self._carry_out, f"replica-{self._born}"),
            on_read=self.reads.count,
        )
        replica = Replica(
            f"replica-{self._born}",
            self.loop,
            link,
            rng=Random(self.rng.getrandbits(60)),
            clock_error_s=self.rng.choice(CLOCK_ERRORS_S),
        )
        self.replicas.append(replica)
        return replica

    async def end_replica(self, replica: Replica) -> None:
        """Crash a replica."""
        self.replicas.remove(replica)
        await replica.crash()

    def _route(self) -> Replica | None:
        """Where a connection to the Service of launchers arrives."""
        living = [replica for replica in self.replicas if not replica.has_ended]
        leading = [replica for replica in living if replica.is_leader and not replica.paused]
        return self.rng.choice(leading or living) if living else None

    def _holders(self, nodes: Collection[str]) -> Facts:
        """Who holds something of these nodes."""
        cluster = self.checker.cluster
        jobs = [e.job_uid for e in cluster.ledger.entries if not set(nodes).isdisjoint(e.nodes)]
        return cluster.holders(jobs=jobs, nodes=nodes)

    def _carry_out(self, replica: str, request: ApiRequest, known_version: int) -> ApiResponse:
        """A request of a replica lands, which it sent when it could know nodes and pods up to this
        version."""
        self._writer, self._replica = OPERATOR, replica
        self._rooms.known_version = known_version
        pod = {} if request.method == "GET" else self._pod_at(request.path)
        try:
            response = self.server.answer(request)
        finally:
            self._writer, self._rooms.known_version = OTHERS, None
        self.requests[request.method] += 1
        if request.method != "GET":
            self.note(f"{replica} {request.method} {request.path} {response.status}")
        self.checks.request_landed(
            replica, request, response.status, pod, known_version=known_version
        )
        return response

    def _pod_at(self, path: str) -> dict[str, Any]:
        """The pod that a request with this path is about, if it is there."""
        path, pods = path.removesuffix("/binding"), self.server.objects(paths.PODS)
        places = ((pod["metadata"], pod) for pod in pods)
        return next((p for m, p in places if paths.pod(m["namespace"], m["name"]) == path), {})

    def _record(self, change: Change) -> None:
        """Hold the change against the invariants."""
        kind, found = change.object.resource.kind, change.object.object
        custom = change.object.resource.custom
        if not custom and kind not in RECORDED:
            return
        place = f"railwright.dev/{change.object.resource.plural}" if custom else RECORDED[kind]
        time = timestamp(EPOCH_S + self.loop.time())
        value = None
        if change.type != "DELETED":
            managed = [{"manager": self._writer, "time": time}]
            value = {**found, "metadata": {**found["metadata"], "managedFields": managed}}
        elif self._writer == OPERATOR:
            self.note(f"deleted {change.key}")
        key = f"{REGISTRY}{place}/{change.key}"
        if kind == "Ledger" and value is not None:
            self.checks.before_ledger(value, self._replica)
            self._check_bookings(value)
        elif kind == "Pod":
            self._check_binding(change)
            self._bookings.put_pod(change.key, value)
            self._disruptions.put_pod(found, is_gone=value is None)
        elif kind == "Node":
            self._bookings.put_node(found["metadata"]["name"], value)
            self._disruptions.put_node(found["metadata"]["name"], value)
        violations = self.checker.read([Revision(change.version, (RecordedChange(key, value),))])
        for violation in violations:
            raise ViolationError(str(violation))
        if kind == "Ledger":
            self._check_causes()
        elif kind == "TrainingJob" and value is not None:
            self.checks.after_status(value)
            self._check_success(value)
            self.checkpoints.after_status(value)
        elif kind == "Fabric" and value is not None:
            self.checks.after_topology(value)
        elif kind == "Profile" and value is not None:
            training = self.launchers.trainings.get(
                (value["spec"]["jobUID"], value["spec"]["attempt"])
            )
            self.checks.after_profile(value["spec"], training.recorded if training else ())
        elif kind == "Pod" and change.type == "ADDED" and self._writer == OPERATOR:
            self.checks.after_create(value or {})
        elif kind == "Pod" and change.type == "MODIFIED" and self._writer == OPERATOR:
            self.checks.after_change(value or {})

    def _check_bookings(self, value: Mapping[str, Any]) -> None:
        """I1 and I30, of a ledger that is written over the one before."""
        known_version, after = self._rooms.known_version, stored.ledger(value).entries
        if known_version is not None:
            before = {entry.key for entry in self.checker.cluster.ledger.entries}
            self._bookings.check_ledger(before, after, known_version=known_version)
            self._disruptions.check_ledger(before, after, known_version=known_version)
        self._bookings.put_ledger(after)

    def _check_binding(self, change: Change) -> None:
        """I1, of a binding that lands."""
        pod, before, known_version = change.object.object, change.before, self._rooms.known_version
        node = pod["spec"].get("nodeName")
        was_bound = before is None or before.object["spec"].get("nodeName")
        if node and not was_bound and known_version is not None:
            key = stored.pod(pod, born=None).key
            self._bookings.check_binding(key, node, known_version=known_version)

    def _check_success(self, job: Mapping[str, Any]) -> None:
        """I6: a job that succeeds has an attempt of which all pods ended with 0."""
        status = job.get("status") or {}
        if status.get("phase") != Phase.SUCCEEDED:
            return
        training = self.launchers.trainings.get((job["metadata"]["uid"], status["attempt"]))
        if training is None or training.ended != {*range(training.size)}:
            raise ViolationError(
                f"I6: {job['metadata']['name']} has succeeded, and not all pods have: {training}"
            )

    def _check_causes(self) -> None:
        """I21 and I22: an abort for a dead node or for a hang is true."""
        for entry in self.checker.cluster.ledger.entries:
            began_s = self._began_s.setdefault(entry.key, self.loop.time())
            training = self.launchers.trainings.get(entry.key)
            if entry.cause is None or entry.key in self.causes:
                continue
            self.causes[entry.key] = entry.cause.code
            self.checks.check_cause(entry)
            self._check_failure(entry, training, since_s=began_s)
            hangs = training is not None and training.hung_since_s is not None
            if entry.cause.code is CauseCode.HUNG and not hangs:
                raise ViolationError(f"I21: {entry.key} ended as hung, and made steps")
            living = [node for node in entry.cause.nodes if self._lived_since(node, began_s)]
            invariants.check_lost(entry, living=living)

    def _check_failure(self, entry: Entry, training: Training | None, *, since_s: float) -> None:
        """I29, unless a rank failed by itself, or with its node."""
        if entry.cause is None or entry.cause.code is not CauseCode.RANK_FAILED:
            return
        crashed = training is not None and training.crashed
        if crashed or not all(self._lived_since(node, since_s) for node in entry.nodes):
            return
        known_version = self._rooms.known_version
        if known_version is not None:
            ended_s = -math.inf if training is None else training.terminated_s
            self._disruptions.check_failure(
                entry.key, waited_s=self._writer_s() - ended_s, known_version=known_version
            )

    def _writer_s(self) -> float:
        """Virtual seconds by the clock of the replica that writes: it has computed by this clock,
        and waits by it. Of one that has crashed it is not known."""
        found = (each.clock_s for each in self.replicas if each.name == self._replica)
        return next(found, self.loop.time())

    def _lived_since(self, node: str, since_s: float) -> bool:
        """Whether a leader could find the node alive all the time. A cut that is over explains a
        loss until the leader had the time to find that out."""
        machines, cut_until_s = self.machines, self.machines.cut_until_s.get(node, -1.0)
        is_dead = node in machines.down or machines.died_s.get(node, -1.0) >= since_s
        seen_since_s = self.loop.time() - max(cut_until_s, self.led_since_s)
        was_cut = cut_until_s >= since_s and seen_since_s <= CUT_FORGOTTEN_S
        return node in machines.names and not is_dead and not was_cut


def _with_requests(verb: str, path: str, found: dict[str, Any]) -> dict[str, Any]:
    """A pod as the API server completes it: what a container is limited to, it requests."""
    if verb != "create" or not path.endswith("/pods"):
        return found
    containers = [_complete(each) for each in found["spec"]["containers"]]
    return {**found, "spec": {**found["spec"], "containers": containers}}


def _complete(container: dict[str, Any]) -> dict[str, Any]:
    resources = container.get("resources", {})
    requests = {**resources.get("limits", {}), **resources.get("requests", {})}
    return (
        {**container, "resources": {**resources, "requests": requests}} if requests else container
    )


class _Deletes:
    """Which deletes of pods were the operator's: those that land while it is the writer."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def __contains__(self, item: object) -> bool:
        return self._cluster._writer == OPERATOR

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0
