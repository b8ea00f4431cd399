"""The view of one leader: caches that lag, messages of launchers, and its own clock.

All ages count from the first observation by this leader, as in the operator: two leaders may differ
on them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Any

from railwright_scheduler import plan as scheduling
from railwright_scheduler import usage
from railwright_scheduler.attempt import breaker, gang, record
from railwright_scheduler.attempt.assessment import NODE_MISSING_S, Ongoing
from railwright_scheduler.attempt.breaker import CLOSED, Breaker
from railwright_scheduler.attempt.gang import Pod
from railwright_scheduler.attempt.hang import Watch
from railwright_scheduler.attempt.ledger import AttemptKey, Ledger
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.cluster_state import (
    ClusterState,
    ObservedAttempt,
    ObservedJob,
    ObservedPreRun,
    Progress,
    observed_attempts,
)
from railwright_scheduler.invariants import PodFact
from railwright_scheduler.model.evidence import Crash, ObservedRank, ObservedSteps, PodState
from railwright_scheduler.model.rank_layout import number_ranks
from railwright_scheduler.model.snapshot import Amounts, Job, Node, Role, Unavailable
from railwright_scheduler.plan import Plan
from railwright_scheduler.simulator.api import Api, placement_name
from railwright_scheduler.simulator.executor import Executor
from railwright_scheduler.simulator.machines import Machines
from railwright_scheduler.simulator.network import RANKS_PER_NODE
from railwright_scheduler.simulator.node_capacity import check_double_booked, double_booked, free
from railwright_scheduler.simulator.objects import FOREIGN, JobObject
from railwright_scheduler.simulator.tables import Copy

LEASE_STALE_S = 10


class View:
    """The caches of the tables, and the times of first observations.

    Nodes are watched before a process leads, jobs and pods only by a leader.
    """

    def __init__(
        self, api: Api, machines: Machines, *, behind: int = 0, clock_error_s: int = 0
    ) -> None:
        """``clock_error_s``: by how much its wall clock is wrong."""
        self._machines = machines
        self._clock_error_s = clock_error_s
        self._network = api.network
        self._hangs = api.hangs
        self._pre_runs = api.pre_runs
        self._placements = api.placements
        self._checkpoints = api.checkpoints
        self.jobs = Copy(api.jobs)
        self.pods = Copy(api.pods, lasting=_still_bound)
        self.nodes = Copy(api.nodes, behind=behind)
        self._since_s: dict[tuple[str, object], int] = {}
        self._furthest: dict[AttemptKey, int] = {}
        self._received_s: dict[str, int] = {}
        self._spoke: set[str] = set()
        self._steps: dict[str, ObservedSteps | None] = {}
        self._requested_s: dict[AttemptKey, int] = {}
        self._built: dict[str, Node] = {}
        self._breaker = CLOSED
        self._judged_s = 0
        self._planned: tuple[tuple[int, ...], Ledger, Plan] | None = None

    @property
    def kinds(self) -> dict[str, Copy[str, Any]]:
        """All copies."""
        return {"job": self.jobs, "pod": self.pods, "node": self.nodes}

    def relist(self) -> None:
        """Ask for the lists of what only a leader watches."""
        self.jobs.relist()
        self.pods.relist()

    def free(self) -> dict[str, Amounts]:
        """The capacity of each node for our pods, in this leader's caches."""
        return free(self.nodes.objects.values(), self.pods.objects.values())

    def plan(self, ledger: Ledger, executor: Executor, *, now_s: int) -> Plan:
        """The plan for the current view; the same one while the view is unchanged."""
        news = (
            now_s,
            *(copy.changes for copy in self.kinds.values()),
            self._machines.changes,
            self._network.changes,
            len(executor.placed),
            len(executor.refusals),
        )
        before = self._planned
        goes_on = before is not None and before[2].queue_round is not None
        if goes_on or before is None or before[0] != news or before[1] is not ledger:
            plan = scheduling.plan(self.world(ledger, executor, now_s=now_s))
            nodes, pods = self.nodes.objects.values(), self.pods.objects.values()
            check_double_booked(plan, ledger, double_booked(nodes, pods))
            self._ask(plan, now_s=now_s)
            self._planned = before = news, ledger, plan
        return before[2]

    def with_checkpoints(self, records: Mapping[str, JobRecord]) -> dict[str, JobRecord]:
        """The records of a plan with what groups report of their checkpoints."""
        reached = {p.key for p in self.pods.objects.values() if self._machines.reaches_operator(p)}
        found = dict(records)
        for uid, its in records.items():
            job, key = self.jobs.objects.get(uid), (uid, its.attempt)
            reports = self._checkpoints.reports(key) if key in reached else ()
            if job is not None and reports:
                layout = number_ranks([Role(r.replicas, {}, r.name) for r in job.roles])
                found[uid] = record.reported(its, reports, layout)
        return found

    def _ask(self, plan: Plan, *, now_s: int) -> None:
        """Request stacks from launchers while the plan needs them."""
        awaited = {
            (uid, plan.records[uid].attempt)
            for uid, verdict in plan.assessments.items()
            if isinstance(verdict, Ongoing) and verdict.wants_stacks
        }
        self._requested_s = {key: self._requested_s.get(key, now_s) for key in sorted(awaited)}

    def world(self, ledger: Ledger, executor: Executor, *, now_s: int) -> ClusterState:
        """The cluster state for a plan."""
        last = None if self._planned is None else self._planned[2]
        pods: dict[AttemptKey, list[PodFact]] = {}
        # Of two that seem to be one rank's, the newest last: the other is gone already.
        for stored in sorted(self.pods.stored().values(), key=lambda stored: stored.version):
            if stored.value.job_uid != FOREIGN:
                pods.setdefault(stored.value.key, []).append(stored.value)
        in_ledger = {entry.key: entry for entry in ledger.entries}
        with_pods = {key: ObservedAttempt(tuple(map(_pod, its))) for key, its in pods.items()}
        aged: dict[AttemptKey, bool] = {}

        def add_ages(key: AttemptKey, its: tuple[Pod, ...]) -> ObservedAttempt:
            aged[key] = True
            return ObservedAttempt(
                pods=its,
                placed=key in executor.placed,
                refusal=executor.refusals.get(key),
                age_s=self._age_s("entry", key, now_s),
                stalled_s=self._age_s("commit", (key, self._furthest_of(key, its)), now_s),
            )

        ended = {uid: job.record.ended for uid, job in self.jobs.objects.items()}
        attempts = observed_attempts(ledger, with_pods, ended=ended, add_ages=add_ages)
        # The age of an attempt begins again when it does not run any more.
        for fact in [(what, key) for what, key in self._since_s if what == "entry"]:
            if fact[1] not in aged:
                del self._since_s[fact]
        jobs = tuple(
            self._job(job, pods, in_ledger, now_s=now_s) for job in self.jobs.objects.values()
        )
        return ClusterState(
            ledger=ledger,
            levels=self._network.levels,
            nodes=self._nodes(),
            queues=("default",),
            jobs=jobs,
            attempts=attempts,
            links=self._network.links,
            topology_hash=self._network.topology_hash,
            topology_age_s=now_s - self._network.changed_s,
            reservations={} if last is None else last.reservations,
            waits={} if last is None else last.waits,
            queue_round=None if last is None else last.queue_round,
            breaker=self._judge_silence(jobs, now_s=now_s),
            now_s=now_s + self._clock_error_s,
        )

    def _judge_silence(self, jobs: tuple[ObservedJob, ...], *, now_s: int) -> Breaker:
        self._breaker = breaker.assess(
            self._breaker,
            (rank for seen in jobs for rank in seen.ranks),
            renewing=[name for name in self.nodes.objects if self._machines.renews(name)],
            none_renews=False,
            passed_s=now_s - self._judged_s,
        )
        self._judged_s = now_s
        return self._breaker

    def _nodes(self) -> tuple[Node, ...]:
        live: dict[str, list[PodFact]] = {}
        for pod in self.pods.objects.values():
            if pod.live:
                live.setdefault(pod.node, []).append(pod)
        self._built = {
            node.name: usage.with_usage(
                Node(
                    name=node.name,
                    domains=self._network.place(node.name),
                    allocatable=node.allocatable,
                    used={},
                    unavailable=None if node.ready else Unavailable.UNREADY,
                    machine=self._network.machine,
                ),
                usage.sum_usage(
                    ours=(p.amounts for p in live.get(node.name, ()) if p.job_uid != FOREIGN),
                    foreign=(p.amounts for p in live.get(node.name, ()) if p.job_uid == FOREIGN),
                ),
                before=self._built.get(node.name),
                capacity=node.capacity,
            )
            for node in self.nodes.objects.values()
        }
        return tuple(self._built.values())

    def _job(
        self,
        job: JobObject,
        attempts: Mapping[AttemptKey, list[PodFact]],
        in_ledger: Container[AttemptKey],
        *,
        now_s: int,
    ) -> ObservedJob:
        key = (job.uid, job.record.attempt)
        running = job.record.live and key not in in_ledger
        pods = {pod.node_rank: pod for pod in attempts.get(key, [])}
        return ObservedJob(
            job=Job(
                uid=job.uid,
                namespace="team",
                name=job.name,
                queue="default",
                priority=0,
                submitted_s=job.submitted_s,
                attempt=job.record.attempt + 1,
                roles=tuple(
                    Role(
                        replicas=role.replicas,
                        per_pod=role.per_pod,
                        name=role.name,
                        ranks_per_pod=RANKS_PER_NODE,
                        workload=None
                        if at
                        else self._network.workload(role.replicas)
                        or self._pre_runs.workload(role.replicas),
                    )
                    for at, role in enumerate(job.roles)
                ),
            ),
            suspend=job.suspend,
            failure_policy=job.failure_policy,
            active_deadline_s=job.active_deadline_s,
            record=job.record,
            ranks=tuple(
                self._rank(key, rank, node, pods.get(rank), now_s=now_s)
                for rank, node in enumerate(job.record.nodes if running else ())
            ),
            started=job.record.phase is Phase.RUNNING or self._is_start_reported(key, pods),
            bound_age_s=self._age_s("bound", key, now_s) if running else 0,
            ended_age_s=self._age_s("ended", (job.uid, job.record.ended), now_s),
            spec_hash=job.spec_hash,
            topology_hash=self._topology_hash(job),
            progress=Progress(0) if running else None,
            pre_run=ObservedPreRun(f"{job.spec_hash}, pre-run", job.profiled)
            if job.wants_pre_run
            else None,
            watch=Watch(
                asked_s=now_s - self._requested_s[key] if key in self._requested_s else None
            ),
        )

    def _topology_hash(self, job: JobObject) -> str:
        """The one of the last plan; for a new leader, that of the live attempt's Placement."""
        planned = self._planned[2].topology_hashes if self._planned else {}
        if not job.record.live or job.uid in planned:
            return planned.get(job.uid, "")
        found = self._placements.get(placement_name(job.name, job.record.attempt))
        is_own = found is not None and found.value.job_uid == job.uid
        return found.value.topology_hash if found and is_own else ""

    def _is_start_reported(self, key: AttemptKey, pods: Mapping[int, PodFact]) -> bool:
        """Whether a launcher reports that the barrier was passed."""
        passed = key in self._machines.passed
        return passed and any(self._machines.reaches_operator(pod) for pod in pods.values())

    def _rank(
        self, key: AttemptKey, rank: int, node: str, pod: PodFact | None, *, now_s: int
    ) -> ObservedRank:
        stored = self.nodes.objects.get(node)
        if stored is not None:
            self._age_s("there", (key, node), now_s)
        # A watch may lag: the state of a node does not count if its kubelet renews.
        renews = self._machines.renews(node)
        missing = stored is None and not renews and ("there", (key, node)) in self._since_s
        if not missing:
            self._since_s.pop(("missing", (key, node)), None)
        unready = stored is not None and not stored.ready and not renews
        if not unready:
            self._since_s.pop(("unready", node), None)
        # A pod of a running attempt that is not bound was made by a leader held up since the
        # commit, after a user deleted the one that was bound.
        here = pod if pod is not None and pod.node else None
        return ObservedRank(
            node_rank=rank,
            node=node,
            pod=PodState.MISSING if here is None else here.phase,
            deleting=here is not None and here.deleting,
            crash=None if here is None else self._crash(here, now_s=now_s),
            silent_s=None if here is None else self._silent_s(here, now_s=now_s),
            unreported=here is not None and here.uid not in self._spoke,
            lease_stale=self._machines.unreached_s(node, now_s=now_s) > LEASE_STALE_S,
            node_gone=missing and self._age_s("missing", (key, node), now_s) > NODE_MISSING_S,
            unready_s=self._age_s("unready", node, now_s) if unready else None,
            steps=None if here is None else self._steps_of(here, now_s=now_s),
        )

    def _steps_of(self, pod: PodFact, *, now_s: int) -> ObservedSteps | None:
        """The last report of its launcher."""
        if self._machines.reaches_operator(pod) and pod.key in self._machines.passed:
            requested = pod.key in self._requested_s
            self._steps[pod.uid] = self._hangs.steps(pod.key, now_s=now_s, requested=requested)
        return self._steps.get(pod.uid)

    def _crash(self, pod: PodFact, *, now_s: int) -> Crash | None:
        if pod.phase is not PodState.FAILED or pod.exit_code is None:
            return None
        age_s = self._age_s("crash", pod.uid, now_s)
        return Crash(rank=pod.node_rank, exit_code=pod.exit_code, age_s=age_s)

    def _silent_s(self, pod: PodFact, *, now_s: int) -> int | None:
        if self._machines.reaches_operator(pod):
            self._received_s[pod.uid] = now_s
            self._spoke.add(pod.uid)
        if pod.key in self._machines.passed:
            self._received_s.setdefault(pod.uid, now_s)
        received_s = self._received_s.get(pod.uid)
        return None if received_s is None else now_s - received_s

    def _furthest_of(self, key: AttemptKey, pods: tuple[Pod, ...]) -> int:
        self._furthest[key] = max(self._furthest.get(key, 0), gang.reached(pods))
        return self._furthest[key]

    def _age_s(self, what: str, key: object, now_s: int) -> int:
        return now_s - self._since_s.setdefault((what, key), now_s)


def _still_bound(held: PodFact, news: PodFact) -> PodFact:
    """Keep the node of a bound pod: older events do not undo a binding."""
    return replace(news, node=held.node) if held.node and not news.node else news


def _pod(pod: PodFact) -> Pod:
    return Pod(
        name=pod.name,
        uid=pod.uid,
        node_rank=pod.node_rank,
        node=pod.node,
        terminal=pod.terminal,
        deleting=pod.deleting,
        amounts=pod.amounts,
    )
