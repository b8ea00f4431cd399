"""The condition ProfileApplied of a job: whether its profile counts on its nodes."""

from __future__ import annotations

import pytest

from railwright_operator.report import status
from railwright_operator.report.status import StatusInput
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord

RUNNING = JobRecord(phase=Phase.RUNNING, attempt=1, nodes=("n0", "n1"))


def profile_applied(record: JobRecord, unprofiled: tuple[str, ...] | None) -> tuple[str, str, str]:
    """Status, reason and message of the condition."""
    rendered = status.render(
        StatusInput(
            record=record,
            before={},
            generation=1,
            now="2026-01-02T03:04:05Z",
            failures_used="",
            unprofiled=unprofiled,
        )
    )
    (found,) = (each for each in rendered["conditions"] if each["type"] == "ProfileApplied")
    return found["status"], found["reason"], found["message"]


@pytest.mark.parametrize(
    ("unprofiled", "stated"),
    [
        (None, ("False", "NoProfile", "no profile of this workload was recorded")),
        (
            (),
            ("True", "DevicesMatch", "the profile was recorded on the devices that the nodes have"),
        ),
        (
            ("A", "B"),
            ("False", "OtherDevices", "the profile was not recorded on A, B, which the nodes have"),
        ),
    ],
)
def test_profile_applied_says_if_devices_match(
    unprofiled: tuple[str, ...] | None, stated: tuple[str, str, str]
) -> None:
    assert profile_applied(RUNNING, unprofiled) == stated


def test_profile_applied_is_unknown_without_nodes() -> None:
    assert profile_applied(JobRecord(), ())[:2] == ("Unknown", "NoNodes")
