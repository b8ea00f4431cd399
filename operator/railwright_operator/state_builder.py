"""Build the state of a scheduling cycle: the one place that converts what the operator observes.

It reads the informer caches and the sessions of launchers. It writes the list of suspected nodes
and the attempts of the sessions, nothing else. Ages are taken here, on one clock that stops while
the operator receives no messages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace

from railwright import protocol
from railwright_conversion import failure_policies, job_roles
from railwright_operator import placed_pods
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.heartbeats.views import SessionView
from railwright_operator.liveness import Liveness
from railwright_operator.machines import Machines
from railwright_operator.mapping_requests import MappingRequests
from railwright_operator.suspected_nodes import SuspectedNodes
from railwright_operator.topology_hash import TopologyHash, of_this_version
from railwright_operator.watch.ages import Ages
from railwright_operator.watch.interconnect import InterconnectCache
from railwright_operator.watch.jobs import CachedJob, Jobs
from railwright_operator.watch.node_leases import NodeLeaseChecker
from railwright_operator.watch.pod_index import PodIndex
from railwright_operator.watch.records import PodRecord
from railwright_operator.watch.site import Site
from railwright_operator.watch.start_events import StartEvents
from railwright_operator.write.executor import Executor
from railwright_scheduler.attempt import gang, resume_points
from railwright_scheduler.attempt.assessment import Assessment, Ongoing
from railwright_scheduler.attempt.gang import Pod
from railwright_scheduler.attempt.ledger import AttemptKey, Entry, EntryState, Ledger
from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.cluster_state import (
    ClusterState,
    ObservedAttempt,
    ObservedJob,
    Progress,
    observed_attempts,
)
from railwright_scheduler.isolation import Isolation, Stage
from railwright_scheduler.model.evidence import ObservedRank
from railwright_scheduler.model.reasons import PodNamesTaken, RuntimeClassRefused, Unreadable
from railwright_scheduler.model.snapshot import LOST_GRACE_S, Job, Node, Unavailable
from railwright_scheduler.plan import Plan
from railwright_watch.cluster_objects import ClusterObject
from railwright_watch.node_healths import NodeHealths

FORGET_S = 60.0
"""How long after the end of a job messages of its launchers are accepted."""


@dataclass(eq=False)
class StateBuilder:
    """Builds the state of a cycle from what the other parts of the operator hold. The domains of
    nodes are those in the Fabric, their rails and relative speeds those in ``healths``."""

    _: KW_ONLY
    jobs: Jobs
    site: Site
    pods: PodIndex
    fabric: InterconnectCache
    healths: NodeHealths
    machines: Machines
    start_events: StartEvents
    sessions: Sessions
    lease_checker: NodeLeaseChecker
    executor: Executor
    mappings: MappingRequests
    clock: Callable[[], float]
    reception_clock: Callable[[], float]
    wall_clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._topology_hash = TopologyHash()
        self._ages = Ages(self.clock)
        self._reception_ages = Ages(self.reception_clock)
        self._liveness = Liveness(
            self.lease_checker,
            start_events=self.start_events,
            ages=self._ages,
            reception_ages=self._reception_ages,
            reception_clock=self.reception_clock,
        )
        self._suspected = SuspectedNodes(self.lease_checker, clock=self.clock)
        self._ranks: dict[str, tuple[ObservedRank, ...]] = {}
        self._cycle_jobs: dict[str, CachedJob] = {}
        self._plan: Plan | None = None
        self._furthest: dict[AttemptKey, int] = {}
        self._kept_waiting: dict[AttemptKey, int] = {}
        self._core_jobs: dict[str, _CoreJob] = {}

    def build(self, ledger: Ledger, isolation: Isolation) -> Iterator[ClusterState | None]:
        """Yield None between two steps, so that other tasks can run, and the state at the end.

        Nodes and attempts are of one moment, as capacity is computed from both. Reports of ranks
        may be newer. A job whose conversion raises is left out, as a fault in ``isolation``.
        """
        self._ages.begin_cycle()
        self._reception_ages.begin_cycle()
        interconnect = self.fabric.interconnect
        nodes = self._with_grace(self.machines.build_nodes(interconnect, self.healths.by_node))
        self._cycle_jobs = {cached.uid: cached for cached in self.jobs.all()}
        in_flight = {entry.key: entry for entry in ledger.entries}
        attempts = self._attempts(ledger)
        jobs: list[ObservedJob] = []
        for cached in self._cycle_jobs.values():
            yield None
            build_job = functools.partial(self._job, cached, in_flight)
            seen = isolation.run(Stage.OBSERVATION, cached.uid, build_job, otherwise=None)
            if seen is not None:
                jobs.append(seen)
        self._ranks = {seen.job.uid: seen.ranks for seen in jobs if seen.ranks}
        self._liveness.forget_all_but(self._ranks)
        held_jobs = self._core_jobs.items()
        self._core_jobs = {uid: held for uid, held in held_jobs if uid in self._cycle_jobs}
        digest = self._topology_hash.digest(interconnect, nodes)
        last = self._plan
        state = ClusterState(
            ledger=ledger,
            levels=interconnect.levels,
            nodes=nodes,
            queues=self.site.queues,
            jobs=tuple(jobs),
            attempts=attempts,
            links=interconnect.links,
            topology_hash=digest,
            topology_age_s=self._ages.of("known", digest) if self.fabric.is_known else 0.0,
            reservations=last.reservations if last else {},
            waits=last.waits if last else {},
            queue_round=last.queue_round if last else None,
            mappings=self.mappings.state(),
            deleted=self.jobs.deleted(),
            breaker=self._suspected.update(jobs, self.machines.by_name),
            now_s=int(self.wall_clock()),
        )
        self._ages.end_cycle()
        self._reception_ages.end_cycle()
        yield state

    def job(self, job_uid: str) -> CachedJob | None:
        """The version of a job in the last state, from which the plan was made."""
        return self._cycle_jobs.get(job_uid)

    def ranks(self, job_uid: str) -> tuple[ObservedRank, ...]:
        """The ranks of a job's live attempt in the last state."""
        return self._ranks.get(job_uid, ())

    def unprofiled(self, cached: CachedJob, nodes: tuple[str, ...]) -> tuple[str, ...] | None:
        """The device kinds of these nodes on which the job's profile was not recorded; None if the
        job has no profile."""
        profile = cached.workload.profile if cached.workload is not None else None
        return None if profile is None else profile.lacks(self.machines.devices(nodes))

    def sync_sessions(self, plan: Plan, isolation: Isolation) -> None:
        """Expect launchers of live attempts, stop those of revoked ones, forget the others."""
        self._plan = plan
        self.mappings.update(plan.mappings)
        in_flight = {entry.key for entry in plan.ledger.entries}
        revoked = {entry.key for entry in plan.ledger.entries if entry.state is EntryState.ABORTING}
        kept = set(plan.unobserved)
        for uid, record in plan.records.items():
            if self._is_forgotten(uid, record, in_flight):
                continue
            kept.add(uid)
            if record.phase is Phase.SUCCEEDED:
                continue  # Its launchers may still report how they ended.
            if not record.live or (uid, record.attempt) in revoked:
                self.sessions.revoke(uid, record.attempt)
                continue
            expect = functools.partial(self._expect, uid, record, plan.assessments.get(uid))
            isolation.run(Stage.OBSERVATION, uid, expect, otherwise=None)
        for uid in self.sessions.jobs() - kept:
            self.sessions.forget(uid)

    def _expect(self, uid: str, record: JobRecord, verdict: Assessment | None) -> None:
        self.sessions.expect(
            uid,
            record.attempt,
            nodes=record.nodes,
            layout=self._cycle_jobs[uid].layout_of(record),
            resume=_resume(record),
        )
        needed = isinstance(verdict, Ongoing) and verdict.wants_stacks
        self.sessions.request_stacks(uid, record.attempt, needed=needed)

    def _with_grace(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """The nodes, each marked that became unready a short time ago."""
        return tuple(
            replace(node, recently_lost=self._unready_s(node) < LOST_GRACE_S)
            if node.unavailable is Unavailable.UNREADY
            else node
            for node in nodes
        )

    def _unready_s(self, node: Node) -> float:
        return self._ages.of("unready", self.machines.by_name[node.name].uid)

    def _is_forgotten(self, uid: str, record: JobRecord, in_flight: Collection[AttemptKey]) -> bool:
        """Whether the job and its attempt have been over for ``FORGET_S``."""
        if record.phase not in FINAL or (uid, record.attempt) in in_flight:
            return False
        return self._ages.of("over", uid) > FORGET_S

    def _attempts(self, ledger: Ledger) -> dict[AttemptKey, ObservedAttempt]:
        found = self.pods.observed()
        for entry in ledger.entries:
            pods = found.get(entry.key, ObservedAttempt()).pods
            records = zip(self.pods.of(entry.key), pods, strict=True)
            ranks = tuple(pod for record, pod in records if _is_rank(record, entry))
            found[entry.key] = ObservedAttempt(ranks)
        # Progress counts once: deleting pods repeatedly does not extend the deadline.
        self._furthest = {
            entry.key: max(self._furthest.get(entry.key, 0), gang.reached(found[entry.key].pods))
            for entry in ledger.entries
        }
        # An attempt whose requests wait behind those of others is not stalled.
        self._kept_waiting = {
            key: self._kept_waiting.get(key, 0) + self.executor.is_crowded_out(key)
            for key in self._furthest
        }
        ended = {uid: cached.record.ended for uid, cached in self._cycle_jobs.items()}
        return observed_attempts(ledger, found, ended=ended, add_ages=self._attempt)

    def _attempt(self, key: AttemptKey, pods: tuple[Pod, ...]) -> ObservedAttempt:
        return ObservedAttempt(
            pods=pods,
            placed=self.executor.placed(key),
            refusal=self.executor.refusal(key),
            hindrance=self.executor.hindrance(key),
            is_binding=self.executor.is_binding(key),
            age_s=self._ages.of("entry", *key),
            stalled_s=self._ages.of(
                "commit", *key, self._furthest.get(key, 0), self._kept_waiting.get(key, 0)
            ),
        )

    def _placed(self, cached: CachedJob, in_flight: Mapping[AttemptKey, Entry]) -> CachedJob:
        """The job with the nodes of its live attempt. Without a Placement they are those in the
        ledger, or else those of its pods."""
        key = cached.uid, cached.record.attempt
        if not cached.record.live or cached.record.nodes:
            return cached
        entry = in_flight.get(key)
        nodes = placed_pods.nodes(cached, self.pods.of(key)) if entry is None else entry.nodes
        self._cycle_jobs[cached.uid] = placed = self.jobs.place(cached, nodes)
        return placed

    def _job(self, unplaced: CachedJob, in_flight: Mapping[AttemptKey, Entry]) -> ObservedJob:
        cached = self._placed(unplaced, in_flight)
        record, uid, spec = cached.record, cached.uid, cached.job.spec
        view = self.sessions.attempt(uid, record.attempt)
        ranks: tuple[ObservedRank, ...] = ()
        bound_age_s = 0.0
        if record.live and (uid, record.attempt) not in in_flight:
            bound_age_s = self._reception_ages.of("bound", uid, record.attempt)
            pods = self.pods.of((uid, record.attempt))
            ranks = self._liveness.ranks(cached, pods=pods, view=view, nodes=self.machines.by_name)
        core = self._core_job(cached)
        return ObservedJob(
            job=core.job,
            suspend=spec.suspend,
            failure_policy=failure_policies.convert(spec.failure_policy),
            active_deadline_s=spec.active_deadline_seconds,
            start_timeout_s=spec.start_timeout_seconds,
            record=record,
            ranks=ranks,
            started=record.phase is Phase.RUNNING
            or (view is not None and view.started_at_s is not None),
            bound_age_s=bound_age_s,
            ended_age_s=self._ages.of("ended", uid, record.ended),
            held=cached.too_large
            or self._unreadable(cached)
            or self.site.missing_class(spec.priority_class_name)
            or self.site.missing_runtime_class(_runtime_classes(cached))
            or core.refused
            or self._taken_names(cached),
            spec_hash=cached.spec_hash,
            topology_hash=self._topology_hash_of(cached),
            progress=_progress(view),
            watch=self._liveness.watch(cached, view),
            pre_run=cached.requested_pre_run,
        )

    def _topology_hash_of(self, cached: CachedJob) -> str:
        """The hash under which the placement of the live attempt was last found to be the best; for
        a new leader, the one under which it was chosen. Empty if another version computed it."""
        planned = self._plan.topology_hashes if self._plan else {}
        if not cached.record.live or cached.uid in planned:
            # It can be that of an entry of a leader before.
            return of_this_version(planned.get(cached.uid, ""))
        found = self.jobs.placement(cached.raw, cached.record.attempt)
        return of_this_version(found.topology_hash) if found else ""

    def _unreadable(self, cached: CachedJob) -> Unreadable | None:
        why = self.jobs.why_unreadable(cached.uid)
        return None if why is None else Unreadable(why)

    def _taken_names(self, cached: CachedJob) -> PodNamesTaken | None:
        """Why no pod of the next attempt can be created yet: after a deletion and a new apply, pods
        of the old job still have these names."""
        if cached.record.live:
            return None
        metadata, roles = cached.raw["metadata"], cached.roles
        taken = self.pods.name_conflicts(
            cached.uid,
            namespace=metadata["namespace"],
            job_name=metadata["name"],
            replicas={role.name: role.replicas for role in roles},
            attempt=cached.record.attempt + 1,
        )
        need = sum(role.replicas for role in roles)
        return PodNamesTaken(need, len(taken), taken[0]) if taken else None

    def _core_job(self, cached: CachedJob) -> _CoreJob:
        """The job as a value of the core, converted again only after a change of job or classes."""
        metadata, spec = cached.raw["metadata"], cached.job.spec
        priority = self.site.priority(spec.priority_class_name)
        classes = tuple(map(self.site.runtime_class, _runtime_classes(cached)))
        kept = self._core_jobs.get(cached.uid)
        if (
            kept is not None
            and kept.converted is cached
            and (kept.job.priority, kept.classes) == (priority, classes)
        ):
            return kept
        roles, refused = job_roles.with_runtime_classes(cached.roles, classes)
        job = Job(
            uid=cached.uid,
            namespace=metadata["namespace"],
            name=metadata["name"],
            queue=spec.queue,
            priority=priority,
            submitted_s=cached.submitted_s,
            attempt=cached.record.attempt + 1,
            roles=roles,
        )
        core = _CoreJob(cached, classes, job, refused)
        self._core_jobs[cached.uid] = core
        return core


@dataclass(frozen=True, slots=True)
class _CoreJob:
    """A job as a value of the core, and from what it was converted: the cached job, and the
    RuntimeClass of each role, None for no class. ``refused`` is why none of its
    next pods can be created with its runtime classes; the pods that run were created before."""

    converted: CachedJob
    classes: tuple[ClusterObject | None, ...]
    job: Job
    refused: RuntimeClassRefused | None


def _runtime_classes(cached: CachedJob) -> list[str | None]:
    """The names of the RuntimeClasses of its roles."""
    return [role.template.spec.runtime_class_name for role in cached.job.spec.roles]


def _is_rank(pod: PodRecord, entry: Entry) -> bool:
    """Whether the pod is the rank of the entry that it claims. An entry without roles is only there
    for its pods to be deleted."""
    if pod.node_rank >= len(entry.nodes):
        return False
    if not entry.roles:
        return True
    role, index = entry.place(pod.node_rank)
    return (role.name, index) == (pod.role, pod.index)


def _progress(view: SessionView | None) -> Progress | None:
    progress = None if view is None else view.progress
    return None if progress is None else Progress(progress.step, progress.total_steps)


def _resume(record: JobRecord) -> dict[str, tuple[protocol.Checkpoint, ...]]:
    """The resume points that the live attempt may read, by group."""
    found: dict[str, tuple[protocol.Checkpoint, ...]] = {}
    if record.phase is not Phase.PROFILING:
        for point in resume_points.readable(record.checkpoints, record.attempt):
            checkpoint = protocol.Checkpoint(point.attempt, point.step)
            found[point.group] = (*found.get(point.group, ()), checkpoint)
    return found
