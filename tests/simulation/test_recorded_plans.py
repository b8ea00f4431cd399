"""Plans of drawn courses stay as they were recorded, and the courses reach what they are for."""

from __future__ import annotations

import pytest

from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.gang import BindPod, CreatePod, DeletePod, WritePlacement
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.model import reasons
from railwright_scheduler.plan import Plan
from simulation import recorded_plans
from simulation.drawn_courses import Course

REACHED = {
    *(action.__name__ for action in (WritePlacement, CreatePod, BindPod, DeletePod)),
    *(phase.value for phase in Phase),
    CauseCode.COMMIT_REFUSED,
    CauseCode.COMMIT_TIMED_OUT,
    CauseCode.HUNG,
    CauseCode.JOB_DELETED,
    CauseCode.NODE_LOST,
    CauseCode.POD_DELETED,
    CauseCode.POD_EVICTED,
    CauseCode.PROFILED,
    CauseCode.RANK_FAILED,
    CauseCode.REMAPPED,
    CauseCode.SUSPENDED,
    "BlockedByReservation",
    "MappingPending",
    "NeverFits",
    "NotEnoughNodes",
    "PriorityClassNotFound",
    "QueueNotFound",
    "TierNotFound",
    "double booking",
    "reservation",
    "score",
}


@pytest.fixture(scope="module")
def plans() -> dict[int, list[Plan]]:
    return {
        course: [plan for _, plan in Course(course).plans()] for course in recorded_plans.COURSES
    }


def test_plans_are_the_recorded_ones(plans: dict[int, list[Plan]]) -> None:
    now = {course: [*map(recorded_plans.digest, its)] for course, its in plans.items()}
    before = recorded_plans.recorded()
    assert recorded_plans.changed(now, before) == ""
    assert now.keys() == before.keys()


def test_courses_reach_every_feature(plans: dict[int, list[Plan]]) -> None:
    seen: set[str] = set()
    for plan in (plan for its in plans.values() for plan in its):
        assert plan.faults == ()
        seen |= {type(action).__name__ for action in plan.actions}
        seen |= {record.phase for record in plan.records.values()}
        seen |= {entry.cause.code for entry in plan.ledger.entries if entry.cause}
        seen |= {reasons.code(reason) for reason in plan.waits.values()}
        seen |= {"score"} if any(entry.score for entry in plan.ledger.entries) else set()
        seen |= {"reservation"} if any(plan.reservations.values()) else set()
        seen |= {"double booking"} if plan.double_bookings else set()
    assert seen >= REACHED


def test_changed_cycle_is_named() -> None:
    before = {0: ["a", "b", "c"], 1: ["a", "b"]}
    assert recorded_plans.changed(before, before) == ""
    now = {0: ["a", "x", "y"], 1: ["a", "b"]}
    message = recorded_plans.changed(now, before)
    assert message.startswith("the plans of 1 of 2 courses changed: course 0 from cycle 1.")
    assert "show 0 1" in message
