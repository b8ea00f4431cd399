"""One turn of the whole product, as a value: what is seen in, what is to be done out.

    attempts in the ledger   one step each (gang)
    running attempts         judged; one that ended is revoked: an aborting entry (assessment)
    jobs without an attempt  decided: a gang that fits gets a committing entry (decide)
    other links than before  one running job at a time is ended to run where it is faster (moving)
    every job                its record, derived from the entries (record)

The caller writes ``ledger`` first if it changed, then carries out ``actions``, then writes the
records. If the first write fails, nothing of the turn happened. The operator, the simulator and the
tests all call this one function. All work that concerns one job runs in isolation (``isolation``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from railwright_scheduler import assume, double_booking, migration, pending
from railwright_scheduler.attempt import assessment, gang, record
from railwright_scheduler.attempt import ledger as ledgers
from railwright_scheduler.attempt.assessment import Assessment, Succeeded
from railwright_scheduler.attempt.gang import Action
from railwright_scheduler.attempt.ledger import Entry, Ledger
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.budget import TRAFFIC_WORK, WorkBudget
from railwright_scheduler.cluster_state import (
    AttemptKey,
    ClusterState,
    ObservedAttempt,
    ObservedJob,
    running,
)
from railwright_scheduler.commit_plan import CommitPlan, entry_of
from railwright_scheduler.double_booking import DoubleBooking
from railwright_scheduler.isolation import Fault, Isolation, Stage
from railwright_scheduler.model.decisions import (
    HELD_REASONS,
    Admit,
    BindingBacklog,
    InternalError,
    Reason,
)
from railwright_scheduler.model.snapshot import QueueRound, Snapshot
from railwright_scheduler.policy import order
from railwright_scheduler.policy.admission import Admission
from railwright_scheduler.policy.decide import decide


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write, in this order: the ledger, the actions, the records; and what to tell.

    ``confirms`` says that the ledger must be found in the store as it is here before anything else
    is done, if it is not written: a leader that was replaced without noticing must neither bind a
    pod that the new one has not seen, nor take its word on a status for a stranger's.
    ``reservations``, ``waits`` and ``queue_round`` belong into the next cycle's state; where
    there is a round, jobs are left to evaluate. ``faults`` are the jobs whose handling
    raised, and ``unobserved`` those that are there but could not be looked at: nothing of them is
    to be forgotten. ``double_bookings`` are the nodes that take no new pods, as pods of several
    attempts hold more of them than there is.
    """

    ledger: Ledger
    actions: tuple[Action, ...]
    records: Mapping[str, JobRecord]
    waits: Mapping[str, Reason]
    assessments: Mapping[str, Assessment]
    confirms: bool = False
    reservations: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    queue_round: QueueRound | None = None
    faults: tuple[Fault, ...] = ()
    unobserved: frozenset[str] = frozenset()
    double_bookings: tuple[DoubleBooking, ...] = ()


@dataclass(frozen=True, slots=True)
class _Queue:
    """The queue after a cycle: why jobs wait, what they have reserved, and where it stopped."""

    waits: Mapping[str, Reason]
    reservations: Mapping[str, tuple[str, ...]]
    round: QueueRound | None = None


