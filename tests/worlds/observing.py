"""An operator's eyes over tables that a test fills: pods, nodes and beats in, a turn's plan out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any, cast

from railwright import wire
from railwright_operator.discovery import Discovery, Found
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.machines import Machines
from railwright_operator.observe import Observer
from railwright_operator.pre_runs import PreRuns
from railwright_operator.watch import records
from railwright_operator.watch.jobs import Jobs
from railwright_operator.watch.kubelets import Kubelets
from railwright_operator.watch.pod_index import PodIndex
from railwright_operator.watch.pulls import Pulls
from railwright_operator.watch.records import NodeRecord, PodRecord
from railwright_operator.watch.site import Site
from railwright_operator.write import pods
from railwright_operator.write.actuate import Actuator
from railwright_scheduler import turn
from railwright_scheduler.attempt.assessment import Assessment, RankSeen
from railwright_scheduler.attempt.causes import Cause
from railwright_scheduler.attempt.ledger import Ledger
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.isolation import Isolation
from railwright_scheduler.turn import Turn
from railwright_scheduler.world import World
from railwright_topology.fabric import Fabric

JOB = "11111111-1111-1111-1111-111111111111"
LEDGER = Ledger(epoch=1, incarnation="x", holder="me")
OWNER = {
    "apiVersion": "railwright.dev/v1alpha1",
    "kind": "TrainingJob",
    "name": "job",
    "uid": JOB,
    "controller": True,
}
LAUNCHER = pods.Launcher("launcher", "http://operator")


@dataclass
class Leases:
    """The Leases of a cluster, by node."""

    renewed: dict[str, str] = field(default_factory=dict)

    async def ask(self, node: str) -> dict[str, Any] | None:
        """As the API server would."""
        return {"spec": {"renewTime": self.renewed[node], "leaseDurationSeconds": 40}}


class Watched:
    """One job on nodes n0, n1, … that a test lets happen things to, with a clock of its own."""

    def __init__(
        self, *, num_nodes: int = 2, phase: Phase = Phase.RUNNING, memory: str = ""
    ) -> None:
        self.now_s = 1000.0
        self.version = 1
        self.num_nodes = num_nodes
        self.memory = memory
        self.leases = Leases({f"n{rank}": "t0" for rank in range(num_nodes)})
        self.jobs = Jobs(lambda raw: pods.sample(raw, LAUNCHER))
        self.pods = PodIndex(self.jobs.namespace_of)
        self.nodes = {f"uid-n{rank}": node_record(f"n{rank}") for rank in range(num_nodes)}
        self.deaf_s = 0.0
        self.sessions = Sessions(clock=self.hearing, wake=lambda: None)
        self.kubelets = Kubelets(self.leases.ask, clock=self.clock, wake=lambda: None)
        nothing = cast("Any", None)
        self.actuator = Actuator(
            nothing,
            pods=nothing,
            render_pod=lambda entry, rank: None,
            render_placement=lambda entry: None,
            wake=lambda: None,
            clock=self.clock,
            rng=Random(0),
        )
        self.pre_runs = PreRuns(
            nothing, jobs=self.jobs, wake=lambda: None, clock=self.clock, rng=Random(0)
        )
        self.pulls = Pulls(self._pod_of, wake=lambda: None, clock=self.hearing)
        self.site = Site()
        self.discovery = Discovery(self.site, wake=lambda: None, clock=self.clock)
        self.observer = Observer(
            jobs=self.jobs,
            site=self.site,
            pods=self.pods,
            discovery=self.discovery,
            machines=Machines(self.nodes, self.pods),
            pulls=self.pulls,
            sessions=self.sessions,
            kubelets=self.kubelets,
            actuator=self.actuator,
            pre_runs=self.pre_runs,
            clock=self.clock,
            hearing=self.hearing,
        )
        self.record(phase)
        for rank in range(num_nodes):
            self.pod(rank)

    def _pod_of(self, uid: str) -> PodRecord | None:
        return next((pod for pod in self.pods.of((JOB, 1)) if pod.uid == uid), None)

    def clock(self) -> float:
        """The one clock of all parts."""
        return self.now_s

    def hearing(self) -> float:
        """The same, less the time in which no launcher could be heard."""
        return self.now_s - self.deaf_s

    def fabric(self, fabric: Fabric) -> None:
        """The network is found to be so."""
        self.discovery.found = Found(fabric)

    def record(self, phase: Phase, *, attempt: int = 1) -> None:
        """The job's status is now this."""
        live = phase in (Phase.STARTING, Phase.RUNNING)
        nodes = [f"n{rank}" for rank in range(self.num_nodes)] if live else []
        ended = attempt - live
        self.version += 1
        status = {"phase": phase.value, "attempt": attempt, "endedAttempt": ended, "nodes": nodes}
        self.jobs.absorb(raw_job(self.version, self.num_nodes, status, memory=self.memory))

    def pod(self, rank: int, *, claims: int | None = None, **status: Any) -> PodRecord:
        """The pod of a rank, running unless its status says other; ``claims`` is a false rank."""
        claimed = rank if claims is None else claims
        raw = raw_pod(f"n{rank}", claimed, {"phase": "Running", **status})
        before = next((p for p in self.pods.of((JOB, 1)) if p.uid == raw["metadata"]["uid"]), None)
        self.pods.change(before, records.answered(raw))
        return records.answered(raw)

    def beat(self, rank: int, **facts: Any) -> None:
        """The launcher of a rank says so, once the attempt is expected."""
        beat = {"sequence": int(self.now_s * 10), "running": 1, "exited": 0, **facts}
        self.sessions.beat(wire.Beat(wire.Member(JOB, 1, rank), **beat), f"uid-{rank}")

    def world(self, ledger: Ledger = LEDGER) -> World:
        """What is seen now."""
        *_, world = self.observer.look(ledger, Isolation())
        assert world is not None
        return world

    def turn(self, *, after_s: float = 0.0, ledger: Ledger = LEDGER) -> Turn:
        """One turn, this much later, without its writes."""
        self.now_s += after_s
        plan = turn.take(self.world(ledger))
        self.observer.follow(plan, Isolation())
        return plan

    def rank(self, node_rank: int = 0) -> RankSeen:
        """A rank as it is seen now."""
        return self.world().jobs[0].ranks[node_rank]

    def verdict(self, *, after_s: float = 0.0) -> Assessment:
        """How the attempt fares, this much later."""
        return self.turn(after_s=after_s).assessments[JOB]

    def cause(self, *, after_s: float = 0.0) -> Cause:
        """Why the attempt ended, this much later."""
        verdict = self.verdict(after_s=after_s)
        cause = getattr(verdict, "cause", None)
        assert isinstance(cause, Cause), verdict
        return cause


