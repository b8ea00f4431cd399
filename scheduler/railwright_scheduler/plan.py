"""Plan one scheduling cycle: an observed ``ClusterState`` in, a ``Plan`` of what to write out.

    attempts in the ledger   one step each (gang)
    running attempts         assessed; one that ended is revoked: an aborting entry (assessment)
    pending attempts         decided; a gang that fits gets a committing entry (policy.decide)
    running jobs             one at a time migrates when links or node speeds changed (migration)
    every job                its record, derived from the entries (record)

The caller writes ``ledger`` first if it changed, then carries out ``actions``, then writes the
records. If the first write fails, nothing of the plan happened. The operator, the simulator and the
tests all call this one function. All work that concerns one job runs in isolation (``isolation``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from railwright_scheduler import assume, live_invariants, migration, pending, pre_run
from railwright_scheduler.attempt import assessment, gang, record
from railwright_scheduler.attempt import ledger as ledgers
from railwright_scheduler.attempt.assessment import Assessment, Succeeded
from railwright_scheduler.attempt.gang import Action
from railwright_scheduler.attempt.ledger import AttemptKey, Entry, Ledger
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.budget import TRAFFIC_WORK, WorkBudget
from railwright_scheduler.cluster_state import (
    ClusterState,
    ObservedAttempt,
    ObservedJob,
    sending_jobs,
)
from railwright_scheduler.commit_plan import CommitPlan, entry_of
from railwright_scheduler.isolation import Fault, Isolation, Stage
from railwright_scheduler.live_invariants import DoubleBooking
from railwright_scheduler.migration import Migrations
from railwright_scheduler.model.decisions import Admit, Decisions
from railwright_scheduler.model.reasons import HELD_REASONS, BindingBacklog, InternalError, Reason
from railwright_scheduler.model.snapshot import QueueRound, Snapshot
from railwright_scheduler.pending import PendingAttempt
from railwright_scheduler.policy.admission import Admission
from railwright_scheduler.policy.decide import decide
from railwright_scheduler.policy.mappings import Mappings, RequestedMapping
from railwright_scheduler.policy.scheduling_queue import by_priority


@dataclass(frozen=True, slots=True)
class Plan:
    """The writes in their order (the ledger, the actions, the records) and what to publish.

    ``confirms``: if the ledger is unchanged, it must be read and compared before any action. A
    leader that was deposed without noticing must neither bind a pod that the new leader has not
    observed, nor take that leader's status for a foreign one. ``reservations``, ``waits``,
    ``queue_round``, ``mappings`` (with their outcomes, once there are some) and ``topology_hashes``
    (of live attempts) are part of the next cycle's state; with a round, jobs are left to evaluate.
    ``faults`` are the jobs whose handling raised;
    ``unobserved`` are those whose state could not be built: their data must be kept.
    ``double_bookings`` are the nodes that take no new pods, as pods of several attempts hold more
    than the node has.
    """

    ledger: Ledger
    actions: tuple[Action, ...]
    records: Mapping[str, JobRecord]
    waits: Mapping[str, Reason]
    assessments: Mapping[str, Assessment]
    confirms: bool = False
    reservations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    queue_round: QueueRound | None = None
    mappings: Mapping[str, RequestedMapping] = field(default_factory=dict)
    topology_hashes: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    unobserved: frozenset[str] = frozenset()
    double_bookings: tuple[DoubleBooking, ...] = ()


def plan(state: ClusterState, isolation: Isolation | None = None) -> Plan:
    """Plan one scheduling cycle. Pure, but see ``link_traffic``: the same state gives the same
    plan, in any order of its parts. Total: a job whose handling raises is a fault of
    ``isolation``."""
    return _Cycle(state, Isolation() if isolation is None else isolation).plan()


class _Cycle:
    """The parts of one cycle, each of which uses the results of those before it. ``before`` are the
    ledger's entries at the begin of the cycle, by job; those that leave it have the last nodes."""

    def __init__(self, state: ClusterState, isolation: Isolation) -> None:
        self.state = state
        self.isolation = isolation
        self.bookings = live_invariants.double_bookings(state.nodes, state.attempts, state.ledger)
        self.double_booked = frozenset(booking.node for booking in self.bookings)
        self.before = ledgers.by_job(state.ledger.entries)
        self.jobs = _jobs(state, self.before, isolation)
        self.live_nodes = pending.live_nodes(state.nodes)
        self.traffic_work = WorkBudget(TRAFFIC_WORK)
        self.mappings = Mappings(state.mappings)
        self.commits = CommitPlan(state, self.jobs, isolation, self.double_booked)

    def plan(self) -> Plan:
        """Run the parts in their order."""
        state, jobs, commits = self.state, self.jobs, self.commits
        for entry in state.ledger.entries:
            commits.step(entry, jobs.get(entry.job_uid))
        assessments = {uid: self.assess(uid, seen) for uid, seen in jobs.items()}
        for uid, verdict in assessments.items():
            commits.revoke(jobs[uid], verdict)
            commits.fail_idle(jobs[uid], self.before.get(uid, ()))
        commits.end_deleted()
        commits.sweep(jobs)
        waits, decisions = self.schedule()
        migrations = self.migrate(assessments, waits)
        for uid, cause in migrations.causes.items():
            commits.end(jobs[uid], cause)
        ledger = state.ledger.with_entries(commits.entries)
        after = ledgers.by_job(ledger.entries)
        records = {
            uid: self.record(seen, after.get(uid, ()), assessments[uid], waits=uid in waits)
            for uid, seen in jobs.items()
        }
        corrects = any(jobs[seen.job.uid].record != seen.record for seen in state.jobs)
        binds = any(isinstance(action, gang.BindPod) for action in commits.actions)
        return Plan(
            ledger,
            _oldest_first(commits.actions, state.attempts, jobs),
            records,
            waits,
            {uid: verdict for uid, verdict in assessments.items() if verdict is not None},
            confirms=corrects or binds,
            reservations={**decisions.reservations, **migrations.targets},
            queue_round=decisions.queue_round,
            mappings=self.mappings.requested,
            topology_hashes={
                uid: self.topology_hash(self.jobs[uid], after.get(uid, ()), migrations)
                for uid, record in records.items()
                if record.live
            },
            faults=tuple(self.isolation.faults),
            unobserved=self.isolation.unobserved(),
            double_bookings=self.bookings,
        )

    def assess(self, uid: str, seen: ObservedJob) -> Assessment | None:
        """Assess a running attempt; if that raises, the attempt goes on."""
        work = functools.partial(
            _assess, seen, self.before.get(uid, ()), cut=self.state.breaker.is_open
        )
        return self.isolation.run(Stage.ASSESSMENT, uid, work, otherwise=None)

    def schedule(self) -> tuple[Mapping[str, Reason], Decisions]:
        """Decide about every pending attempt; admitted ones get their entry and first step. Returns
        why jobs wait too."""
        entries = ledgers.by_job(self.commits.entries)
        attempts = [self.pending(uid, seen, entries) for uid, seen in self.jobs.items()]
        reasons = self.raised()
        reasons |= {each.job.uid: each.held for each in attempts if each and each.held}
        waiting = [each for each in attempts if each and not each.held]
        reserved = _reserved(waiting, self.state.reservations)
        if all(each.awaits_own_pods for each in waiting):
            held = {each.job.uid: reserved.get(each.job.uid, ()) for each in waiting}
            return reasons, Decisions((), (), held)
        decisions = self.decide(waiting, entries, reasons, reserved)
        # A job that was left out for a fault reserves nothing now, and goes on from there later.
        faulty = {uid: reserved[uid] for uid in self.raised() if uid in reserved and uid in reasons}
        return reasons, replace(decisions, reservations={**decisions.reservations, **faulty})

    def raised(self) -> dict[str, Reason]:
        """The jobs without an attempt whose decision raised."""
        errors = {uid: self.isolation.error(Stage.DECISION, uid) for uid in self.jobs}
        return {
            uid: InternalError(error)
            for uid, error in errors.items()
            if error and pending.is_idle(self.jobs[uid])
        }

    def pending(
        self, uid: str, seen: ObservedJob, entries: Mapping[str, tuple[Entry, ...]]
    ) -> PendingAttempt | None:
        """The attempt that a job needs now; None if it needs none, or if that raises."""
        work = functools.partial(
            pending.pending_attempt,
            seen,
            self.before.get(uid, ()),
            entries.get(uid, ()),
            self.state,
            self.live_nodes,
        )
        return self.isolation.run(Stage.DECISION, uid, work, otherwise=None)

    def decide(
        self,
        waiting: Sequence[PendingAttempt],
        entries: Mapping[str, tuple[Entry, ...]],
        reasons: dict[str, Reason],
        reserved: Mapping[str, tuple[str, ...]],
    ) -> Decisions:
        """Decide about these attempts, commit what is admitted, and add the others' reasons."""
        state, commits = self.state, self.commits
        snapshot = Snapshot(
            levels=state.levels,
            nodes=assume.subtract_assumed(state, commits.entries, self.double_booked),
            queues=state.queues,
            jobs=tuple(each.job for each in waiting if not each.awaits_own_pods),
            links=state.links,
            senders=tuple(sending_jobs(self.jobs.values(), entries)),
            awaiting_own_pods=tuple(each.job for each in waiting if each.awaits_own_pods),
            reserved=reserved,
            queue_round=state.queue_round,
        )
        admission = Admission(
            commits.unbound, commits.ledger_capacity(), lambda admit: self.entry(admit).size
        )
        last = {uid: why for uid, why in state.waits.items() if not isinstance(why, HELD_REASONS)}
        decisions = decide(
            snapshot, self.isolation, admission, self.traffic_work, last, self.mappings
        )
        reasons |= {wait.job_uid: wait.reason for wait in decisions.waiting}
        for admit in decisions.admitted:
            # An entry before it may have grown when it was stepped.
            if not commits.add(self.entry(admit), self.jobs[admit.job_uid]):
                reasons[admit.job_uid] = BindingBacklog(len(admit.nodes), admission.pods)
        return decisions

    def entry(self, admit: Admit) -> Entry:
        """The ledger's entry of a gang that starts."""
        spans = tuple(zip(self.state.levels, admit.spans, strict=True))
        entry = entry_of(self.jobs[admit.job_uid], admit.nodes, admit.attempt, None, spans)
        return replace(entry, score=admit.score, topology_hash=self.state.topology_hash)

    def migrate(
        self, assessments: Mapping[str, Assessment | None], waits: Mapping[str, Reason]
    ) -> Migrations:
        """Choose the running job that is to end and start again where a step is shorter."""
        return migration.plan_migration(
            self.state,
            self.jobs,
            verdicts=assessments,
            waits=waits,
            entries=self.commits.entries,
            double_booked=self.double_booked,
            isolation=self.isolation,
            traffic_work=self.traffic_work,
            mappings=self.mappings,
        )

    def record(
        self,
        seen: ObservedJob,
        entries: tuple[Entry, ...],
        verdict: Assessment | None,
        *,
        waits: bool,
    ) -> JobRecord:
        """The job's record after this cycle; the old one if deriving it raises."""

        def derive() -> JobRecord:
            now_s = self.state.now_s
            now = record.correct_start(seen.record, now_s=now_s)
            if now.live and seen.started and now.phase is Phase.STARTING and verdict is not None:
                # First, as the attempt may be over in the same cycle.
                now = record.started(now, now_s=now_s)
            now = record.fold(now, entries, seen.failure_policy)
            if isinstance(verdict, Succeeded) and now.live:
                return record.succeeded(now)
            drains = pending.is_draining(entries, self.state.attempts, self.live_nodes)
            return record.derive_waiting(now, suspend=seen.suspend, waits=waits and not drains)

        return self.isolation.run(Stage.RECORD, seen.job.uid, derive, otherwise=seen.record)

    def topology_hash(
        self, seen: ObservedJob, entries: tuple[Entry, ...], migrations: Migrations
    ) -> str:
        """The hash under which the placement of the live attempt was last found to be the best."""
        if seen.job.uid in migrations.well:
            return self.state.topology_hash
        return entries[-1].topology_hash if entries else seen.topology_hash


