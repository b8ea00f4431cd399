"""Step every attempt of the ledger and add new ones, within the ledger's size.

An attempt is cancelled, while it is being bound or while it runs, by its job: that was deleted,
suspended or changed, or its deadline passed.

``CommitPlan`` gathers the entries and the actions of one scheduling cycle. Each entry is stepped on
its own: one whose step raises keeps its place and its devices, and is stepped again later.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from railwright_scheduler import assume, pending, revalidation
from railwright_scheduler.attempt import gang, ledger
from railwright_scheduler.attempt.assessment import Assessment, Ended, Succeeded
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.gang import Action, ObservedGang, Pod, Step
from railwright_scheduler.attempt.ledger import (
    AttemptKey,
    Entry,
    EntryRole,
    EntryState,
    LedgerBudget,
)
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import specs_differ
from railwright_scheduler.cluster_state import ClusterState, ObservedAttempt, ObservedJob
from railwright_scheduler.isolation import Isolation, Stage
from railwright_scheduler.model.snapshot import Job, Purpose
from railwright_scheduler.placement import domains
from railwright_scheduler.policy.admission import LedgerCapacity

SIDECAR_S = 30.0
"""How long a finished job's pods may still run beside their ranks."""

HINDERED_S = 5.0
"""A gang with failed requests and without progress for this long does not delay others."""

_DELETED = Cause(CauseCode.JOB_DELETED, "the job was deleted")
_SUSPENDED = Cause(CauseCode.SUSPENDED, "spec.suspend was set")
_SPEC_CHANGED = Cause(
    CauseCode.SUSPENDED, "its spec was changed while it was suspended; it starts again with that"
)
_CHANGED = Cause(
    CauseCode.SUSPENDED, "the job is not as it was when its gang was chosen; it starts as it is now"
)
_UNREADABLE = Cause(
    CauseCode.COMMIT_REFUSED,
    "the job's spec cannot be read any more, or is too large to create its pods from",
)
_OVER = Cause(CauseCode.COMMIT_REFUSED, "the attempt was over before this pod was made")


def _hindered(state: ClusterState, isolation: Isolation) -> frozenset[AttemptKey]:
    """The committing gangs with which something is wrong: others need not wait for them."""

    def is_hindered(entry: Entry) -> bool:
        seen = _seen(state, entry.key)
        stalled = seen.hindrance != "" and seen.stalled_s > HINDERED_S
        return stalled or isolation.error(Stage.COMMIT, entry.job_uid) != ""

    committing = (each for each in state.ledger.entries if each.state is EntryState.COMMITTING)
    return frozenset(entry.key for entry in committing if is_hindered(entry))


