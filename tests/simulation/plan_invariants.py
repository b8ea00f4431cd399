"""What holds for every plan, whatever its state: checked on the plans of drawn courses.

P1   no job is lost, and none raises: each has a record, and no stage of it failed
P2   a gang starts whole, on available nodes with its labels, the pods of one role on distinct nodes
P3   a start takes no more of a node than it has, beside all pods and earlier starts
P4   a job has at most one attempt that starts or runs, none while it is suspended or held, and the
     next one begins once the pods of those before it are gone, have ended or are being deleted
P5   pods are created and bound for starts that the ledger has, on the nodes that it has
P6   pods are deleted only of attempts that are neither starting nor running
P7   neither the order of jobs nor of nodes in the state matters
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.gang import BindPod, CreatePod, DeletePod
from railwright_scheduler.attempt.ledger import AttemptKey, Entry, EntryState
from railwright_scheduler.cluster_state import ClusterState, ObservedJob
from railwright_scheduler.live_invariants import excess
from railwright_scheduler.model.snapshot import Purpose
from railwright_scheduler.plan import Plan
from simulation.drawn_courses import Course
from simulation.recorded_plans import digest


class PlanError(Exception):
    """A plan breaks an invariant: the course, the cycle, and how."""


def check(course: int) -> int:
    """Hold the plans of a course against the invariants; return how many there are. Raises
    PlanError."""
    rng, count = Random(course), 0
    for cycle, (state, plan) in enumerate(Course(course).plans()):
        count += 1
        found = [*violations(state, plan), *order_violations(state, plan, rng)]
        if found:
            raise PlanError(f"course {course}, cycle {cycle}: {'; '.join(found)}")
    return count


def violations(state: ClusterState, plan: Plan) -> Iterator[str]:
    """What this plan of this state breaks, each beginning with its name."""
    starting = {
        entry.key: entry for entry in plan.ledger.entries if entry.state is EntryState.COMMITTING
    }
    before = {entry.key for entry in state.ledger.entries}
    jobs = {seen.job.uid: seen for seen in state.jobs}
    yield from (f"P1: {fault.job_uid} raised {fault.error}" for fault in plan.faults)
    if lost := sorted(jobs.keys() - plan.records.keys()):
        yield f"P1: {lost} have no record"
    for key, entry in starting.items():
        if key not in before:
            yield from _start(state, entry, jobs[entry.job_uid], before)
    yield from _over_commitments(state, starting, starting.keys() - before)
    yield from _attempts(plan, starting)
    yield from _actions(plan, starting)


def order_violations(state: ClusterState, plan: Plan, rng: Random) -> Iterator[str]:
    """The same of the order of the state's parts."""
    shuffled = replace(
        state,
        nodes=tuple(rng.sample(state.nodes, len(state.nodes))),
        jobs=tuple(rng.sample(state.jobs, len(state.jobs))),
    )
    if digest(scheduling.plan(shuffled)) != digest(plan):
        yield "P7: another order of nodes and jobs gives another plan"


def _start(
    state: ClusterState, entry: Entry, seen: ObservedJob, before: set[AttemptKey]
) -> Iterator[str]:
    nodes = {node.name: node for node in state.nodes}
    if seen.suspend or seen.held is not None:
        yield f"P4: {entry.key} starts although its job is suspended or held"
    for key, attempt in state.attempts.items():
        if key[0] == entry.job_uid and key != entry.key:
            for pod in attempt.pods:
                if not pod.terminal and not pod.deleting and key in before:
                    yield f"P4: {entry.key} starts beside pod {pod.name} of {key}"
    if entry.purpose is Purpose.TRAINING and len(entry.nodes) != seen.job.num_pods:
        yield f"P2: {entry.key} starts {len(entry.nodes)} of {seen.job.num_pods} pods"
    selectors = {role.name: role.selector for role in seen.job.roles}
    places = [(entry.place(pod)[0].name, name) for pod, name in enumerate(entry.nodes)]
    if len({*places}) != len(places):
        yield f"P2: a role of {entry.key} has two pods on one node"
    for role, name in places:
        if nodes[name].unavailable is not None:
            yield f"P2: {entry.key} starts on {name}, which is {nodes[name].unavailable}"
        if not selectors[role].items() <= nodes[name].labels.items():
            yield f"P2: {entry.key} starts on {name}, which has other labels"


def _over_commitments(
    state: ClusterState, starting: dict[AttemptKey, Entry], new: set[AttemptKey]
) -> Iterator[str]:
    """Only of what starts now: pods that nobody planned may hold more of a node as well."""
    held: defaultdict[str, Counter[str]] = defaultdict(Counter)
    taken: defaultdict[str, set[str]] = defaultdict(set)
    for key, entry in starting.items():
        seen = state.attempts.get(key)
        bound = {pod.node_rank for pod in seen.pods if pod.node} if seen else set()
        for pod, name in enumerate(entry.nodes):
            if pod not in bound:
                held[name].update(entry.amounts[pod])
            if key in new:
                taken[name].update(entry.amounts[pod])
    for node in state.nodes:
        together = held[node.name] + Counter(node.used)
        for resource, amount, available in excess(node.allocatable, together):
            if resource in taken[node.name]:
                yield f"P3: starts hold {amount} {resource} of {node.name}, which has {available}"


def _attempts(plan: Plan, starting: dict[AttemptKey, Entry]) -> Iterator[str]:
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for uid, number in starting:
        numbers[uid].add(number)
    for uid, record in plan.records.items():
        if record.live:
            numbers[uid].add(record.attempt)
    yield from (f"P4: {uid} has {its}" for uid, its in numbers.items() if len(its) > 1)


def _actions(plan: Plan, starting: dict[AttemptKey, Entry]) -> Iterator[str]:
    for action in plan.actions:
        key = action.entry.key
        match action:
            case CreatePod() | BindPod() if starting.get(key) != action.entry:
                yield f"P5: {type(action).__name__} for {key}, which does not start"
            case DeletePod() if key in starting or _is_live(plan, key):
                yield f"P6: a pod of {key} is deleted, which starts or runs"


def _is_live(plan: Plan, key: AttemptKey) -> bool:
    record = plan.records.get(key[0])
    return record is not None and record.live and record.attempt == key[1]
