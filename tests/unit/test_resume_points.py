"""Up to which step the checkpoints of each group and attempt may be read."""

from __future__ import annotations

import pytest

from railwright_scheduler.attempt import resume_points
from railwright_scheduler.attempt.resume_points import Points, ResumePoint

GROUPS = ("worker", "evaluator")
WORKER = ResumePoint("worker", 1, 100)
EVALUATOR = ResumePoint("evaluator", 1, 90)


def raised(points: Points, *commits: tuple[str, int, int]) -> Points:
    for commit in commits:
        points = resume_points.raised(points, ResumePoint(*commit), groups=GROUPS)
    return points


def test_points_are_by_attempt_the_newest_first() -> None:
    found = raised((), ("worker", 1, 100), ("worker", 2, 150), ("worker", 2, 200))
    assert found == (ResumePoint("worker", 2, 200), WORKER)
    assert raised(found, ("worker", 2, 199)) == found


def test_each_group_has_points_of_its_own() -> None:
    found = raised((), ("worker", 1, 100), ("evaluator", 1, 90), ("worker", 2, 120))
    assert found == (ResumePoint("worker", 2, 120), EVALUATOR, WORKER)
    assert resume_points.newest(found, "worker") == ResumePoint("worker", 2, 120)
    assert resume_points.newest(found, "evaluator") == EVALUATOR
    assert resume_points.newest(found, "other") is None


def test_attempt_may_read_earlier_ones_alone() -> None:
    found = raised((WORKER,), ("worker", 2, 120), ("evaluator", 2, 110))
    assert resume_points.readable(found, 2) == (WORKER,)


def test_steps_beyond_the_resume_point_are_never_read() -> None:
    """Later checkpoints of the group are dropped; those of another group stay."""
    held = raised((), ("worker", 1, 100), ("worker", 2, 200), ("worker", 3, 300))
    held = raised(held, ("evaluator", 3, 290), ("worker", 4, 310))
    source = ResumePoint("worker", 2, 180)
    assert resume_points.lowered(held, source, attempt=4) == (
        ResumePoint("worker", 4, 310),
        ResumePoint("evaluator", 3, 290),
        source,
        WORKER,
    )
    newest = ResumePoint("worker", 3, 300)
    assert resume_points.lowered(held, newest, attempt=4) == held


@pytest.mark.parametrize(
    "source",
    [
        ResumePoint("worker", 1, 101),
        ResumePoint("worker", 2, 10),
        ResumePoint("worker", 3, 10),
        ResumePoint("other", 1, 10),
    ],
)
def test_source_that_could_not_be_read_changes_nothing(source: ResumePoint) -> None:
    """A launcher can only lower what its group may read, and never raise it."""
    held = raised((WORKER, EVALUATOR), ("worker", 2, 120))
    assert resume_points.lowered(held, source, attempt=2) == held


def test_newest_sixteen_attempts_of_each_group_stay() -> None:
    """A group that saves often takes no space from one that saves seldom."""
    found = raised(
        (), ("evaluator", 1, 1), *(("worker", attempt, attempt) for attempt in range(40))
    )
    assert [point.attempt for point in found if point.group == "worker"] == [*range(39, 23, -1)]
    assert resume_points.newest(found, "evaluator") == ResumePoint("evaluator", 1, 1)


def test_points_of_a_renamed_group_stay_while_there_is_space() -> None:
    """The gang's own groups come first; of the others those that saved last."""
    found = raised((), ("evaluator", 1, 5))
    for attempt in range(1, 31):
        found = raised(found, (f"old{attempt}", attempt, 7))
    assert {point.group for point in found} == {"evaluator", *(f"old{n}" for n in range(17, 31))}