def plan(state: ClusterState, isolation: Isolation | None = None) -> Plan:
    """Plan one scheduling cycle. Pure, but see ``traffic``: the same state gives the same plan, in
    any order of its parts. Total: a job whose handling raises is a fault of ``isolation``."""
    isolation = Isolation() if isolation is None else isolation
    before = ledgers.by_job(state.ledger.entries)
    jobs = _jobs(state, before, isolation)
    double_bookings = double_booking.find(state.nodes)
    blocked = frozenset(booking.node for booking in double_bookings)
    plan = CommitPlan(state, jobs, isolation, blocked)
    for entry in state.ledger.entries:
        plan.step(entry, jobs.get(entry.job_uid))
    judged = _assessments(jobs, before, isolation, cut=state.breaker.is_open)
    for uid, verdict in judged.items():
        plan.revoke(jobs[uid], verdict)
    plan.sweep(jobs)
    alive = pending.live_nodes(state.nodes)
    traffic_work = WorkBudget(TRAFFIC_WORK)
    queue = _queue(state, plan, jobs, before, alive, blocked, isolation, traffic_work)
    moves = migration.plan_migration(
        state,
        jobs,
        verdicts=judged,
        waits=queue.waits,
        entries=plan.entries,
        double_booked=blocked,
        isolation=isolation,
        traffic_work=traffic_work,
    )
    for uid, cause in moves.causes.items():
        plan.end(jobs[uid], cause)
    ledger = state.ledger.with_entries(plan.entries)
    after = ledgers.by_job(ledger.entries)
    records = {}
    for uid, seen in jobs.items():
        fold = functools.partial(
            _record,
            state,
            seen,
            after.get(uid, ()),
            judged[uid],
            waits=uid in queue.waits,
            well=uid in moves.well,
            alive=alive,
        )
        records[uid] = isolation.run(Stage.RECORD, uid, fold, otherwise=seen.record)
    corrects = any(jobs[seen.job.uid].record != seen.record for seen in state.jobs)
    binds = any(isinstance(action, gang.BindPod) for action in plan.actions)
    return Plan(
        ledger,
        _oldest_first(plan.actions, state.attempts, jobs),
        records,
        queue.waits,
        {uid: verdict for uid, verdict in judged.items() if verdict is not None},
        confirms=corrects or binds,
        reservations={**queue.reservations, **moves.targets},
        queue_round=queue.round,
        faults=tuple(isolation.faults),
        unobserved=isolation.unobserved(),
        double_bookings=double_bookings,
    )


def _jobs(
    state: ClusterState, entries: Mapping[str, tuple[Entry, ...]], isolation: Isolation
) -> dict[str, ObservedJob]:
    """The jobs by UID, in its order; the records of those in the ledger agree with it."""
    jobs = {seen.job.uid: seen for seen in sorted(state.jobs, key=lambda seen: seen.job.uid)}
    for uid, its in entries.items():
        if uid in jobs:
            agree = functools.partial(record.agreed, jobs[uid].record, its)
            agreed = isolation.run(Stage.AGREEMENT, uid, agree, otherwise=jobs[uid].record)
            jobs[uid] = replace(jobs[uid], record=agreed)
    return jobs


def _assessments(
    jobs: Mapping[str, ObservedJob],
    entries: Mapping[str, tuple[Entry, ...]],
    isolation: Isolation,
    *,
    cut: bool,
) -> dict[str, Assessment | None]:
    """The assessment of each running attempt; an attempt whose assessment raises runs on."""
    return {
        uid: isolation.run(
            Stage.ASSESSMENT,
            uid,
            functools.partial(_assess, seen, entries.get(uid, ()), cut=cut),
            otherwise=None,
        )
        for uid, seen in jobs.items()
    }


def _oldest_first(
    actions: Iterable[Action],
    attempts: Mapping[AttemptKey, ObservedAttempt],
    jobs: Mapping[str, ObservedJob],
) -> tuple[Action, ...]:
    """Gangs are finished in the order in which they were begun: only so many requests are under way
    at a time, and who is behind would wait for as long as others are begun. Those that were begun
    together go as they stood in line; what a deleted job left goes first."""
    actions = tuple(actions)
    asked = {action.entry.job_uid: None for action in actions if action.entry.job_uid in jobs}
    line = {job.uid: at for at, job in enumerate(order.by_priority(jobs[uid].job for uid in asked))}

    def place(action: Action) -> tuple[float, int]:
        seen = attempts.get(action.entry.key, ObservedAttempt())
        return -seen.age_s, line.get(action.entry.job_uid, -1)

    return tuple(sorted(actions, key=place))


def _assess(seen: ObservedJob, entries: tuple[Entry, ...], *, cut: bool) -> Assessment | None:
    """The verdict on a running attempt; None where there is none, or the ledger has it in hand."""
    if not seen.record.live or any(entry.attempt == seen.record.attempt for entry in entries):
        return None
    assert len(seen.ranks) == len(seen.record.nodes), seen.job.uid
    ranks = sorted(seen.ranks, key=lambda rank: rank.node_rank)
    return assessment.assess(
        ranks, started=seen.started, age_s=seen.bound_age_s, watch=seen.watch, cut=cut
    )


