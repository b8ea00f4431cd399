"""One turn of the whole product, as a value: what is seen in, what is to be done out.

    attempts in the ledger   one step each (gang)
    running attempts         judged; one that ended is revoked: an aborting entry (assessment)
    jobs without an attempt  decided: a gang that fits gets a committing entry (decide)
    other links than before  one running job at a time is ended to run where it is faster (moving)
    every job                its record, derived from the entries (record)

The caller writes ``ledger`` first if it changed, then carries out ``actions``, then writes the
records. If the first write fails, nothing of the turn happened. The operator, the simulator and the
tests all call this one function.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from railwright_scheduler import asking, debts, intent, moving, order, refit
from railwright_scheduler.attempt import assessment, gang, record
from railwright_scheduler.attempt import ledger as ledgers
from railwright_scheduler.attempt.assessment import Assessment, Ended, Succeeded
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.gang import Action, GangSeen, Pod
from railwright_scheduler.attempt.ledger import Entry, EntryState, Ledger
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.decide import decide
from railwright_scheduler.decisions import GangsAhead, Reason
from railwright_scheduler.refit import Misfits
from railwright_scheduler.snapshot import Snapshot
from railwright_scheduler.world import AttemptKey, AttemptSeen, JobSeen, World, running

SIDECAR_S = 30.0
"""How long a finished job's pods may still run beside their ranks."""

UNBOUND_MAX = 2_048
"""Pods that committing gangs together may still have to bind before another may join them; one gang
alone may have more. What an API server does in ten seconds or so: decided later, a job is placed by
what is then, and one of a higher priority need not wait behind thousands of pods.
"""

HINDERED_S = 5.0
"""A gang whose requests failed and that stood still for so long keeps nobody else waiting."""

LEDGER_SIZE_NEW_MAX = 600_000
LEDGER_SIZE_MAX = 1_000_000
"""Bytes, roughly. etcd takes 1.5 MiB; what does not fit waits for a later turn, and revoking what
is already in the ledger may use what new entries may not."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What to write, in this order: the ledger, the actions, the records; and what to tell.

    ``confirms`` says that the ledger must be found in the store as it is here before anything else
    is done, if it is not written: a leader that was replaced without noticing must neither bind a
    pod that the new one has not seen, nor take its word on a status for a stranger's.
    """

    ledger: Ledger
    actions: tuple[Action, ...]
    records: Mapping[str, JobRecord]
    waits: Mapping[str, Reason]
    assessments: Mapping[str, Assessment]
    confirms: bool = False


def take(world: World) -> Turn:
    """Plan one turn. Pure: the same world gives the same turn, in any order of its parts."""
    before = ledgers.by_job(world.ledger.entries)
    jobs = _jobs(world, before)
    unbound = _unbound(world)
    plan = _Plan(world, _misfits(world, jobs, unbound), unbound)
    for entry in world.ledger.entries:
        plan.step(entry, jobs.get(entry.job_uid))
    judged = {uid: _judge(seen, before.get(uid, ())) for uid, seen in jobs.items()}
    for uid, verdict in judged.items():
        plan.revoke(jobs[uid], verdict)
    plan.sweep(jobs)
    alive = asking.alive(world.nodes)
    waits = _queue(world, plan, jobs, before, alive)
    moves = moving.judged(
        world, jobs, verdicts=judged, waits=waits, entries=plan.entries, pods=_pods(world)
    )
    for uid, cause in moves.causes.items():
        plan.end(jobs[uid], cause)
    ledger = world.ledger.with_entries(plan.entries)
    after = ledgers.by_job(ledger.entries)
    records = {
        uid: _record(
            seen,
            after.get(uid, ()),
            judged[uid],
            waits=uid in waits and not asking.drains(after.get(uid, ()), world.attempts, alive),
            known=world.known if uid in moves.well else "",
        )
        for uid, seen in jobs.items()
    }
    assessments = {uid: verdict for uid, verdict in judged.items() if verdict is not None}
    corrects = any(jobs[seen.job.uid].record != seen.record for seen in world.jobs)
    binds = any(isinstance(action, gang.BindPod) for action in plan.actions)
    return Turn(
        ledger,
        _oldest_first(plan.actions, world.attempts, jobs),
        records,
        waits,
        assessments,
        confirms=corrects or binds,
    )


def _jobs(world: World, entries: Mapping[str, tuple[Entry, ...]]) -> dict[str, JobSeen]:
    """The jobs by UID, in its order; the records of those in the ledger agree with it."""
    jobs = {seen.job.uid: seen for seen in sorted(world.jobs, key=lambda seen: seen.job.uid)}
    for uid, its in entries.items():
        if uid in jobs:
            jobs[uid] = replace(jobs[uid], record=record.agreed(jobs[uid].record, its))
    return jobs