class CommitPlan:
    """The entries and actions of the cycle so far; an entry that changes is stepped again.
    No gang is bound to ``double_booked`` nodes."""

    def __init__(
        self,
        state: ClusterState,
        jobs: Mapping[str, ObservedJob],
        isolation: Isolation,
        double_booked: Collection[str] = (),
    ) -> None:
        self._isolation = isolation
        unbound, hindered = _unbound(state), _hindered(state, isolation)
        self.entries: list[Entry] = []
        self.actions: list[Action] = []
        self.unbound = sum(
            len(unbound[entry.key])
            for entry in state.ledger.entries
            if entry.state is EntryState.COMMITTING and entry.key not in hindered
        )
        self._state = state
        self._nodes = {node.name: node for node in state.nodes} if state.ledger.entries else {}
        self._invalid_nodes = revalidation.invalid_nodes(
            state.ledger.entries,
            nodes=(assume.without_double_booked(node, double_booked) for node in state.nodes),
            unbound=unbound,
            begun={key for key in unbound if _seen(state, key).has_begun_to_bind},
            jobs={uid: seen.job for uid, seen in jobs.items()},
            isolation=isolation,
        )
        self._budget = LedgerBudget(state.ledger.entries, hindered)
        # A walk over all nodes, for gangs with constraints only.
        self._finest = functools.cache(lambda: domains.finest_level(state.nodes, len(state.levels)))

    def step(self, entry: Entry, seen: ObservedJob | None) -> None:
        """Take the entry's next step, if it does not raise and the ledger has room for it."""
        step = self._stepped(entry, seen)
        if step.entry is not None and step.entry != entry:
            changed, fits = step.entry, self._budget.change(entry, step.entry)
            step = self._stepped(changed, seen) if fits else Step(entry)
            if fits and self._isolation.error(Stage.COMMIT, entry.job_uid):
                self._budget.change(changed, entry)
                step = Step(entry)
        if step.entry is not None:
            self.entries.append(step.entry)
        self.actions.extend(step.actions)

    def _stepped(self, entry: Entry, seen: ObservedJob | None) -> Step:
        def work() -> Step:
            return gang.step(entry, self._gang_seen(entry, seen))

        return self._isolation.run(Stage.COMMIT, entry.job_uid, work, otherwise=Step(entry))

    def add(self, entry: Entry, seen: ObservedJob | None) -> bool:
        """Add a new entry; return whether the ledger had space. If not, it waits for a later
        cycle."""
        fits = self._budget.add(entry)
        if fits:
            self.step(entry, seen)
        return fits

    def ledger_capacity(self) -> LedgerCapacity:
        """What the ledger has for new gangs. Committing entries leave it within seconds; hindered
        ones by a deadline, and aborting ones once the last of their pods is gone."""
        limit = ledger.LEDGER_SIZE_MAX
        return LedgerCapacity(
            limit=limit,
            free=limit - self._budget.held(EntryState.ABORTING) - self._budget.hindered,
            share=ledger.COMMITTING_SIZE_MAX,
            held=self._budget.held(EntryState.COMMITTING),
        )

    def revoke(self, seen: ObservedJob, verdict: Assessment | None) -> None:
        cause = verdict.cause if isinstance(verdict, Ended) else None
        if verdict is not None and not isinstance(verdict, Succeeded):
            cause = cancels_run(seen) or cause or exceeds_deadline(seen, now_s=self._state.now_s)
        if cause is not None:
            self.end(seen, cause)

    def end(self, seen: ObservedJob, cause: Cause) -> None:
        """Revoke the live attempt for this cause, if the ledger has room for it."""
        record, dated = seen.record, replace(cause, time_s=self._state.now_s)
        self.add(entry_of(seen, record.nodes, record.attempt, dated), seen)

    def fail_idle(self, seen: ObservedJob, before: Sequence[Entry]) -> None:
        """Fail a job that reached its deadline without an attempt; ``before`` are its entries.

        The ledger gets an aborting attempt without pods: so no other leader, whose clock may be
        another, begins one that the job's status does not have.
        """
        now_s = self._state.now_s
        cause = exceeds_deadline(seen, now_s=now_s) if pending.is_idle(seen) else None
        if cause is None or any(entry.attempt > seen.record.ended for entry in before):
            return
        dated = replace(cause, time_s=now_s)
        entry = entry_of(seen, (), seen.record.attempt + 1, dated)
        self.add(replace(entry, purpose=Purpose.TRAINING), seen)

    def end_deleted(self) -> None:
        """Revoke live attempts of jobs that are being deleted, unless their pods go already. The
        garbage collector deletes pods once the job is gone, which a finalizer of somebody can delay
        for days."""
        in_flight = {entry.key for entry in self.entries}
        for each in self._state.deleted:
            pods = _seen(self._state, each.key).pods
            if each.key in in_flight or all(pod.terminal or pod.deleting for pod in pods):
                continue
            entry = Entry(
                job_uid=each.job_uid,
                namespace=each.namespace,
                job_name=each.job_name,
                attempt=each.attempt,
                state=EntryState.ABORTING,
                nodes=each.nodes,
                roles=(),
                cause=replace(_DELETED, time_s=self._state.now_s),
            )
            self.add(entry, None)

    def sweep(self, jobs: Mapping[str, ObservedJob]) -> None:
        """Delete pods of attempts that are over and settled.

        A delayed create can land after the end of its attempt. No leader binds such a pod, as its
        attempt is not in the ledger, so it has to be deleted here. The pods of an attempt that
        succeeded end by themselves and keep their logs; a pod whose sidecar goes on is deleted
        after ``SIDECAR_S``.
        """
        in_flight = {entry.key for entry in self.entries}
        for key in sorted(self._state.attempts):
            seen = jobs.get(key[0])
            if seen is None or key in in_flight or key[1] > seen.record.ended:
                continue
            left_over = functools.partial(self._left_over, key, seen)
            self.actions += self._isolation.run(Stage.CLEANUP, key[0], left_over, otherwise=[])

    def _left_over(self, key: AttemptKey, seen: ObservedJob) -> list[Action]:
        over = entry_of(seen, (), key[1], _OVER)
        done = (
            seen.record.phase is Phase.SUCCEEDED
            and key[1] == seen.record.ended
            and seen.ended_age_s < SIDECAR_S
        )
        return [
            gang.DeletePod(over, pod)
            for pod in _in_order(self._state.attempts[key].pods)
            if not pod.terminal and not pod.deleting and not (done and pod.node)
        ]

    def _gang_seen(self, entry: Entry, seen: ObservedJob | None) -> ObservedGang:
        attempt = _seen(self._state, entry.key)
        job, levels = None if seen is None else seen.job, self._state.levels
        return ObservedGang(
            pods=tuple(pod for pod in _in_order(attempt.pods) if pod.node_rank < len(entry.nodes)),
            placed=attempt.placed,
            stop=cancels_commit(entry, seen, now_s=self._state.now_s),
            refusal=attempt.refusal,
            hindrance=attempt.hindrance,
            invalid_nodes=self._invalid_nodes.get(entry.key, {}),
            broken_topology=revalidation.wider_spread(entry, self._nodes, levels)
            or revalidation.broken_constraint(entry, job, self._nodes, levels, self._finest),
            stalled_s=attempt.stalled_s,
            recorded_attempt=entry.attempt if seen is None else seen.record.attempt,
            recorded_end=entry.attempt if seen is None else seen.record.ended,
            crowded=self._budget.is_tight,
            started=seen is not None and seen.started and seen.record.attempt == entry.attempt,
            now_s=self._state.now_s,
        )


