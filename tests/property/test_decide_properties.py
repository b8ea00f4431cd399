"""What holds for every decision, whatever the world: a model with loops judges the arrays."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from hypothesis import given, note, settings
from hypothesis import strategies as st

from fixtures import outcome, table, world
from fixtures.examples import examples
from fixtures.jobs import with_role
from fixtures.strategies import constrained_snapshots, snapshots
from railwright_scheduler.model.decisions import Admit, Decisions
from railwright_scheduler.model.reasons import BlockedByReservation, QueueNotFound, code
from railwright_scheduler.model.shortages import NeverFits, NotEnoughNodes
from railwright_scheduler.model.snapshot import (
    NO_CONSTRAINTS,
    UNKNOWN_DOMAIN,
    Job,
    Node,
    Snapshot,
    Taint,
    Toleration,
)
from railwright_scheduler.policy.decide import decide

PASSING = "node.kubernetes.io/"


@given(snapshots(), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_reach_the_answer(snapshot: Snapshot, rng: Random) -> None:
    shuffled = replace(
        snapshot,
        nodes=tuple(rng.sample(snapshot.nodes, len(snapshot.nodes))),
        queues=tuple(rng.sample(snapshot.queues, len(snapshot.queues))),
        jobs=tuple(rng.sample(snapshot.jobs, len(snapshot.jobs))),
    )
    assert decide(shuffled) == decide(snapshot)
    assert repr(decide(shuffled)) == repr(decide(snapshot))


@given(snapshots())
def test_every_job_is_in_one_list_and_both_are_in_queue_order(snapshot: Snapshot) -> None:
    decisions = decide(snapshot)
    queue_order = [job.uid for job in _line(snapshot)]
    admitted = [admit.job_uid for admit in decisions.admitted]
    waiting = [wait.job_uid for wait in decisions.waiting]
    assert sorted(admitted + waiting) == sorted(queue_order)
    assert admitted == sorted(admitted, key=queue_order.index)
    assert waiting == sorted(waiting, key=queue_order.index)


@settings(deadline=None, max_examples=examples(300))
@given(st.one_of(snapshots(), constrained_snapshots(), constrained_snapshots()))
def test_each_decision_equals_that_of_a_naive_model(snapshot: Snapshot) -> None:
    """Gangs whole, on distinct nodes that can take them; and each wait for its true reason."""
    decisions = decide(snapshot)
    note(f"{table(snapshot)}\n{snapshot.reserved}\n{outcome(decisions)}")
    free = {node.name: _free(node) for node in snapshot.nodes}
    waiting: list[Job] = []
    for job in _line(snapshot):
        verdict = _verdict(decisions, job)
        candidates = [node for node in snapshot.nodes if _could_ever(job, node)]
        available = [node for node in candidates if _can_now(job, node, free[node.name])]
        beside = {name: {**amounts} for name, amounts in free.items()}
        for ahead in waiting:
            _take(beside, decisions.reservations.get(ahead.uid, ()), ahead.roles[0].per_pod)
        allowed = [node for node in candidates if _can_now(job, node, beside[node.name])]
        if job.queue not in snapshot.queues:
            assert isinstance(verdict, QueueNotFound)
        elif not _gangs(job, candidates, snapshot):
            assert isinstance(verdict, NeverFits)
            assert verdict.candidates < job.num_pods
            assert verdict.candidates == len(candidates) or _is_constrained(job)
        elif _gangs(job, allowed, snapshot):
            assert isinstance(verdict, Admit)
            _assert_start(verdict, job, allowed, snapshot)
            _take(free, verdict.nodes, job.roles[0].per_pod)
        else:
            _assert_reservation(decisions, job, snapshot, waiting, allowed)
            waiting.append(job)
            _assert_numbers(verdict, job, available, snapshot, position=len(waiting))
    assert all(left >= 0 for amounts in free.values() for left in amounts.values())


@settings(deadline=None)
@given(st.one_of(snapshots(), constrained_snapshots()))
def test_reservations_stay_while_nothing_changes(snapshot: Snapshot) -> None:
    """The first decision starts what it can; the next ones see no other cluster."""
    first = decide(snapshot)
    used = {node.name: dict(node.used) for node in snapshot.nodes}
    jobs = {job.uid: job for job in snapshot.jobs}
    for admit in first.admitted:
        per_pod = jobs.pop(admit.job_uid).roles[0].per_pod
        for name, (resource, amount) in itertools.product(admit.nodes, per_pod.items()):
            used[name][resource] = used[name].get(resource, 0) + amount
    nodes = tuple(replace(node, used=used[node.name]) for node in snapshot.nodes)
    rest = replace(snapshot, nodes=nodes, jobs=tuple(jobs.values()), reserved=first.reservations)
    second = decide(rest)
    assert second.admitted == ()
    assert second.reservations == first.reservations


@given(snapshots(jobs_max=4))
def test_a_job_is_not_touched_by_those_behind_it(snapshot: Snapshot) -> None:
    line = _line(snapshot)
    whole = decide(snapshot)
    for length in range(len(line)):
        part = decide(replace(snapshot, jobs=tuple(line[:length])))
        assert whole.admitted[: len(part.admitted)] == part.admitted
        assert whole.waiting[: len(part.waiting)] == part.waiting


@given(snapshots(jobs_max=4))
def test_twice_of_everything_keeps_the_plan(snapshot: Snapshot) -> None:
    twice = replace(
        snapshot,
        nodes=tuple(
            replace(node, allocatable=_twice(node.allocatable), used=_twice(node.used))
            for node in snapshot.nodes
        ),
        jobs=tuple(with_role(job, per_pod=_twice(job.roles[0].per_pod)) for job in snapshot.jobs),
    )
    assert decide(twice).admitted == decide(snapshot).admitted


@given(snapshots(jobs_max=1))
def test_a_free_node_more_never_keeps_a_lone_job_from_starting(snapshot: Snapshot) -> None:
    spare = Node("spare", ("a",) * len(snapshot.levels), {"cpu": 64_000, "pods": 4}, {})
    wider = replace(snapshot, nodes=(*snapshot.nodes, spare))
    assert len(decide(wider).admitted) >= len(decide(snapshot).admitted)


@given(snapshots())
def test_every_reason_has_a_code_and_one_line(snapshot: Snapshot) -> None:
    for wait in decide(snapshot).waiting:
        assert code(wait.reason).isalpha()
        assert wait.reason.sentence()
        assert "\n" not in wait.reason.sentence()


@given(snapshots())
def test_a_snapshot_written_as_a_table_reads_back(snapshot: Snapshot) -> None:
    assert world(table(snapshot)) == snapshot


def test_the_hash_seed_does_not_reach_the_answer() -> None:
    answers = [_decided_with(seed) for seed in ("0", "1", "4242")]
    assert answers[0].count("Admit(") == 2
    assert answers[0].count("Wait(") == 4
    assert answers == [answers[0]] * 3


HASHED = """
queues default spare blue
node  block  rack  gpu   cpu    state     taints               labels
n0    b0     r0    8     4/64   -         -                    kind=h100,zone=a
n1    b0     r1    4/8   64     -         x=y:NoSchedule       kind=h100,zone=b
n2    b1     r0    8     64     -         p=q:NoExecute        kind=b200,zone=a
n3    -      r0    8     64     lost      -                    kind=b200,zone=c
n4    b1     -     8     64     -         -                    kind=h100,zone=a

