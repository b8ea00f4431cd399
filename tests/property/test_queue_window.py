"""What holds when more jobs wait than one scheduling cycle evaluates."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures import GPU, node
from fixtures.jobs import job
from fixtures.strategies import snapshots
from railwright_scheduler.isolation import Isolation, Stage
from railwright_scheduler.model.decisions import Decisions
from railwright_scheduler.model.reasons import (
    BindingBacklog,
    BlockedByReservation,
    LedgerFull,
    NotEvaluated,
    Reason,
)
from railwright_scheduler.model.snapshot import Job, QueueRound, Snapshot
from railwright_scheduler.policy import scheduling_queue
from railwright_scheduler.policy.admission import Admission, LedgerCapacity
from railwright_scheduler.policy.decide import decide as decide_unbounded
from railwright_scheduler.policy.queue_window import EvaluationWork, QueueWindow


def decide(
    snapshot: Snapshot,
    isolation: Isolation | None = None,
    reasons: Mapping[str, Reason] | None = None,
    admission: Admission | None = None,
) -> Decisions:
    """Decide with one job at the front, and one where the last cycle stopped."""
    window = functools.partial(QueueWindow, limit=1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(decide_unbounded.__globals__, "QueueWindow", window)
        return decide_unbounded(snapshot, isolation, admission, reasons=reasons or {})


def follow(snapshot: Snapshot, decisions: Decisions) -> Snapshot:
    """The next cycle's snapshot: what started holds its nodes."""
    started = {admit.job_uid: admit.nodes for admit in decisions.admitted}
    used = {node.name: dict(node.used) for node in snapshot.nodes}
    for each in snapshot.jobs:
        for name in started.get(each.uid, ()):
            for resource, amount in each.roles[0].per_pod.items():
                used[name][resource] = used[name].get(resource, 0) + amount
    return replace(
        snapshot,
        nodes=tuple(replace(node, used=used[node.name]) for node in snapshot.nodes),
        jobs=tuple(each for each in snapshot.jobs if each.uid not in started),
        reserved=decisions.reservations,
        queue_round=decisions.queue_round,
    )


def reasons_of(decisions: Decisions) -> dict[str, Reason]:
    return {wait.job_uid: wait.reason for wait in decisions.waiting}


@given(snapshots())
def test_every_job_is_evaluated_within_a_round(snapshot: Snapshot) -> None:
    """Of n jobs all are after n cycles; and in the end whatever fits beside reservations runs."""
    count, reasons = len(snapshot.jobs), dict[str, Reason]()
    for cycle in range((count + 1) ** 2):
        decisions = decide(snapshot, reasons=reasons)
        reasons = reasons_of(decisions)
        snapshot = follow(snapshot, decisions)
        if cycle >= count:
            assert not any(isinstance(reason, NotEvaluated) for reason in reasons.values())
    assert decide_unbounded(snapshot).admitted == ()


@given(snapshots())
def test_front_of_the_queue_is_evaluated_in_each_cycle(snapshot: Snapshot) -> None:
    for _ in snapshot.jobs:
        first = scheduling_queue.by_priority(snapshot.jobs)[:1]
        decisions = decide(snapshot)
        alone = decide_unbounded(replace(snapshot, jobs=tuple(first)))
        assert decisions.admitted[: len(alone.admitted)] == alone.admitted
        assert decisions.waiting[: len(alone.waiting)] == alone.waiting
        snapshot = follow(snapshot, decisions)


@given(snapshots())
def test_nothing_reserved_by_a_job_ahead_is_taken(snapshot: Snapshot) -> None:
    for _ in range(2 * len(snapshot.jobs)):
        decisions = decide(snapshot)
        _assert_nothing_reserved_is_taken(snapshot, decisions)
        snapshot = follow(snapshot, decisions)