def _unbound(state: ClusterState) -> dict[AttemptKey, list[int]]:
    """The numbers of the pods that each entry may yet bind."""
    return {
        entry.key: assume.unbound_pods(entry, _seen(state, entry.key).pods)
        for entry in state.ledger.entries
    }


def _seen(state: ClusterState, key: AttemptKey) -> ObservedAttempt:
    return state.attempts.get(key, ObservedAttempt())


def _in_order(pods: Iterable[Pod]) -> tuple[Pod, ...]:
    return tuple(sorted(pods, key=lambda pod: (pod.node_rank, pod.uid)))


def entry_of(
    seen: ObservedJob,
    nodes: tuple[str, ...],
    attempt: int,
    cause: Cause | None,
    spans: tuple[tuple[str, int], ...] = (),
) -> Entry:
    """The entry of an attempt of this job: aborting if there is a cause, else committing."""
    return Entry(
        job_uid=seen.job.uid,
        namespace=seen.job.namespace,
        job_name=seen.job.name,
        attempt=attempt,
        state=EntryState.COMMITTING if cause is None else EntryState.ABORTING,
        nodes=nodes,
        roles=_entry_roles(seen.job) if cause is None else (),
        cause=cause,
        spans=spans,
        spec_hash=seen.spec_hash if cause is None else "",
        purpose=seen.job.purpose,
    )


def _entry_roles(job: Job) -> tuple[EntryRole, ...]:
    return tuple(EntryRole(role.name, role.replicas, role.per_pod) for role in job.roles)


def cancels_commit(entry: Entry, seen: ObservedJob | None, *, now_s: int) -> Cause | None:
    """The cause that cancels an attempt that is being bound; None if nothing does. Pods are created
    only of the spec with its hash. After an upgrade the hash can be of another version: then it
    starts again."""
    if seen is None:
        return _DELETED
    if seen.suspend:
        return _SUSPENDED
    is_other = entry.spec_hash not in ("", seen.spec_hash)
    if is_other and seen.spec_hash:
        return _CHANGED
    # A job that cannot be read any more has no hash: its spec may have changed.
    return exceeds_deadline(seen, now_s=now_s) or (_UNREADABLE if is_other else None)


def cancels_run(seen: ObservedJob) -> Cause | None:
    """The cause that cancels the running attempt; None if nothing does.

    These fields can only change while the job is suspended, which no cycle may have observed.
    """
    if seen.suspend:
        return _SUSPENDED
    record = seen.record
    if seen.job.num_pods != len(record.nodes) or specs_differ(record.spec_hash, seen.spec_hash):
        return _SPEC_CHANGED
    return None


def exceeds_deadline(seen: ObservedJob, *, now_s: int) -> Cause | None:
    """The cause that fails a job which has been active for as long as it may be; None before, and
    for a job that has not started since it was created or resumed."""
    started_s, deadline_s = seen.record.started_s, seen.active_deadline_s
    if started_s is None or deadline_s is None or now_s - started_s < deadline_s:
        return None
    return Cause(
        CauseCode.DEADLINE_EXCEEDED,
        f"the job has been active for {now_s - started_s} s, and its activeDeadlineSeconds is "
        f"{deadline_s}",
    )
