"""Plans of fresh courses keep the invariants, and each broken one is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import takewhile
from random import Random

import pytest

from railwright_scheduler import plan as scheduling
from railwright_scheduler.attempt.gang import BindPod, DeletePod
from railwright_scheduler.attempt.ledger import EntryState
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.cluster_state import ClusterState
from railwright_scheduler.model.snapshot import Unavailable
from railwright_scheduler.plan import Plan
from simulation import kept_seeds, plan_invariants
from simulation.drawn_courses import CYCLES, Course


@pytest.mark.parametrize(
    "courses", [*(range(first, first + 10) for first in range(300, 340, 10)), kept_seeds.courses()]
)
def test_plans_of_drawn_courses_keep_the_invariants(courses: Sequence[int]) -> None:
    for course in courses:
        assert plan_invariants.check(course) == CYCLES


def binding() -> tuple[ClusterState, Plan]:
    """The first cycle of a course in which pods are bound, and the last entry is a new gang whose
    first role has several pods."""
    for course in range(200):
        for state, plan in Course(course).plans():
            before = {entry.key for entry in state.ledger.entries}
            *_, last = (None, *plan.ledger.entries)
            if last is None or last.state is not EntryState.COMMITTING or last.key in before:
                continue
            if last.roles[0].replicas > 1 and any(
                isinstance(each, BindPod) for each in plan.actions
            ):
                return state, plan
    raise AssertionError("no course has one")


def changed(plan: Plan, **fields: object) -> Plan:
    """The plan with one more entry changed: its last start."""
    *others, last = plan.ledger.entries
    entries = (*others, replace(last, **fields))  # type: ignore[arg-type]
    return replace(plan, ledger=replace(plan.ledger, entries=entries))


def on_one_node(state: ClusterState, plan: Plan) -> tuple[ClusterState, Plan]:
    last = plan.ledger.entries[-1]
    return state, changed(plan, nodes=(last.nodes[0],) * len(last.nodes))


def on_a_lost_node(state: ClusterState, plan: Plan) -> tuple[ClusterState, Plan]:
    nodes = tuple(replace(node, unavailable=Unavailable.LOST) for node in state.nodes)
    return replace(state, nodes=nodes), plan


def beside_others(state: ClusterState, plan: Plan) -> tuple[ClusterState, Plan]:
    nodes = tuple(replace(node, used=dict(node.allocatable)) for node in state.nodes)
    return replace(state, nodes=nodes), plan


def suspended(state: ClusterState, plan: Plan) -> tuple[ClusterState, Plan]:
    return replace(state, jobs=tuple(replace(seen, suspend=True) for seen in state.jobs)), plan


def twice(state: ClusterState, plan: Plan) -> tuple[ClusterState, Plan]:
    *_, last = plan.ledger.entries
    running = replace(plan.records[last.job_uid], phase=Phase.RUNNING, attempt=last.attempt + 1)
    return state, replace(plan, records={**plan.records, last.job_uid: running})


def without_its_entry(state: ClusterState, plan: Plan) -> tuple[ClusterState, Plan]:
    return state, replace(plan, ledger=replace(plan.ledger, entries=()))


def deleting(state: ClusterState, plan: Plan) -> tuple[ClusterState, Plan]:
    bound = next(action for action in plan.actions if isinstance(action, BindPod))
    return state, replace(plan, actions=(DeletePod(bound.entry, bound.pod),))


def forgetting(state: ClusterState, plan: Plan) -> tuple[ClusterState, Plan]:
    return state, replace(plan, records={})


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (forgetting, "P1"),
        (on_one_node, "P2"),
        (on_a_lost_node, "P2"),
        (beside_others, "P3"),
        (suspended, "P4"),
        (twice, "P4"),
        (without_its_entry, "P5"),
        (deleting, "P6"),
    ],
)
def test_broken_plan_is_found(
    broken: Callable[[ClusterState, Plan], tuple[ClusterState, Plan]], name: str
) -> None:
    state, plan = binding()
    assert [*plan_invariants.violations(state, plan)] == []
    found = {each[:2] for each in plan_invariants.violations(*broken(state, plan))}
    assert name in found


def test_plan_that_depends_on_the_order_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    state, plan = binding()
    assert [*plan_invariants.order_violations(state, plan, Random(1))] == []

    def first_alone(state: ClusterState) -> Plan:
        waits = dict(takewhile(lambda each: each[0] == state.jobs[0].job.uid, plan.waits.items()))
        return replace(plan, waits=waits)

    monkeypatch.setattr(scheduling, "plan", first_alone)
    assert [*plan_invariants.order_violations(state, plan, Random(1))]