def _queue(
    state: ClusterState,
    plan: CommitPlan,
    jobs: Mapping[str, ObservedJob],
    before: Mapping[str, tuple[Entry, ...]],
    alive: frozenset[str],
    double_booked: frozenset[str],
    isolation: Isolation,
    traffic_work: WorkBudget,
) -> _Queue:
    """Decide about every job that wants to start; admitted ones get their entry and first step.
    ``before`` are the entries that the cycle began with: those that left it say where jobs ran."""
    entries = ledgers.by_job(plan.entries)
    attempts = {
        uid: isolation.run(
            Stage.DECISION,
            uid,
            functools.partial(
                pending.pending_attempt,
                seen,
                before.get(uid, ()),
                entries.get(uid, ()),
                state,
                alive,
            ),
            otherwise=None,
        )
        for uid, seen in jobs.items()
    }
    reasons: dict[str, Reason] = {
        uid: InternalError(error)
        for uid, seen in jobs.items()
        if (error := isolation.error(Stage.DECISION, uid)) and pending.is_idle(seen)
    }
    reasons |= {each.job.uid: each.held for each in attempts.values() if each and each.held}
    waiting = [each for each in attempts.values() if each and not each.held]
    if all(each.returns for each in waiting):
        kept = {each.job.uid: state.reservations.get(each.job.uid, ()) for each in waiting}
        return _Queue(reasons, kept)
    snapshot = Snapshot(
        levels=state.levels,
        nodes=assume.subtract_assumed(state, plan.entries, double_booked),
        queues=state.queues,
        jobs=tuple(each.job for each in waiting if not each.returns),
        links=state.links,
        running=tuple(running(jobs.values(), entries)),
        returning=tuple(each.job for each in waiting if each.returns),
        reserved=state.reservations,
        queue_round=state.queue_round,
    )
    draft = functools.partial(_draft, state, jobs)
    admission = Admission(plan.unbound, plan.room(), lambda admit: draft(admit).size)
    asked = {uid: why for uid, why in state.waits.items() if not isinstance(why, HELD_REASONS)}
    decisions = decide(snapshot, isolation, admission, traffic_work, asked)
    reasons |= {wait.job_uid: wait.reason for wait in decisions.waiting}
    for admit in decisions.admitted:
        # An entry before it may have grown when it was stepped.
        if not plan.add(draft(admit), jobs[admit.job_uid]):
            reasons[admit.job_uid] = BindingBacklog(len(admit.nodes), admission.pods)
    # A job that was left out for a fault reserves nothing now, and goes on from there later.
    held = {uid: nodes for uid, nodes in state.reservations.items() if uid in reasons}
    faulty = {uid: nodes for uid, nodes in held.items() if isolation.error(Stage.DECISION, uid)}
    return _Queue(reasons, {**decisions.reservations, **faulty}, decisions.queue_round)


def _draft(state: ClusterState, jobs: Mapping[str, ObservedJob], admit: Admit) -> Entry:
    """The entry of a gang that starts."""
    spans = tuple(zip(state.levels, admit.spans, strict=True))
    entry = entry_of(jobs[admit.job_uid], admit.nodes, admit.attempt, None, spans)
    return replace(entry, score=admit.score, topology_hash=state.topology_hash)


def _record(
    state: ClusterState,
    seen: ObservedJob,
    entries: tuple[Entry, ...],
    verdict: Assessment | None,
    *,
    waits: bool,
    well: bool,
    alive: frozenset[str],
) -> JobRecord:
    now = record.fold(seen.record, entries, backoff_limit=seen.backoff_limit)
    if isinstance(verdict, Succeeded) and now.live:
        return record.succeeded(now)
    if now.live and seen.started and now.phase is Phase.STARTING and verdict is not None:
        now = record.started(now)
    if now.live and well and state.topology_hash:
        now = replace(now, topology_hash=state.topology_hash)
    waits = waits and not pending.is_draining(entries, state.attempts, alive)
    return record.wanted(now, suspend=seen.suspend, waits=waits)