async def ask_all(seen: Watched) -> None:
    """One round of questions; every answer is there within a few steps of the loop."""
    running = asyncio.create_task(seen.kubelets.run())
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def node_record(name: str) -> NodeRecord:
    """A node with 8 devices that is well."""
    return NodeRecord(
        uid=f"uid-{name}",
        name=name,
        rv=1,
        ready=True,
        cordoned=False,
        taints=(),
        labels={},
        allocatable={"memory": 2**38, "nvidia.com/gpu": 8, "pods": 110},
    )


def raw_job(
    version: int, num_nodes: int, status: dict[str, Any], *, memory: str = ""
) -> dict[str, Any]:
    """The job as the API server sends it."""
    container = {"name": "main", "image": "image", "command": ["train"]}
    return {
        "apiVersion": "railwright.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {
            "uid": JOB,
            "namespace": "team",
            "name": "job",
            "resourceVersion": str(version),
            "generation": 1,
            "creationTimestamp": "2026-01-02T03:04:05Z",
        },
        "spec": {
            "numNodes": num_nodes,
            "backoffLimit": 1,
            "resourcesPerNode": {"memory": memory} if memory else {},
            "template": {"spec": {"containers": [container]}},
        },
        "status": status,
    }


def raw_pod(node: str, rank: int, status: dict[str, Any]) -> dict[str, Any]:
    """A pod of that job's first attempt; ``deleted`` and ``ended`` in the status stand for more."""
    status = dict(status)
    metadata: dict[str, Any] = {
        "uid": f"uid-{rank}",
        "namespace": "team",
        "name": f"job-1-{rank}",
        "resourceVersion": "1",
        "labels": {
            "railwright.dev/job-uid": JOB,
            "railwright.dev/job-name": "job",
            "railwright.dev/attempt": "1",
            "railwright.dev/node-rank": str(rank),
        },
        "ownerReferences": [OWNER],
    }
    if status.pop("deleted", False):
        metadata["deletionTimestamp"] = "2026-01-02T03:05:00Z"
    if "ended" in status:
        state = {"terminated": status.pop("ended")}
        status["containerStatuses"] = [{"name": "main", "state": state}]
    spec = {"nodeName": node, "containers": [{"name": "main"}]}
    return {"metadata": metadata, "spec": spec, "status": status}