def _assert_nothing_reserved_is_taken(snapshot: Snapshot, decisions: Decisions) -> None:
    started = {admit.job_uid: admit.nodes for admit in decisions.admitted}
    left = {
        each.name: {
            name: total - each.used.get(name, 0) for name, total in each.allocatable.items()
        }
        for each in snapshot.nodes
    }
    for each in scheduling_queue.by_priority(snapshot.jobs):
        held = started.get(each.uid) or decisions.reservations.get(each.uid, ())
        for name in held:
            for resource, amount in each.roles[0].per_pod.items():
                left[name][resource] -= amount
                assert each.uid not in started or left[name][resource] >= 0


@given(snapshots(), st.data())
def test_job_that_raises_changes_no_other(snapshot: Snapshot, data: st.DataObject) -> None:
    """A job that is set aside counts as if it were not there, whatever cycle it is."""
    jobs = snapshot.jobs
    uid = data.draw(st.sampled_from([each.uid for each in jobs])) if jobs else ""
    without = replace(snapshot, jobs=tuple(each for each in jobs if each.uid != uid))
    for _ in jobs:
        beside = decide(snapshot, Isolation({(Stage.DECISION, uid): "ValueError: no"}))
        alone = decide(without)
        assert repr(beside.admitted) == repr(alone.admitted)
        others = tuple(wait for wait in beside.waiting if wait.job_uid != uid)
        assert repr(others) == repr(alone.waiting)
        assert repr(beside.reservations) == repr(alone.reservations)
        snapshot, without = follow(snapshot, beside), follow(without, alone)


def _waiting(name: str, priority: int, nodes: int) -> Job:
    return job(name, priority=priority, replicas=nodes, per_pod={GPU: 8})


def test_job_not_evaluated_keeps_reservation_and_reason() -> None:
    """The job ``small`` would fit where ``large`` has reserved, and ``large`` is not evaluated."""
    names = ("n0", "n1", "n2", "n3", "n4")
    busy = {"n0": {GPU: 8}, "n1": {GPU: 8}}
    jobs = (_waiting("first", 2, 1), _waiting("large", 1, 4), _waiting("small", 0, 1))
    snapshot = Snapshot(
        levels=("block", "rack"),
        nodes=tuple(node(name, "b0", "r0", used=busy.get(name, {})) for name in names),
        queues=("default",),
        jobs=jobs,
    )
    snapshot = follow(snapshot, decide(snapshot))
    assert [each.uid for each in snapshot.jobs] == ["large", "small"]
    snapshot = replace(snapshot, jobs=(_waiting("other", 2, 1), *snapshot.jobs))
    snapshot = replace(
        snapshot,
        queue_round=QueueRound(
            scheduling_queue.position(jobs[2]), scheduling_queue.position(jobs[2])
        ),
    )
    reason = BlockedByReservation(2, "team/x", first_need=1, first_free=0, need=3, free=1)
    decisions = decide(snapshot, reasons={"large": reason})
    assert [admit.job_uid for admit in decisions.admitted] == ["other"]
    assert decisions.reservations.get("large") == snapshot.reserved["large"]
    assert reasons_of(decisions)["large"] == reason


def test_a_kept_reservation_holds_behind_a_job_without_one() -> None:
    """The first job, of the same kind, has no room in the ledger: it neither starts nor reserves,
    and the nodes that were free for it are free no more behind ``large``."""
    jobs = (_waiting("vast", 2, 4), _waiting("large", 1, 4), _waiting("small", 0, 1))
    snapshot = Snapshot(
        levels=(),
        nodes=tuple(node(f"n{at}", used={GPU: 8} if at == 0 else {}) for at in range(5)),
        queues=("default",),
        jobs=jobs,
        reserved={"large": ("n1", "n2", "n3", "n4")},
        queue_round=QueueRound(
            scheduling_queue.position(jobs[2]), scheduling_queue.position(jobs[2])
        ),
    )
    capacity = LedgerCapacity(limit=1, free=1, share=1, held=0)
    admission = Admission(0, capacity, lambda admit: 3 if admit.job_uid == "vast" else 1)
    reason = BlockedByReservation(2, "team/x", first_need=1, first_free=0, need=4, free=4)
    decisions = decide(snapshot, reasons={"large": reason}, admission=admission)
    assert isinstance(reasons_of(decisions)["vast"], LedgerFull)
    assert decisions.admitted == ()