def _oldest_first(
    actions: Iterable[Action],
    attempts: Mapping[AttemptKey, AttemptSeen],
    jobs: Mapping[str, JobSeen],
) -> tuple[Action, ...]:
    """Gangs are finished in the order in which they were begun: only so many requests are under way
    at a time, and who is behind would wait for as long as others are begun. Those that were begun
    together go as they stood in line; what a deleted job left goes first."""
    actions = tuple(actions)
    asked = {action.entry.job_uid: None for action in actions if action.entry.job_uid in jobs}
    line = {job.uid: at for at, job in enumerate(order.by_turn(jobs[uid].job for uid in asked))}

    def place(action: Action) -> tuple[float, int]:
        seen = attempts.get(action.entry.key, AttemptSeen())
        return -seen.age_s, line.get(action.entry.job_uid, -1)

    return tuple(sorted(actions, key=place))


def _is_hindered(entry: Entry, world: World) -> bool:
    """Whether something is wrong with this gang alone: others need not wait for it."""
    seen = world.attempts.get(entry.key, AttemptSeen())
    return seen.hindrance != "" and seen.stalled_s > HINDERED_S


def _unbound(world: World) -> dict[AttemptKey, list[str]]:
    pods = _pods(world)
    return {
        entry.key: debts.unbound(entry, pods.get(entry.key, ())) for entry in world.ledger.entries
    }


def _misfits(
    world: World, jobs: Mapping[str, JobSeen], unbound: Mapping[AttemptKey, Sequence[str]]
) -> dict[AttemptKey, Misfits]:
    if not world.ledger.entries:
        return {}
    return refit.misfits(
        world.ledger.entries,
        nodes=world.nodes,
        unbound=unbound,
        jobs={uid: seen.job for uid, seen in jobs.items()},
    )


def _pods(world: World) -> dict[AttemptKey, tuple[Pod, ...]]:
    return {key: seen.pods for key, seen in world.attempts.items()}


class _Plan:
    """The entries and actions of the turn so far; an entry that changes is stepped again."""

    def __init__(
        self,
        world: World,
        misfits: Mapping[AttemptKey, Misfits],
        unbound: Mapping[AttemptKey, Sequence[str]],
    ) -> None:
        self.entries: list[Entry] = []
        self.actions: list[Action] = []
        self.unbound = sum(
            len(unbound[entry.key])
            for entry in world.ledger.entries
            if entry.state is EntryState.COMMITTING and not _is_hindered(entry, world)
        )
        self._world = world
        self._nodes = {node.name: node for node in world.nodes} if world.ledger.entries else {}
        self._misfits = misfits
        self._size = sum(entry.size for entry in world.ledger.entries)

    def step(self, entry: Entry, seen: JobSeen | None) -> None:
        gang_seen = self._gang_seen(entry, seen)
        step = gang.step(entry, gang_seen)
        if step.entry is not None and step.entry != entry:
            changed = step.entry
            if self._size + changed.size - entry.size > LEDGER_SIZE_MAX:
                step = gang.Step(entry)
            else:
                self._size += changed.size - entry.size
                step = gang.step(changed, gang_seen)
        if step.entry is not None:
            self.entries.append(step.entry)
        self.actions.extend(step.actions)

    def add(self, entry: Entry, seen: JobSeen) -> bool:
        """Whether there was room for a new entry; else it waits for a turn that has."""
        if self._size + entry.size > LEDGER_SIZE_NEW_MAX and self.entries:
            return False
        self._size += entry.size
        self.step(entry, seen)
        return True

    def admit(self, entry: Entry, seen: JobSeen) -> bool:
        """Whether it is time for a new gang; else it waits until others are bound."""
        if self.unbound and self.unbound + len(entry.nodes) > UNBOUND_MAX:
            return False
        if self.add(entry, seen):
            self.unbound += len(entry.nodes)
        return True

    def revoke(self, seen: JobSeen, verdict: Assessment | None) -> None:
        cause = verdict.cause if isinstance(verdict, Ended) else None
        if verdict is not None and not isinstance(verdict, Succeeded):
            cause = intent.against_run(seen) or cause
        if cause is not None:
            self.end(seen, cause)

    def end(self, seen: JobSeen, cause: Cause) -> None:
        """Revoke the live attempt for this cause, if the ledger has room for it."""
        self.add(_entry(seen, seen.record.nodes, seen.record.attempt, cause), seen)

    def sweep(self, jobs: Mapping[str, JobSeen]) -> None:
        """Delete pods of attempts that are over and settled.

        The create of a leader that was held up can land after the attempt is gone. Nobody binds
        such a pod, as its attempt is not in the ledger; but nobody else would delete it either.
        The pods of an attempt that succeeded end by themselves, and keep their logs; one that does
        not, because a sidecar goes on, gets ``SIDECAR_S``.
        """
        in_flight = {entry.key for entry in self.entries}
        for key in sorted(self._world.attempts):
            seen = jobs.get(key[0])
            if seen is None or key in in_flight or key[1] > seen.record.ended:
                continue
            over = _entry(seen, (), key[1], _OVER)
            done = (
                seen.record.phase is Phase.SUCCEEDED
                and key[1] == seen.record.ended
                and seen.ended_age_s < SIDECAR_S
            )
            self.actions.extend(
                gang.DeletePod(over, pod)
                for pod in _in_order(self._world.attempts[key].pods)
                if not pod.terminal and not pod.deleting and not (done and pod.node)
            )

    def _gang_seen(self, entry: Entry, seen: JobSeen | None) -> GangSeen:
        attempt = self._world.attempts.get(entry.key, AttemptSeen())
        return GangSeen(
            pods=tuple(pod for pod in _in_order(attempt.pods) if pod.node_rank < len(entry.nodes)),
            placed=attempt.placed,
            stop=intent.against_commit(entry, seen),
            refusal=attempt.refusal,
            hindrance=attempt.hindrance,
            misfits=self._misfits.get(entry.key, {}),
            scattered=refit.scattered(entry, self._nodes, self._world.levels),
            stalled_s=attempt.stalled_s,
            recorded_attempt=entry.attempt if seen is None else seen.record.attempt,
            recorded_end=entry.attempt if seen is None else seen.record.ended,
        )


