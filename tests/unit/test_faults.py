"""How long a stage of a job is set aside, and what the next leader reads of a hang."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from fixtures import observing
from fixtures.attempts import entry
from fixtures.observing import JOB, raw_job
from railwright_operator.faults import HUNG_S, RAISED_S, JobFaults
from railwright_operator.report.cycle_metrics import CycleMetrics
from railwright_scheduler.attempt.ledger import Ledger
from railwright_scheduler.isolation import Isolation, Stage

EMPTY = Ledger(epoch=1, incarnation="x", holder="me")
DECISION, ASSESSMENT = (Stage.DECISION, JOB), (Stage.ASSESSMENT, JOB)


def raises() -> None:
    raise ValueError("no")


def nothing() -> None:
    """It goes well."""


class Leader:
    """One leader's faults over one job, with a clock of its own."""

    def __init__(self, status: dict[str, Any] | None = None, *, generation: int = 1) -> None:
        self.now_s = 1000.0
        self.jobs = observing.jobs_cache()
        self.apply(status or {}, version=1, generation=generation)
        self.metrics = CycleMetrics(CollectorRegistry())
        self.faults = JobFaults(
            self.jobs, raised=self.metrics.job_faults, clock=lambda: self.now_s, rng=Random(0)
        )

    def apply(self, status: dict[str, Any], *, version: int, generation: int) -> None:
        raw = raw_job(version, 2, status)
        raw["metadata"]["generation"] = generation
        self.jobs.absorb(raw)

    def left(self, handling: tuple[Stage, str]) -> dict[str, Any]:
        """The mark that it leaves on the job that it hangs on."""
        marks: dict[str, Any] = {}
        self.faults.leave_mark(lambda _, mark: marks.update(mark), handling)
        return marks

    def cycle(
        self,
        *failed: tuple[Stage, str],
        after_s: float = 0.0,
        reached: tuple[tuple[Stage, str], ...] = (DECISION, ASSESSMENT),
    ) -> set[tuple[Stage, str]]:
        """One cycle, this much later; what was set aside in it. These stages raise, the others that
        it reaches go well."""
        self.now_s += after_s
        found = self.faults.set_aside(EMPTY)
        isolation = Isolation(found)
        for stage, uid in reached:
            isolation.run(stage, uid, raises if (stage, uid) in failed else nothing, otherwise=None)
        self.faults.record(isolation)
        return set(found)


def test_stage_that_raised_is_set_aside_and_retried() -> None:
    leader = Leader()
    assert leader.cycle(DECISION) == set()
    assert leader.cycle(after_s=RAISED_S.base_s / 4) == {DECISION}
    assert leader.cycle(DECISION, after_s=RAISED_S.base_s) == set()
    assert leader.cycle(after_s=RAISED_S.base_s / 2) == {DECISION}, "it waits longer each time"
    assert leader.cycle(after_s=2 * RAISED_S.base_s) == set()
    assert leader.cycle(DECISION) == set(), "it went well in between"
    assert leader.cycle(after_s=RAISED_S.base_s) == set()


def test_changed_job_is_tried_at_once() -> None:
    leader = Leader()
    leader.cycle(DECISION)
    leader.apply({}, version=2, generation=2)
    assert leader.cycle() == set()


def test_assessment_is_retried_each_cycle_and_logged_rarely(
    caplog: pytest.LogCaptureFixture,
) -> None:
    leader = Leader()
    with caplog.at_level(logging.ERROR):
        for _ in range(20):
            assert leader.cycle(ASSESSMENT, after_s=0.05) == set()
    assert [record.message for record in caplog.records] == ["job handling failed"]
    assert caplog.records[0].exc_info is not None


def test_entry_of_deleted_job_stays_set_aside() -> None:
    leader = Leader()
    commit = (Stage.COMMIT, JOB)
    leader.cycle(commit, reached=(commit,))
    leader.jobs.discard(JOB)
    in_flight = Ledger(1, "x", "me", entries=(entry(job_uid=JOB),))
    assert set(leader.faults.set_aside(in_flight)) == {commit}
    assert set(leader.faults.set_aside(EMPTY)) == set()


def test_mark_of_a_hang_sets_aside_for_longer_each_time() -> None:
    mark = Leader().left(DECISION)
    assert mark == {"stage": "Decision", "generation": 1, "hangs": 1}
    leader = Leader({"schedulingBackoff": mark})
    assert leader.cycle() == {DECISION}
    assert leader.faults.mark(JOB) == mark, "the status keeps it"
    assert leader.cycle(after_s=HUNG_S.cap_s) == set()
    assert leader.faults.mark(JOB) is None, "it went well"
    assert Leader({"schedulingBackoff": mark}).left(DECISION)["hangs"] == 2


def test_mark_stays_until_the_stage_was_reached() -> None:
    leader = Leader({"schedulingBackoff": {"stage": "Decision", "generation": 1, "hangs": 1}})
    leader.cycle()
    assert leader.cycle(after_s=HUNG_S.cap_s, reached=(ASSESSMENT,)) == set()
    assert leader.faults.mark(JOB) is not None
    leader.cycle()
    assert leader.faults.mark(JOB) is None


def test_second_stage_that_hangs_sets_the_whole_job_aside() -> None:
    mark = {"stage": "Traffic", "generation": 1, "hangs": 1}
    assert Leader({"schedulingBackoff": mark}).left((Stage.MIGRATION, JOB)) == {
        "stage": "Observation",
        "generation": 1,
        "hangs": 2,
    }


def test_hang_on_a_deleted_job_leaves_no_mark() -> None:
    leader = Leader()
    leader.jobs.discard(JOB)
    assert leader.left(DECISION) == {}


@pytest.mark.parametrize(
    "mark",
    [
        {"stage": "Decision", "generation": 7, "hangs": 1},
        {"stage": "Later", "generation": 1, "hangs": 1},
    ],
)
def test_mark_of_another_spec_or_stage_sets_nothing_aside(mark: dict[str, Any]) -> None:
    assert Leader({"schedulingBackoff": mark}).cycle() == set()