def _reserved(
    waiting: Sequence[PendingAttempt], last: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """The reservations of the ``last`` cycle. A job that waits for its own pods to end and had none
    is to have its nodes again."""
    own = (each.job for each in waiting if each.awaits_own_pods and not last.get(each.job.uid))
    return {**last, **{job.uid: pending.previous_nodes(job) for job in own}}


def _jobs(
    state: ClusterState, entries: Mapping[str, tuple[Entry, ...]], isolation: Isolation
) -> dict[str, ObservedJob]:
    """The jobs by UID, in its order, as their attempts have them; the records of those in the
    ledger agree with it."""
    jobs = {seen.job.uid: seen for seen in sorted(state.jobs, key=lambda seen: seen.job.uid)}
    for uid, seen in jobs.items():
        if uid not in entries and seen.pre_run is None and seen.record.pre_run is None:
            continue
        agree = functools.partial(_agree, seen, entries.get(uid, ()))
        jobs[uid] = isolation.run(Stage.AGREEMENT, uid, agree, otherwise=seen)
    return jobs


def _agree(seen: ObservedJob, entries: tuple[Entry, ...]) -> ObservedJob:
    reconciled = replace(seen, record=record.reconcile(seen.record, entries))
    return pre_run.resolve(reconciled, entries)


def _oldest_first(
    actions: Iterable[Action],
    attempts: Mapping[AttemptKey, ObservedAttempt],
    jobs: Mapping[str, ObservedJob],
) -> tuple[Action, ...]:
    """Sort actions by the age of their gang: only so many requests are under way at a time, and an
    old gang would wait for as long as new ones begin. Gangs that began together go in queue order;
    what a deleted job left goes first."""
    actions = tuple(actions)
    acting = {action.entry.job_uid: None for action in actions if action.entry.job_uid in jobs}
    positions = {job.uid: at for at, job in enumerate(by_priority(jobs[uid].job for uid in acting))}

    def place(action: Action) -> tuple[float, int]:
        seen = attempts.get(action.entry.key, ObservedAttempt())
        return -seen.age_s, positions.get(action.entry.job_uid, -1)

    return tuple(sorted(actions, key=place))


def _assess(seen: ObservedJob, entries: tuple[Entry, ...], *, cut: bool) -> Assessment | None:
    """The verdict on a running attempt; None if there is none, or if it is in the ledger."""
    if not seen.record.live or any(entry.attempt == seen.record.attempt for entry in entries):
        return None
    assert len(seen.ranks) == len(seen.record.nodes) > 0, seen.job.uid
    ranks = sorted(seen.ranks, key=lambda rank: rank.node_rank)
    verdict = assessment.assess(
        ranks,
        started=seen.started,
        age_s=seen.bound_age_s,
        start_timeout_s=seen.start_timeout_s,
        watch=seen.watch,
        cut=cut,
    )
    is_pre_run = seen.record.phase is Phase.PROFILING
    return pre_run.assess(seen, verdict) if is_pre_run else verdict
