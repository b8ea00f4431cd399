"""Courses of cycles: a drawn cluster in which each plan is carried out before the next one.

A course draws jobs of every feature, nodes and faults from its seed, so that its plans start gangs,
reserve, map, revoke, recover, pre-run and migrate. It has no API server: what a plan says happens
at once, or is lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.breaker import CLOSED, Breaker
from railwright_scheduler.attempt.failure_policy import FailurePolicy
from railwright_scheduler.attempt.gang import Action, BindPod, CreatePod, DeletePod, Pod
from railwright_scheduler.attempt.hang import Watch
from railwright_scheduler.attempt.ledger import AttemptKey, Ledger
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord, reported
from railwright_scheduler.attempt.resume_points import GroupReport
from railwright_scheduler.cluster_state import ClusterState, ObservedAttempt, ObservedJob, Progress
from railwright_scheduler.mapping.gang_mapping import map_ranks
from railwright_scheduler.model.evidence import Crash, ObservedRank, ObservedSteps, PodState
from railwright_scheduler.model.rank_layout import number_ranks
from railwright_scheduler.model.reasons import PriorityClassNotFound
from railwright_scheduler.model.snapshot import Amounts, Node, Unavailable
from railwright_scheduler.plan import Plan
from railwright_scheduler.policy.mappings import RequestedMapping, Unmapped
from railwright_topology.links import Links
from railwright_topology.miscabling import Rails
from railwright_topology.relative_speed import RelativeSpeed
from simulation.drawn_jobs import GPU, draw_job

CYCLES = 16
LEVELS = ("block", "rack")
BREAKERS = (CLOSED, CLOSED, CLOSED, CLOSED, Breaker(silent=3, alive=1, calm_s=0.0))


@dataclass
class _Attempt:
    """The pods of an attempt, by node rank, and its Placement."""

    pods: dict[int, Pod] = field(default_factory=dict)
    placed: bool = False
    refusal: str | None = None
    age_s: float = 0.0


class Course:
    """A cluster and its jobs; ``plans`` yields each cycle's state and plan."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(f"course {seed}")
        self._nodes = {node.name: node for node in self._drawn_nodes()}
        self._jobs: dict[str, ObservedJob] = {}
        self._faults_max = self._rng.choice((1, 2, 3))
        for number in range(self._rng.randint(1, 6)):
            self._submit(number)
        self._attempts: dict[AttemptKey, _Attempt] = {}
        self._topology, self._settled_s = 1, 60.0
        self._links = self._drawn_links()
        self._now_s = 1_000_000
        self._last = Plan(Ledger(3, "x", "me", ()), (), {}, {}, {})
        self._mappings: dict[str, RequestedMapping] = {}

    def plans(self) -> Iterator[tuple[ClusterState, Plan]]:
        """The cycles of the course."""
        for cycle in range(CYCLES):
            state = self._state()
            plan = scheduling.plan(state)
            yield state, plan
            self._carry_out(plan)
            self._pass_time(self._rng.choice((1, 1, 5, 40, 100)))
            for event in self._rng.sample(_EVENTS, self._rng.randint(0, self._faults_max)):
                if self._jobs:
                    event(self)
            if self._rng.random() < 0.1 * self._faults_max:
                self._submit(10 + cycle)

    # The state

    def _drawn_nodes(self) -> Iterator[Node]:
        rng = self._rng
        for number in range(rng.choice((8, 12, 16))):
            speed = rng.choice((1.0, 1.0, 1.0, 0.8))
            yield Node(
                name=f"n{number:02}",
                domains=(f"b{number // 8}", f"r{number // 4}") if rng.random() < 0.95 else ("", ""),
                allocatable={GPU: 8, "cpu": 64_000, "pods": 8},
                used={},
                labels={"kind": rng.choice(("h100", "h100", "h100", "b200"))},
                machine="DGX A100",
                relative_speed=RelativeSpeed(products=speed, memory=speed),
                rails=Rails((0, 1)) if rng.random() < 0.8 else None,
                foreign={GPU: 4, "pods": 1} if rng.random() < 0.05 else {},
            )

    def _drawn_links(self) -> tuple[Links, ...]:
        rng = self._rng
        leaving = {f"r{rack}": rng.choice((0.02, 0.1, 4.0)) for rack in range(4)}
        return Links(rng.choice((1.0, 2.0))), Links(leaving=leaving)

    def _submit(self, number: int) -> None:
        job, pre_run = draw_job(self._rng, f"j{number:02}")
        self._jobs[job.uid] = ObservedJob(
            job=job,
            suspend=self._rng.random() < 0.05,
            failure_policy=FailurePolicy(self._rng.randint(1, 3), 86_400),
            record=JobRecord(),
            active_deadline_s=self._rng.choice((None, None, None, 300)),
            ended_age_s=1000.0,
            held=self._rng.choice((None,) * 9 + (PriorityClassNotFound("high", ()),)),
            spec_hash=f"v1-{job.uid}",
            pre_run=pre_run,
        )

    def _state(self) -> ClusterState:
        used = {name: dict(node.foreign) for name, node in self._nodes.items()}
        for attempt in self._attempts.values():
            for pod in attempt.pods.values():
                if pod.node in used and not pod.terminal:
                    _add(used[pod.node], pod.amounts)
        return ClusterState(
            ledger=self._last.ledger,
            levels=LEVELS,
            nodes=tuple(replace(node, used=used[node.name]) for node in self._nodes.values()),
            queues=("default", "spare"),
            jobs=tuple(self._observed(seen) for seen in self._jobs.values()),
            attempts={
                key: ObservedAttempt(
                    tuple(its.pods.values()),
                    placed=its.placed,
                    refusal=its.refusal,
                    age_s=its.age_s,
                    stalled_s=its.age_s,
                )
                for key, its in self._attempts.items()
            },
            links=self._links,
            topology_hash=f"topology {self._topology}",
            topology_age_s=self._settled_s,
            reservations=self._last.reservations,
            waits=self._last.waits,
            queue_round=self._last.queue_round,
            mappings=self._mappings,
            breaker=self._rng.choice(BREAKERS),
            now_s=self._now_s,
        )

    def _observed(self, seen: ObservedJob) -> ObservedJob:
        """The job with a row for each pod of its live attempt."""
        record = seen.record
        if not record.live:
            return replace(seen, ranks=(), started=False, progress=None, bound_age_s=0.0)
        pods = self._attempts.get((seen.job.uid, record.attempt), _Attempt()).pods
        if len(seen.ranks) != len(record.nodes):
            healthy = (
                ObservedRank(number, name, PodState.RUNNING, silent_s=1.0)
                for number, name in enumerate(record.nodes)
            )
            seen = replace(seen, ranks=tuple(healthy))
        rows = (
            replace(row, pod=PodState.MISSING) if row.node_rank not in pods else row
            for row in seen.ranks
        )
        return replace(seen, ranks=tuple(rows))

    # What plans do

    def _carry_out(self, plan: Plan) -> None:
        self._last = plan
        for action in plan.actions:
            if self._rng.random() < 0.98:
                self._act(action)
        for uid, record in plan.records.items():
            seen = self._jobs[uid]
            ended = record.ended > seen.record.ended
            self._jobs[uid] = replace(
                seen,
                record=record,
                ended_age_s=0.0 if ended else seen.ended_age_s,
                ranks=() if ended else seen.ranks,
                started=seen.started and not ended,
                topology_hash=plan.topology_hashes.get(uid, seen.topology_hash),
            )
        self._mappings = {uid: self._mapped(its) for uid, its in plan.mappings.items()}

    def _act(self, action: Action) -> None:
        attempt = self._attempts.setdefault(action.entry.key, _Attempt())
        attempt.age_s = 0.0
        match action:
            case CreatePod(entry, rank):
                name = f"{entry.job_name}-{rank}-{entry.attempt}"
                amounts = entry.amounts[rank]
                attempt.pods[rank] = Pod(name, f"u-{name}", rank, "", False, False, amounts)
            case BindPod(entry, pod):
                attempt.pods[pod.node_rank] = replace(pod, node=entry.nodes[pod.node_rank])
            case DeletePod(_, pod):
                attempt.pods.pop(pod.node_rank, None)
                if self._rng.random() < 0.3:
                    attempt.pods[pod.node_rank] = replace(pod, deleting=True)
            case _:
                attempt.placed = True

    def _mapped(self, its: RequestedMapping) -> RequestedMapping:
        if its.outcome is not None or self._rng.random() < 0.2:
            return its
        found = map_ranks(its.request) or Unmapped.OVER_BUDGET
        return replace(its, outcome=Unmapped.FAILED if self._rng.random() < 0.1 else found)

    def _pass_time(self, passed_s: int) -> None:
        self._now_s += passed_s
        self._settled_s += passed_s
        self._mappings = {
            uid: replace(its, age_s=its.age_s + passed_s) for uid, its in self._mappings.items()
        }
        for attempt in self._attempts.values():
            attempt.age_s += passed_s
            for rank, pod in [*attempt.pods.items()]:
                if pod.deleting:
                    del attempt.pods[rank]
        for uid, seen in self._jobs.items():
            self._jobs[uid] = self._trained(seen, passed_s)

    def _trained(self, seen: ObservedJob, passed_s: int) -> ObservedJob:
        """The job after this time, in which its ranks start, or train and save checkpoints."""
        ended_age_s = seen.ended_age_s + passed_s
        if not seen.record.live:
            return replace(seen, ended_age_s=ended_age_s)
        is_new = seen.record.phase in (Phase.STARTING, Phase.PROFILING)
        started = seen.started or not is_new or self._rng.random() < 0.9
        started = seen.started or (started and self._is_bound(seen.record, seen.job.uid))
        step = (seen.progress.step if seen.progress else 0) + 10 * passed_s
        record, layout = seen.record, number_ranks(seen.job.roles)
        if started and self._rng.random() < 0.7:
            saved = GroupReport(layout.training.group, committed=step)
            record = reported(record, [saved], layout)
        pre_run = seen.pre_run
        if pre_run and record.phase is Phase.PROFILING and self._rng.random() < 0.3:
            pre_run = replace(pre_run, profiled=self._rng.random() < 0.8, error="no steps")
        return replace(
            seen,
            record=record,
            started=started,
            bound_age_s=seen.bound_age_s + 20.0 * passed_s,
            progress=Progress(step, 10_000_000) if started else None,
            pre_run=pre_run,
        )

    def _is_bound(self, record: JobRecord, uid: str) -> bool:
        """Launchers wait at the barrier for all others."""
        pods = self._attempts.get((uid, record.attempt), _Attempt()).pods.values()
        return len(pods) == len(record.nodes) and all(pod.node for pod in pods)

    # What else happens

    def _one_running(self) -> ObservedJob | None:
        running = [seen for seen in self._jobs.values() if seen.record.live and seen.record.nodes]
        return self._rng.choice(running) if running else None

    def _change_rank(self, **changes: Any) -> None:
        seen = self._one_running()
        if seen is not None:
            rows = [*self._observed(seen).ranks]
            at = self._rng.randrange(len(rows))
            rows[at] = replace(rows[at], **changes)
            self._jobs[seen.job.uid] = replace(seen, ranks=tuple(rows))

    def _rank_crashes(self) -> None:
        code = self._rng.choice((1, 137))
        self._change_rank(pod=PodState.FAILED, crash=Crash(rank=0, exit_code=code, age_s=120.0))

    def _launcher_falls_silent(self) -> None:
        stale = self._rng.random() < 0.7
        self._change_rank(silent_s=60.0, lease_stale=stale)

    def _ranks_hang(self) -> None:
        if (seen := self._one_running()) is not None:
            steps = ObservedSteps(
                10, 10, (0,), 0, 1, still_s=7200.0, timed=20, p99_s=1.0, stacks=()
            )
            rows = tuple(replace(row, steps=steps) for row in self._observed(seen).ranks)
            watch = Watch(training_s=7200.0, requested_s=self._rng.choice((None, 20.0)))
            self._jobs[seen.job.uid] = replace(seen, ranks=rows, watch=watch)

    def _pod_is_evicted(self) -> None:
        self._change_rank(deleting=True, evicted="EvictionByEvictionAPI")

    def _job_succeeds(self) -> None:
        if (seen := self._one_running()) is not None:
            rows = self._observed(seen).ranks
            done = tuple(replace(row, done=True) for row in rows)
            self._jobs[seen.job.uid] = replace(seen, ranks=done, started=True)

    def _user_changes_job(self) -> None:
        uid = self._rng.choice([*self._jobs])
        seen = self._jobs[uid]
        match self._rng.randrange(4):
            case 0:
                self._jobs[uid] = replace(seen, suspend=not seen.suspend)
            case 1:
                del self._jobs[uid]
            case 2:
                job = replace(seen.job, priority=self._rng.randint(0, 2))
                self._jobs[uid] = replace(seen, job=job)
            case _:
                self._jobs[uid] = replace(seen, spec_hash=f"{seen.spec_hash}+")

    def _node_changes(self) -> None:
        rng, name = self._rng, self._rng.choice([*self._nodes])
        node = self._nodes[name]
        state = rng.choice((None, None, *Unavailable))
        domains = node.domains if rng.random() < 0.7 else (rng.choice("bc"), rng.choice("rs"))
        lost = state in (Unavailable.LOST, Unavailable.UNREADY)
        self._nodes[name] = replace(node, unavailable=state, domains=domains, recently_lost=lost)

    def _nodes_return(self) -> None:
        self._nodes = {
            name: replace(node, unavailable=None, recently_lost=False)
            for name, node in self._nodes.items()
        }

    def _network_changes(self) -> None:
        self._topology += 1
        self._settled_s = 0.0
        self._links = self._drawn_links()

    def _api_server_refuses(self) -> None:
        if self._attempts:
            key = self._rng.choice([*self._attempts])
            self._attempts[key].refusal = "exceeded quota"

    def _stray_pod_appears(self) -> None:
        """A delayed request of an attempt lands on a node that others may have by now."""
        key, node = self._rng.choice([*self._jobs]), self._rng.choice([*self._nodes])
        attempt = self._attempts.setdefault((key, self._jobs[key].record.ended), _Attempt())
        pod = Pod(f"{key}-stray", f"u-{key}-stray", 0, node, False, False, {GPU: 8, "pods": 1})
        attempt.pods.setdefault(0, pod)


_EVENTS = (
    Course._rank_crashes,
    Course._launcher_falls_silent,
    Course._ranks_hang,
    Course._pod_is_evicted,
    Course._job_succeeds,
    Course._user_changes_job,
    Course._node_changes,
    Course._nodes_return,
    Course._network_changes,
    Course._network_changes,
    Course._network_changes,
    Course._api_server_refuses,
    Course._stray_pod_appears,
)


def _add(total: dict[str, int], amounts: Amounts | Mapping[str, int]) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount
