"""The invariants of a cluster, by number, as functions over the stored objects.

The history checker holds recorded histories and simulated runs against them. An invariant reads one
revision of the stored objects, or the write between two, whatever caused it. Numbers are those of
the design. I2 and I3 are in ``railwright_scheduler.live_invariants``, as the operator checks them
too.

    I1   no node holds more than it has, with the assumed capacity of committing gangs
    I2   a gang is bound completely, or it is in the ledger; all pods exist before any is bound
    I3   live pods of two attempts of one job: the older attempt is aborting, its pods are going
    I4   the live pods of an attempt have distinct ranks
    I6   a job that ended stays as it ended, and gets no new attempt
    I7   an attempt is counted once, and only for causes that count, and that are there
    I9   a bound pod requests exactly, as integers, what its entry reserves
    I12  no pod and no Placement outlives its job, no pod its attempt
    I13  an object that is being deleted goes, if its finalizers can be removed
    I14  epochs rise, entries follow their state machine, and actions are in the ledger first
    I15  the abort of an attempt is written before the first delete of its pods
    I17  at rest, a cache equals the stored objects
    I18  a job migrates no more often than the topology hash changes
    I21  an attempt ends as hung only if a rank of it hangs
    I20  without faults an attempt costs three requests a pod and one for its Placement
    I24  a job fails when it has more failures in a window than it may have, and not before, and
         only causes that lie in the job count
    I22  no attempt ends as NodeLost but for lost nodes that its cause names
    I25  a job is DeadlineExceeded once it was active for so long, and not before
    I23  a job is Profiling while its attempt is a pre-run, which ends nothing and spends nothing
    I26  a group resumes from what it committed while an attempt was live (checkpoint_commits)
    I27  no launcher has to stop while its attempt is live and not revoked
    I28  a leader that deletes pods of an attempt lets none of its launchers go on
    I29  an attempt ends as RankFailed only if a rank fails by itself, and not with a pod of it that
         somebody deletes or evicts (simulated runs only, as I30)
    I30  no gang is committed to a cordoned node
    I31  what the controllers published and a source still says is neither missing nor changed in
         any version (`simulator/publication_checks`)

I5, that everything comes to rest once faults stop, and I20's other half, that a leader at rest
writes nothing and reads only what is due, depend on time, as does that no job outlives its
deadline: they are checked where simulated runs come to rest. I16, that a plan does not depend on
the order of its input, compares two plans: a property test.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from history import job_budgets
from history.stored import PodFact
from railwright_scheduler import live_invariants
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.ledger import AttemptKey, Entry, EntryState, Ledger
from railwright_scheduler.attempt.phases import FINAL, Phase
from railwright_scheduler.attempt.record import PRE_RUNS_MAX, JobRecord
from railwright_scheduler.model.snapshot import Amounts

REQUESTS_A_POD = 3
"""Create, bind, delete."""


class ViolationError(Exception):
    """An invariant does not hold; the message begins with its number."""


@dataclass(frozen=True, slots=True)
class Facts:
    """One revision. ``pods`` are ours; ``policies`` say how often a job may fail, and for how
    long it may be active.

    ``allocatable`` is what each node has for our pods. It may shrink (a node shrinks, a foreign pod
    is bound); amounts that were reserved before count as present until they are released. ``down``
    are nodes whose kubelets do not act. Of the history: ``whole`` are the attempts that were
    completely bound at one time, ``revoked`` those ever aborted, ``pre_runs`` the pre-runs.
    """

    allocatable: Mapping[str, Amounts]
    pods: Collection[PodFact]
    ledger: Ledger
    records: Mapping[str, JobRecord]
    policies: Mapping[str, job_budgets.PolicyRange]
    whole: Collection[AttemptKey]
    revoked: Mapping[AttemptKey, Cause]
    pre_runs: Collection[AttemptKey] = ()
    down: Collection[str] = ()


def check(facts: Facts) -> None:
    """Raise ViolationError if this revision breaks an invariant that each revision must keep."""
    for invariant in (_no_double_booking, _live, _distinct_ranks, _budgets):
        for finding in invariant(facts):
            raise ViolationError(finding)


def _live(facts: Facts) -> Iterator[str]:
    pods: dict[AttemptKey, list[PodFact]] = {}
    for pod in facts.pods:
        pods.setdefault(pod.key, []).append(pod)
    return live_invariants.gang_findings(pods, facts.ledger, whole=facts.whole)


def check_rest(facts: Facts) -> None:
    """I12 and I13, once everything came to rest."""
    for pod in facts.pods:
        record = facts.records.get(pod.job_uid)
        if record is None and not pod.deleting:
            raise ViolationError(f"I12: pod {pod.name} outlives its job {pod.job_uid}")
        over = record is not None and pod.attempt <= record.ended
        if over and not pod.terminal and not pod.deleting:
            raise ViolationError(f"I12: pod {pod.name} outlives its attempt")
        if pod.deleting and pod.node not in facts.down:
            raise ViolationError(f"I13: pod {pod.name} is being deleted on {pod.node} for ever")


def check_ledger(old: Ledger, new: Ledger) -> None:
    """I14, of one write of the ledger, by itself."""
    same_leader = new.epoch == old.epoch and new.holder == old.holder
    if not same_leader and new.epoch <= old.epoch:
        raise ViolationError(
            f"I14: the ledger went from epoch {old.epoch} of {old.holder} "
            f"to epoch {new.epoch} of {new.holder}"
        )
    if new.incarnation != old.incarnation:
        raise ViolationError(f"I14: ledger {old.incarnation} became {new.incarnation}")
    before = {entry.key: entry for entry in old.entries}
    for entry in new.entries:
        was = before.get(entry.key, entry)
        if (was.nodes, was.roles) != (entry.nodes, entry.roles):
            raise ViolationError(f"I14: the plan of {entry.key} went from {was} to {entry}")
        if was.state is EntryState.ABORTING and entry not in (was, was.brief):
            raise ViolationError(f"I14: the abort of {entry.key} went from {was} to {entry}")


def check_entries(facts: Facts, new: Ledger) -> None:
    """I3, I6, I7 and I14, of one write of the ledger over the revision before it."""
    before = {entry.key: entry for entry in facts.ledger.entries}
    after = {entry.key for entry in new.entries}
    for entry in new.entries:
        for finding in _writing(facts, entry, before.get(entry.key)):
            raise ViolationError(finding)
    for key, entry in before.items():
        if key not in after:
            for finding in _settling(facts, entry):
                raise ViolationError(finding)


def _writing(facts: Facts, entry: Entry, was: Entry | None) -> Iterator[str]:
    """What is wrong with an entry that is written, and ``was`` so before if it was there."""
    if was is not None and _loses_cause(facts, entry, was):
        yield f"I14: {entry.key} loses its cause before its job's record has it"
    if was is None and entry.state is EntryState.COMMITTING:
        yield from _beginning(facts, entry)
    elif entry.cause is not None and entry.cause.code is CauseCode.POD_DELETED:
        there = [p for p in facts.pods if p.key == entry.key and p.node and not p.deleting]
        if len(there) == len(entry.nodes) and entry.key not in facts.revoked:
            yield f"I7: {entry.key} ends for a pod that was not deleted"


def _loses_cause(facts: Facts, entry: Entry, was: Entry) -> bool:
    """Whether an aborting entry changes before the job's record has its end."""
    record = facts.records.get(entry.job_uid)
    recorded = record is None or record.ended >= entry.attempt
    return was.state is EntryState.ABORTING and was != entry and not recorded