def test_job_not_evaluated_has_its_position_of_now() -> None:
    """Others that were before it have started since."""
    jobs = tuple(_waiting(name, 0, 1) for name in "abc")
    snapshot = Snapshot((), (node("n0", used={GPU: 8}),), ("default",), jobs)
    assert reasons_of(decide(snapshot, reasons={"c": NotEvaluated(9)}))["c"] == NotEvaluated(3)


def test_window_goes_on_where_it_stopped() -> None:
    """Each job takes a quarter of the bound: two at the front, then two behind them."""
    positions = [(0, 0, str(number)) for number in range(9)]
    evaluated, stopped = [], None
    for _ in range(4):
        window = QueueWindow(stopped, limit=4)
        cycle = ""
        for position in positions:
            if window.admits(position):
                window.count(EvaluationWork(1))
                cycle += position[2]
        evaluated.append(cycle)
        stopped = window.following
    assert evaluated == ["0123", "0145", "0167", "018"]
    assert stopped is None


@given(st.integers(0, 3), st.integers(1, 9))
def test_jobs_that_come_meanwhile_do_not_lengthen_a_round(passed: int, more: int) -> None:
    """However many come behind the queue, and go, in each cycle: it begins anew and reaches all."""
    older = [(0, 0, f"{number}") for number in range(4)]
    evaluated, begun = set[str](), None
    for cycle in range(40):
        newer = [(0, 1 + cycle, f"{cycle}-{number}") for number in range(more)]
        # The job in question comes once the round has passed its place.
        late = [(0, 0, "late")] if cycle > passed else []
        window = QueueWindow(begun, limit=1)
        for position in sorted([*older, *late, *newer]):
            if window.admits(position):
                window.count(EvaluationWork(1))
                evaluated.add(position[2])
        begun = window.following
        if cycle > passed + 2 * (len(older) + more + 2):
            break
    assert "late" in evaluated


def test_gang_that_waits_for_the_api_server_is_overtaken_by_none() -> None:
    """The job ``large`` has all of its nodes in a cycle in which too many pods are unbound."""
    count = 1_500
    nodes = [node(f"n{at:04}", "b0", f"r{at // 16}") for at in range(count)]
    large = _waiting("large", 1, count)
    behind = [_waiting(f"small-{at}", 0, count // 3) for at in range(3)]
    first = _waiting("first", 2, 4 * count)
    snapshot = Snapshot(("block", "rack"), tuple(nodes), ("default",), (first, large, *behind))
    start = scheduling_queue.position(large)
    snapshot = replace(
        snapshot, queue_round=QueueRound(start, scheduling_queue.position(behind[-1]))
    )
    decisions = decide(snapshot, admission=Admission(900))
    assert isinstance(reasons_of(decisions)["large"], BindingBacklog)
    assert decisions.queue_round is not None
    assert decisions.queue_round.is_blocked
    decisions = decide(follow(snapshot, decisions))
    assert [admit.job_uid for admit in decisions.admitted] == ["large"]


def test_blocked_front_keeps_no_job_behind_from_its_reason() -> None:
    """The front is evaluated in each cycle, so the queue is evaluated as far as ever."""
    window = QueueWindow(None, limit=4)
    front, behind = (0, 0, "front"), (0, 0, "behind")
    assert window.admits(front)
    window.count(EvaluationWork(2))
    window.block(front)
    assert window.admits(behind)
    window.count(EvaluationWork(1))
    assert window.following is None


def test_shared_work_is_counted_once() -> None:
    window = QueueWindow(None, limit=10)
    for number in range(5):
        assert window.admits((0, 0, str(number)))
        window.count(EvaluationWork(1, (("kind", 4),)))
    assert window.admits((0, 0, "5"))
    window.count(EvaluationWork(1, (("kind", 4),)))
    assert not window.admits((0, 0, "6"))