_OVER = Cause(CauseCode.COMMIT_REFUSED, "the attempt was over before this pod was made")


def _in_order(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    return tuple(sorted(pods, key=lambda pod: (pod.node_rank, pod.uid)))


def _judge(seen: JobSeen, entries: tuple[Entry, ...]) -> Assessment | None:
    """The verdict on a running attempt; None where there is none, or the ledger has it in hand."""
    if not seen.record.live or any(entry.attempt == seen.record.attempt for entry in entries):
        return None
    assert len(seen.ranks) == len(seen.record.nodes), seen.job.uid
    ranks = sorted(seen.ranks, key=lambda rank: rank.node_rank)
    return assessment.assess(ranks, started=seen.started, age_s=seen.bound_age_s)


def _queue(
    world: World,
    plan: _Plan,
    jobs: Mapping[str, JobSeen],
    before: Mapping[str, tuple[Entry, ...]],
    alive: frozenset[str],
) -> dict[str, Reason]:
    """Decide about every job that wants to start; admitted ones get their entry and first step.
    ``before`` are the entries that the turn began with: those that left it say where jobs ran."""
    entries = ledgers.by_job(plan.entries)
    waiting, returning = (
        tuple(
            asking.again(seen, before.get(uid, ()))
            for uid, seen in jobs.items()
            if wanted(seen, entries.get(uid, ()), world.attempts, alive)
        )
        for wanted in (asking.wants_to_start, asking.returns)
    )
    if not waiting:
        return {}
    held = {seen.job.uid: seen.held for seen in jobs.values() if seen.held is not None}
    snapshot = Snapshot(
        levels=world.levels,
        nodes=debts.with_debts(world.nodes, plan.entries, pods=_pods(world)),
        queues=world.queues,
        jobs=tuple(job for job in waiting if job.uid not in held),
        links=world.links,
        running=tuple(running(jobs.values(), entries)),
        returning=returning,
    )
    decisions = decide(snapshot)
    reasons = {wait.job_uid: wait.reason for wait in decisions.waiting}
    line = iter(decisions.admitted)
    for admit in line:
        seen = jobs[admit.job_uid]
        spans = tuple(zip(world.levels, admit.spans, strict=True))
        entry = _entry(seen, admit.nodes, admit.attempt, None, spans)
        entry = replace(entry, merits=admit.merits, known=world.known)
        if not plan.admit(entry, seen):
            # Nobody goes before the first that has to wait, however small.
            behind = [admit, *line]
            reasons |= {each.job_uid: GangsAhead(len(each.nodes), plan.unbound) for each in behind}
    return reasons | {job.uid: held[job.uid] for job in waiting if job.uid in held}


def _entry(
    seen: JobSeen,
    nodes: tuple[str, ...],
    attempt: int,
    cause: Cause | None,
    spans: tuple[tuple[str, int], ...] = (),
) -> Entry:
    return Entry(
        job_uid=seen.job.uid,
        namespace=seen.job.namespace,
        job_name=seen.job.name,
        attempt=attempt,
        state=EntryState.COMMITTING if cause is None else EntryState.ABORTING,
        nodes=nodes,
        per_node=seen.job.per_node,
        cause=cause,
        spans=spans,
        shape=seen.shape,
    )


def _record(
    seen: JobSeen,
    entries: tuple[Entry, ...],
    verdict: Assessment | None,
    *,
    waits: bool,
    known: str,
) -> JobRecord:
    now = record.fold(seen.record, entries, backoff_limit=seen.backoff_limit)
    if isinstance(verdict, Succeeded) and now.live:
        return record.succeeded(now)
    if now.live and seen.started and now.phase is Phase.STARTING and verdict is not None:
        now = record.started(now)
    if now.live and known:
        now = replace(now, known=known)
    return record.wanted(now, suspend=seen.suspend, waits=waits)