job   nodes  gpu  cpu  memory  queue    selector  tolerations
a     2      4    1    -       spare    kind=h100 -
b     2      8    -    -       blue     -         p
c     3      8    -    -       default  zone=a    -
d     1      8    -    1Gi     default  -         *
e     1      1    -    -       none     -         -
f     1      1    -    -       default  -         x
"""


def _decided_with(seed: str) -> str:
    program = (
        "import sys; from fixtures import world; from railwright_scheduler.policy import decide;"
        "print(repr(decide.decide(world(sys.stdin.read()))))"
    )
    environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", program],
        input=HASHED,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return run.stdout


def _line(snapshot: Snapshot) -> list[Job]:
    return sorted(snapshot.jobs, key=lambda job: (-job.priority, job.submitted_s, job.uid))


def _verdict(decisions: Decisions, job: Job) -> object:
    found: list[object] = [each for each in decisions.admitted if each.job_uid == job.uid]
    found += [each.reason for each in decisions.waiting if each.job_uid == job.uid]
    assert len(found) == 1
    return found[0]


def _assert_start(verdict: Admit, job: Job, allowed: list[Node], snapshot: Snapshot) -> None:
    by_name = {node.name: node for node in allowed}
    assert len(set(verdict.nodes)) == len(verdict.nodes) == job.num_pods
    assert set(verdict.nodes) <= set(by_name)
    assert _meets(job, [by_name[name] for name in verdict.nodes], snapshot)


def _assert_numbers(
    verdict: object, job: Job, available: list[Node], snapshot: Snapshot, *, position: int
) -> None:
    if not _gangs(job, available, snapshot):
        assert isinstance(verdict, NotEnoughNodes)
        excluded = sum(each.nodes for each in verdict.excluded)
        if not _is_constrained(job):
            assert verdict.free + excluded == verdict.candidates
            assert verdict.best_free <= verdict.free
    else:
        assert isinstance(verdict, BlockedByReservation)
        assert verdict.position == position
    assert verdict.need == job.num_pods
    assert verdict.free == len(available) or _is_constrained(job)


def _assert_reservation(
    decisions: Decisions, job: Job, snapshot: Snapshot, ahead: list[Job], allowed: list[Node]
) -> None:
    """One of those nodes that could take it once others end, with the most that it could take now,
    then the most that it had; none if there is none."""
    left = {node.name: dict(node.allocatable) for node in snapshot.nodes}
    for each in ahead:
        _take(left, decisions.reservations.get(each.uid, ()), each.roles[0].per_pod)
    eligible = [node for node in snapshot.nodes if _could_hold(job, node, left[node.name])]
    now, prior = {node.name for node in allowed}, {*snapshot.reserved.get(job.uid, ())}
    names = [{node.name for node in each} for each in _gangs(job, eligible, snapshot)]
    worth = [(len(each & now), len(each & prior)) for each in names]
    reserved = decisions.reservations.get(job.uid, ())
    assert len(set(reserved)) == len(reserved)
    if names:
        assert worth[names.index({*reserved})] == max(worth)
    else:
        assert not reserved


def _is_constrained(job: Job) -> bool:
    return job.roles[0].constraints != NO_CONSTRAINTS


def _gangs(job: Job, nodes: list[Node], snapshot: Snapshot) -> list[tuple[Node, ...]]:
    """All sets of these nodes that meet its constraints, each in an order of its ranks."""
    levels = range(1, len(snapshot.levels) + 1)
    ordered = sorted(nodes, key=lambda node: [_domain(node, level) for level in levels])
    sets = itertools.combinations(ordered, job.num_pods)
    return [each for each in sets if _meets(job, each, snapshot)]


def _meets(job: Job, nodes: Sequence[Node], snapshot: Snapshot) -> bool:
    """Whether nodes, by rank, meet its constraints."""
    constraints = job.roles[0].constraints

    def domains(tier: str, its: Sequence[Node]) -> list[tuple[str, ...]]:
        return [_domain(node, snapshot.levels.index(tier) + 1 if tier else 0) for node in its]

    return (
        len({*domains(constraints.required, nodes)}) == 1
        and all(
            max(Counter(domains(each.tier, nodes)).values()) <= each.nodes
            and all(node.domains[snapshot.levels.index(each.tier)] for node in nodes)
            for each in constraints.spreads
        )
        and all(
            len({*domains(each.tier, nodes[first : first + each.nodes])}) == 1
            for each in constraints.segments
            for first in range(0, len(nodes), each.nodes)
        )
    )


def _domain(node: Node, level: int) -> tuple[str, ...]:
    """The path of a node's domain; a node without a name of one is alone there and below."""
    path = node.domains[:level]
    return path if UNKNOWN_DOMAIN not in path else (*path, node.name)