def check_lost(entry: Entry, *, living: Collection[str]) -> None:
    """I22, of one abort that is written; ``living`` are the nodes that have been alive all the time
    since the attempt began. The cause names each lost node."""
    if entry.cause is None or entry.cause.code is not CauseCode.NODE_LOST:
        return
    if not entry.cause.nodes:
        raise ViolationError(f"I22: {entry.key} ends, and no node is lost: {entry.cause.message}")
    missed = [node for node in entry.cause.nodes if node in living]
    if missed:
        raise ViolationError(f"I22: {missed} live, and {entry.key} ends: {entry.cause.message}")


def check_bind(ledger: Ledger, pod: PodFact, *, node: str) -> None:
    """I9 and I14, of one binding that lands."""
    entry = next((entry for entry in ledger.entries if entry.key == pod.key), None)
    if entry is None:
        raise ViolationError(f"I14: {pod.name} is bound, but its attempt is not in the ledger")
    planned = dict(enumerate(entry.nodes)).get(pod.node_rank)
    if planned != node:
        raise ViolationError(f"I14: {pod.name} is bound to {node}, the ledger says {planned}")
    asked = {resource: amount for resource, amount in pod.amounts.items() if amount}
    reserved = {name: amount for name, amount in entry.amounts[pod.node_rank].items() if amount}
    if asked != reserved:
        raise ViolationError(f"I9: {pod.name} requests {pod.amounts}, reserved were {reserved}")
    for resource, amount in pod.amounts.items():
        if type(amount) is not int:
            raise ViolationError(f"I9: {pod.name} asks for {amount!r} {resource}, no integer")


def check_made(ledger: Ledger, pod: PodFact, made: Collection[int]) -> None:
    """I2, of one binding that lands: its whole gang was let in before any of it runs.

    ``made`` are the ranks of its attempt that ever had a pod.
    """
    for entry in ledger.entries:
        missing = sorted({*range(len(entry.nodes))} - {*made}) if entry.key == pod.key else []
        if missing:
            raise ViolationError(f"I2: {pod.name} is bound, and ranks {missing} were never made")


def check_delete(facts: Facts, pod: PodFact) -> None:
    """I15, of one delete of ours that lands."""
    record = facts.records.get(pod.job_uid)
    over = record is not None and pod.attempt <= record.ended
    if pod.key not in facts.revoked and not over:
        raise ViolationError(f"I15: {pod.name} is deleted, and no abort of {pod.key} is written")


def check_record(old: JobRecord, new: JobRecord) -> None:
    """I6 and I7, of one write of a job's record."""
    if old.phase in FINAL and new.phase is not old.phase:
        raise ViolationError(f"I6: a job went from {old.phase} to {new.phase}")
    if new.attempt < old.attempt or new.ended < old.ended or new.failures < old.failures:
        raise ViolationError(f"I7: a record went back, from {old} to {new}")


def check_pre_run(record: JobRecord, *, is_pre_run: bool) -> None:
    """I23, of one write of a job's record whose newest attempt is, or was, a pre-run or none."""
    succeeds = record.phase is Phase.SUCCEEDED and is_pre_run
    follows = record.pre_run is not None and record.pre_run.attempts > PRE_RUNS_MAX
    if succeeds or follows or (record.live and (record.phase is Phase.PROFILING) is not is_pre_run):
        raise ViolationError(f"I23: {record}, and its attempt is a pre-run: {is_pre_run}")


def check_wanted(ledger: Ledger, active: Collection[str]) -> None:
    """I12, a few cycles after these jobs, and no others, existed and were not suspended."""
    for entry in ledger.entries:
        if entry.state is EntryState.COMMITTING and entry.job_uid not in active:
            raise ViolationError(f"I12: {entry.key} is still committed, and nobody wants it")


def differences(
    kind: str, held: Mapping[str, object], stored: Mapping[str, object]
) -> Iterator[str]:
    """I17, once everything is at rest and published."""
    for key in sorted({*held, *stored}):
        if held.get(key) != stored.get(key):
            yield f"I17: {kind} {key} is held as {held.get(key)}, stored is {stored.get(key)}"


def check_cost(key: AttemptKey, *, requests: int, pods: int) -> None:
    """I20, of one attempt while nothing failed: ``pods`` were its ranks, or more that were made."""
    if requests > REQUESTS_A_POD * pods + 1:
        raise ViolationError(f"I20: {requests} requests were sent for {pods} pods of {key}")


def given_away(facts: Facts, *, late: bool = False) -> dict[str, dict[str, int]]:
    """The usage of each node by our pods and committing gangs.

    With ``late``, also that of late bindings: unbound pods of aborts.
    """
    used: dict[str, dict[str, int]] = {}
    for pod in facts.pods:
        if pod.live:
            _add(used.setdefault(pod.node, {}), pod.amounts)
    running = {(pod.key, pod.node_rank) for pod in facts.pods if pod.live}
    unbound = {(pod.key, pod.node_rank) for pod in facts.pods if not pod.node}
    for entry in facts.ledger.entries:
        is_assumed = entry.state is EntryState.COMMITTING
        for rank, (node, per_pod) in enumerate(zip(entry.nodes, entry.amounts, strict=True)):
            which = (entry.key, rank)
            if which not in running and (is_assumed or (late and which in unbound)):
                _add(used.setdefault(node, {}), per_pod)
    return used


def _no_double_booking(facts: Facts) -> Iterator[str]:
    used = given_away(facts)
    for node in sorted(used):
        has = facts.allocatable.get(node)
        if has is not None:
            for resource, held, available in live_invariants.excess(has, used[node]):
                yield f"I1: {node} has {available} {resource}, given away are {held}"


def _beginning(facts: Facts, entry: Entry) -> Iterator[str]:
    record = facts.records.get(entry.job_uid, JobRecord())
    if record.phase in FINAL:
        yield f"I6: {entry.key} is committed, and its job has {record.phase}"
    if entry.attempt <= record.attempt or entry.key in facts.revoked or entry.key in facts.whole:
        yield f"I14: {entry.key} is committed, and there was such an attempt before"
    for pod in facts.pods:
        older = pod.job_uid == entry.job_uid and pod.attempt < entry.attempt
        if older and pod.live and not pod.deleting:
            yield f"I3: {entry.key} is committed, and {pod.name} was not told to go"


def _settling(facts: Facts, entry: Entry) -> Iterator[str]:
    """A complete gang leaves the ledger and runs; any other only without a live pod, as
    recorded."""
    record = facts.records.get(entry.job_uid)
    if entry.state is EntryState.COMMITTING and entry.key in facts.whole:
        if record is not None and record.attempt < entry.attempt:
            yield f"I14: {entry.key} leaves the ledger, and its job's record has {record.attempt}"
        return
    if entry.state is EntryState.COMMITTING and record is not None:
        yield f"I2: {entry.key} leaves the ledger, and it was never whole"
    for pod in facts.pods:
        if pod.key == entry.key and pod.live:
            yield f"I14: {entry.key} leaves the ledger, and {pod.name} lives on {pod.node}"
    if record is not None and record.ended < entry.attempt:
        yield f"I14: {entry.key} leaves the ledger, and its job's record ends at {record.ended}"


def _add(total: dict[str, int], amounts: Amounts) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + amount


def _distinct_ranks(facts: Facts) -> Iterator[str]:
    seen: dict[tuple[AttemptKey, int], str] = {}
    for pod in facts.pods:
        if pod.live:
            twin = seen.setdefault((pod.key, pod.node_rank), pod.name)
            if twin != pod.name:
                yield f"I4: {pod.name} and {twin} are both rank {pod.node_rank} of {pod.key}"


def _budgets(facts: Facts) -> Iterator[str]:
    for uid, record in facts.records.items():
        its = (key for key in sorted(facts.revoked) if key[0] == uid)
        causes = [facts.revoked[key] for key in its if key not in facts.pre_runs]
        yield from job_budgets.violations(uid, record, facts.policies[uid], causes)
        yield from job_budgets.deadline_violations(uid, record, facts.policies[uid])
