"""Decide whether a running job ends and starts again where a step takes less time.

Problem: a job was placed on the link and node speeds of that time. Links or nodes became slower
since, and a step may be shorter on other nodes, or with the ranks in another order. But a start
costs minutes, and the work since the last checkpoint is done again.

Idea: run the job's own scheduling decision on its nodes plus what is free. The time that the rest
of the job saves must be worth the cost of the restart (``migration_cost``). A restart costs the
same however many ranks move, so the order with the shortest step is best; among equal ones the one
that moves the fewest ranks.

No oscillation: each job is evaluated once for each topology hash, whatever the result. The hash
must have been stable for a while, one job migrates at a time, each waits longer after each of its
migrations, and none migrates that would wait in the queue behind others.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from railwright_scheduler import assume, cluster, migration_reason
from railwright_scheduler.arrays import Ints
from railwright_scheduler.attempt import causes, resume_points
from railwright_scheduler.attempt import ledger as ledgers
from railwright_scheduler.attempt.assessment import Assessment, Ongoing
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import Entry, EntryState
from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.budget import OverBudgetError, WorkBudget
from railwright_scheduler.cluster_state import ClusterState, ObservedJob, sending_jobs
from railwright_scheduler.communication import measured
from railwright_scheduler.isolation import Isolation, Stage
from railwright_scheduler.mapping.evaluation import OrderEvaluator
from railwright_scheduler.mapping.request import OrderRequest, build_request
from railwright_scheduler.migration_cost import MigrationCost
from railwright_scheduler.model.evidence import PodState
from railwright_scheduler.model.reasons import WAITING_REASONS, LedgerFull, Reason
from railwright_scheduler.model.snapshot import Amounts, Job, Node, SendingJob, Snapshot
from railwright_scheduler.pending import with_previous_nodes
from railwright_scheduler.policy import ranks
from railwright_scheduler.policy.decide import decide
from railwright_scheduler.policy.link_traffic import Traffic
from railwright_scheduler.policy.mappings import MIGRATION, Mappings
from railwright_scheduler.policy.scheduling_queue import by_priority
from railwright_scheduler.remembered import Key, remembered

SETTLED_S = 30.0
"""How long the topology hash must have been stable: sources report one after the other, and a new
leader begins with none."""

HORIZON_S = 86_400.0
"""The time assumed to remain of a job that does not state its total steps."""

PAUSE_S, PAUSE_S_MAX = 600.0, 86_400.0
"""How long a job runs before it may migrate again; it doubles with each migration."""

EFFORT_MAX = 256
"""The work of evaluating jobs in one cycle, in nodes; one alone may take more. About a second's
worth."""

KEPT_BYTES_MAX = 32 << 20
"""Steps that are kept, each with the order that it takes so long in."""


@dataclass(frozen=True, slots=True)
class Migrations:
    """The job that ends to migrate, at most one, with the cause and its next nodes; and the jobs
    that are ``well`` placed under the current topology hash."""

    causes: Mapping[str, Cause]
    targets: Mapping[str, tuple[str, ...]]
    well: frozenset[str]


NO_MIGRATION = Migrations({}, {}, frozenset())


@dataclass(frozen=True, slots=True)
class _Move:
    """The migration of one job: its next nodes, what it costs and saves, and the cause."""

    job: Job
    target: tuple[str, ...]
    migration_cost: MigrationCost
    cause: Cause


def plan_migration(
    state: ClusterState,
    jobs: Mapping[str, ObservedJob],
    *,
    verdicts: Mapping[str, Assessment | None],
    waits: Mapping[str, Reason],
    entries: Sequence[Entry],
    isolation: Isolation,
    traffic_work: WorkBudget,
    mappings: Mappings,
    double_booked: Collection[str] = (),
) -> Migrations:
    """Evaluate running jobs that were placed under another topology hash, within the cycle's bound.
    One whose ranks are to be mapped first is evaluated once they are.

    ``waits`` are the jobs that this cycle leaves in the queue, ``entries`` the entries in flight
    after it. A job whose evaluation raises is not migrated.
    """
    in_flight = ledgers.by_job(entries)
    settled = [seen for uid, seen in jobs.items() if uid not in in_flight]
    stale = _those(
        settled,
        lambda seen: _is_stale(seen, verdicts[seen.job.uid], state.topology_hash),
        isolation,
    )
    if not stale:
        return NO_MIGRATION
    # After an upgrade the hash of a placement is unknown: it is taken to be well placed.
    well = frozenset(seen.job.uid for seen in stale if not seen.topology_hash)
    moves: dict[str, _Move | None] = {}
    if state.topology_age_s >= SETTLED_S and not _is_under_way(jobs, entries):
        ahead = by_priority(seen.job for seen in _ahead(jobs.values(), waits, in_flight))
        unsure = [seen for seen in stale if seen.job.uid not in well]
        ready = _those(unsure, lambda seen: _is_ready(seen, ahead[:1]), isolation)
        nodes = assume.subtract_assumed(state, entries, double_booked) if ready else ()

        def snapshot(seen: ObservedJob) -> Snapshot:
            others = sending_jobs((each for each in jobs.values() if each is not seen), in_flight)
            return _alone(state, nodes, seen, tuple(others))

        second = int(state.topology_age_s)
        moves = _evaluated(ready, snapshot, second, isolation, traffic_work, mappings)
    return _select(moves, well, state.topology_age_s, isolation)


def _evaluated(
    ready: Sequence[ObservedJob],
    snapshot: Callable[[ObservedJob], Snapshot],
    second: int,
    isolation: Isolation,
    traffic_work: WorkBudget,
    mappings: Mappings,
) -> dict[str, _Move | None]:
    """The migrations of those that are evaluated in this cycle, None for those that stay; not of
    those whose ranks are to be mapped first."""
    moves: dict[str, _Move | None] = {}
    before = {seen.job.uid: mappings.of(seen.job.uid + MIGRATION) for seen in ready}
    requested = {uid for uid, its in before.items() if its is not None}
    mapped = {uid for uid, its in before.items() if its is not None and its.outcome is not None}
    possible = [seen for seen in ready if seen.job.uid not in requested - mapped]
    for seen in _in_one_cycle(possible, mapped, second):
        uid = seen.job.uid
        its = mappings.of_migration(uid)
        work = functools.partial(_move, snapshot(seen), seen, isolation, traffic_work, its)
        move = isolation.run(Stage.MIGRATION, uid, work, otherwise=None)
        if not mappings.add_migration(uid, its):
            moves[uid] = move
        requested.discard(uid)
    for uid in sorted(requested):
        mappings.keep(uid + MIGRATION)
    return moves


def _select(
    moves: Mapping[str, _Move | None], well: frozenset[str], age_s: float, isolation: Isolation
) -> Migrations:
    """The migration that gains the most, of those that pay now. Jobs whose migration cannot pay
    are well placed too."""
    paying = [move for move in moves.values() if move and move.migration_cost.pays_at_best]
    evaluated = {uid for uid in moves if not isolation.error(Stage.MIGRATION, uid)}
    well |= evaluated - {move.job.uid for move in paying}
    costs = ((move, move.migration_cost) for move in paying)
    timely = [move for move, cost in costs if cost.pays and cost.is_timely(age_s)]
    best = max(timely, key=lambda move: move.migration_cost.gain_s, default=None)
    if best is None:
        return Migrations({}, {}, well)
    uid = best.job.uid
    return Migrations({uid: best.cause}, {uid: _by_role(best)}, well)


def _by_role(move: _Move) -> tuple[str, ...]:
    """The target nodes, sorted within each role, as reservations have them."""
    pod_ranges = move.job.pod_ranges
    return tuple(name for pods in pod_ranges for name in sorted(move.target[pods]))


def _those(
    jobs: Iterable[ObservedJob], condition: Callable[[ObservedJob], bool], isolation: Isolation
) -> list[ObservedJob]:
    """The jobs for which the condition holds; not those for which it raises."""

    def holds(seen: ObservedJob) -> bool:
        work = functools.partial(condition, seen)
        return isolation.run(Stage.MIGRATION, seen.job.uid, work, otherwise=False)

    return [seen for seen in jobs if holds(seen)]


def pause_s(moves: int) -> float:
    """How long a job that was moved so often has to run before it may be moved again."""
    return min(PAUSE_S * 2.0 ** (min(moves, 16) - 1), PAUSE_S_MAX) if moves else 0.0


def _ahead(
    jobs: Iterable[ObservedJob],
    waits: Mapping[str, Reason],
    in_flight: Mapping[str, Sequence[Entry]],
) -> Iterator[ObservedJob]:
    """The jobs that reserve nodes by the time that a job which ends now requests its own: those in
    the queue, and those that return to it once their pause or their pods are gone.
    """
    for seen in jobs:
        its = in_flight.get(seen.job.uid, ())
        starts = seen.record.live or any(each.state is EntryState.COMMITTING for each in its)
        if not (starts or seen.suspend or seen.record.phase in FINAL):
            why = waits.get(seen.job.uid, seen.held)
            never = isinstance(why, LedgerFull) and not why.passes
            if why is None or (isinstance(why, WAITING_REASONS) and not never):
                yield seen


def _is_stale(seen: ObservedJob, verdict: Assessment | None, topology_hash: str) -> bool:
    """Whether it runs well, and was placed under another topology hash."""
    return (
        seen.topology_hash != topology_hash
        and topology_hash != ""
        and seen.job.training is not None
        and seen.record.phase is Phase.RUNNING
        and isinstance(verdict, Ongoing)
        and not (verdict.suspected or verdict.wants_stacks)
    )


def _is_under_way(jobs: Mapping[str, ObservedJob], entries: Sequence[Entry]) -> bool:
    """Whether a job was ended to be moved, and does not run again yet."""
    for entry in entries:
        if entry.cause is not None and entry.cause.code is CauseCode.REMAPPED:
            seen = jobs.get(entry.job_uid)
            if seen is not None and seen.record.ended < entry.attempt:
                return True
    return any(
        seen.record.phase in (Phase.RECOVERING, Phase.STARTING)
        and seen.record.last_termination is not None
        and seen.record.last_termination.code is CauseCode.REMAPPED
        for seen in jobs.values()
    )


def _is_ready(seen: ObservedJob, ahead: Sequence[Job]) -> bool:
    """Whether the job may migrate now, if that pays: it would start again at once, and no job
    ``ahead`` in the queue would get its nodes."""
    readable = seen.spec_hash != "" or seen.record.spec_hash == ""
    return (
        seen.progress is not None
        and seen.held is None
        and readable
        and seen.bound_age_s >= pause_s(seen.record.moves)
        and by_priority([*ahead, seen.job])[0] is seen.job
    )


def _in_one_cycle(
    ready: Sequence[ObservedJob], mapped: Collection[str], second: int
) -> Iterator[ObservedJob]:
    """As many as may be evaluated in one cycle. Those that have been ``mapped`` go first, then
    those that would lose the least work, behind one that differs each ``second``: so jobs that
    wait for a checkpoint, which may never come, do not keep others from being evaluated."""
    ordered = sorted(ready, key=lambda seen: (_since(seen), seen.job.uid))
    if ordered:
        # A hash, as cycles that take two seconds would pass every second job.
        ordered.insert(0, ordered.pop(zlib.crc32(b"%d" % second) % len(ordered)))
        ordered.sort(key=lambda seen: seen.job.uid not in mapped)
    effort = 0
    for seen in ordered:
        its = max(ranks.JOB, sum(map(ranks.effort, seen.job.roles)))
        if effort and effort + its > EFFORT_MAX:
            return
        effort += its
        yield seen


def _since(seen: ObservedJob) -> int:
    """Steps since the newest checkpoint of the group that trains."""
    assert seen.job.training is not None, seen.job.uid
    role, _ = seen.job.training
    newest = resume_points.newest(seen.record.checkpoints, role.group or role.name)
    done = 0 if newest is None else newest.step
    return max(0, seen.progress.step - done) if seen.progress else 0


def _alone(
    state: ClusterState, nodes: tuple[Node, ...], seen: ObservedJob, others: tuple[SendingJob, ...]
) -> Snapshot:
    """The snapshot in which only this job is pending, without its own pods."""
    job = replace(seen.job, attempt=seen.record.attempt + 1)
    over = {row.node_rank for row in seen.ranks if row.pod in (PodState.SUCCEEDED, PodState.FAILED)}
    own: dict[str, list[Amounts]] = {}
    if len(seen.record.nodes) == job.num_pods:
        for node_rank, amounts in enumerate(job.amounts):
            if node_rank not in over:
                own.setdefault(seen.record.nodes[node_rank], []).append(amounts)
    return Snapshot(
        levels=state.levels,
        nodes=tuple(_without(node, own.get(node.name, ())) for node in nodes),
        queues=state.queues,
        jobs=(with_previous_nodes(job, seen.record.nodes),),
        links=state.links,
        senders=others,
    )


def _without(node: Node, pods: Sequence[Amounts]) -> Node:
    if not pods:
        return node
    used = {
        name: max(0, has - sum(amounts.get(name, 0) for amounts in pods))
        for name, has in node.used.items()
    }
    return replace(node, used=used)


def _move(
    alone: Snapshot,
    seen: ObservedJob,
    isolation: Isolation,
    traffic_work: WorkBudget,
    mappings: Mappings,
) -> _Move | None:
    """The migration that the job's own decision gives; None if no step can be predicted, or if the
    job would stay."""
    assert seen.progress is not None, seen.job.uid
    floor, before = cluster.of(alone), seen.record.nodes
    columns = {node.name: at for at, node in enumerate(floor.nodes)}
    if len(before) != seen.job.num_pods or not columns.keys() >= {*before}:
        return None
    target = _decided(alone, isolation, traffic_work, mappings)
    if target is None or target == before:
        return None
    assert seen.job.training is not None, seen.job.uid
    role, pods = seen.job.training
    before, after = before[pods], target[pods]
    nodes, others = (np.sort(np.array([columns[name] for name in its])) for its in (before, after))
    assert role.workload is not None, seen.job.uid
    # What was recorded of some devices and what is derived for others do not compare.
    workload = measured.held(role.workload, floor.devices(np.union1d(nodes, others)))
    uses = Traffic(floor, alone.senders, isolation, traffic_work).uses()
    work = WorkBudget()

    def step_s(names: tuple[str, ...], its: Ints) -> float:
        its_role = replace(role, workload=workload, before=names)
        return _as_it_stands(work, build_request(its_role, floor, its, budget=0, uses=uses))

    try:
        now_s, then_s = step_s(before, nodes), step_s(after, others)
    except OverBudgetError:
        return None
    if not now_s or not then_s:
        return None
    total, done = seen.progress.total_steps, seen.progress.step
    left = HORIZON_S / now_s if total is None else max(0, total - done)
    migration_cost = MigrationCost(now_s, then_s, left, _since(seen))
    message = migration_reason.sentence(migration_cost, floor, nodes, before=before, after=after)
    cause = causes.bounded(Cause(CauseCode.REMAPPED, message))
    return _Move(seen.job, target, migration_cost, cause)


def _decided(
    alone: Snapshot, isolation: Isolation, traffic_work: WorkBudget, mappings: Mappings
) -> tuple[str, ...] | None:
    """The nodes that the only job of the snapshot would get. Raises what its decision raises."""
    inner = isolation.nested()
    admitted = decide(alone, inner, traffic_work=traffic_work, mappings=mappings).admitted
    for fault in inner.faults:
        if fault.stage is Stage.DECISION:
            raise fault.exception
    return admitted[0].nodes if admitted else None


def _key(request: OrderRequest) -> Key:
    return request.key


@remembered(KEPT_BYTES_MAX, _key)
def _as_it_stands(work: WorkBudget, request: OrderRequest) -> float:
    """Seconds of a step with every rank where it was before; 0 where none is predicted."""
    order = np.array(request.before, dtype=np.int64)
    return OrderEvaluator(request, work).evaluate(order).step_us / 1e6