def _could_hold(job: Job, node: Node, left: Mapping[str, int]) -> bool:
    return _could_ever(job, node) and _can_now(job, node, left)


def _free(node: Node) -> dict[str, int]:
    return {name: total - node.used.get(name, 0) for name, total in node.allocatable.items()}


def _take(
    free: dict[str, dict[str, int]], names: tuple[str, ...], amounts: Mapping[str, int]
) -> None:
    for name in names:
        for resource, amount in amounts.items():
            free[name][resource] -= amount


def _could_ever(job: Job, node: Node) -> bool:
    return (
        all(node.labels.get(key) == value for key, value in job.roles[0].selector.items())
        and all(t.key.startswith(PASSING) or _tolerated(job, t) for t in node.taints)
        and all(
            node.allocatable.get(name, 0) >= need for name, need in job.roles[0].per_pod.items()
        )
    )


def _can_now(job: Job, node: Node, free: Mapping[str, int]) -> bool:
    return (
        node.unavailable is None
        and all(_tolerated(job, taint) for taint in node.taints)
        and all(free.get(name, 0) >= need for name, need in job.roles[0].per_pod.items())
    )


def _tolerated(job: Job, taint: Taint) -> bool:
    if taint.effect == "PreferNoSchedule":
        return True
    return any(_covers(toleration, taint) for toleration in job.roles[0].tolerations)


def _covers(toleration: Toleration, taint: Taint) -> bool:
    return (
        toleration.effect in ("", taint.effect)
        and toleration.key in ("", taint.key)
        and (toleration.operator == "Exists" or toleration.value == taint.value)
    )


def _twice(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: 2 * amount for name, amount in amounts.items()}
