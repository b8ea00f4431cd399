"""The conditions of a job: why one is False, and whether its profile counts on its nodes."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures import attempts
from railwright_operator.report import status
from railwright_operator.report.status import StatusInput
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord

NOT_YET = {
    "Checkpointed": "NoCheckpoint",
    "ProfileApplied": "NoProfile",
    "Suspended": "NotSuspended",
    "Complete": "NotComplete",
    "Failed": "NotFailed",
}
"""The conditions that are False on a job that just began to run, with their reasons."""


def conditions(
    record: JobRecord, unprofiled: tuple[str, ...] | None = None
) -> dict[str, dict[str, Any]]:
    """The conditions of the job's status, by their types."""
    rendered = status.render(
        StatusInput(
            record=record,
            before={},
            generation=1,
            now="2026-01-02T03:04:05Z",
            failures_used=attempts.DAILY.usage(record.failure_times_s, 0),
            unprofiled=unprofiled,
        )
    )
    return {each["type"]: each for each in rendered["conditions"]}


def profile_applied(record: JobRecord, unprofiled: tuple[str, ...] | None) -> tuple[str, str, str]:
    """Status, reason and message of the condition."""
    found = conditions(record, unprofiled)["ProfileApplied"]
    return found["status"], found["reason"], found["message"]


@pytest.mark.parametrize(
    ("record", "reasons"),
    [
        (JobRecord(), NOT_YET | {"Scheduled": "Queued", "Running": "Queued"}),
        (attempts.RUNNING, NOT_YET),
    ],
    ids=["fresh", "running"],
)
def test_false_condition_has_reason_and_message(record: JobRecord, reasons: dict[str, str]) -> None:
    stated = conditions(record)
    false = {name: each for name, each in stated.items() if each["status"] == "False"}
    assert {name: each["reason"] for name, each in false.items()} == reasons
    assert [name for name, each in false.items() if not each["message"].strip()] == []


@pytest.mark.parametrize("phase", Phase)
def test_false_conditions_of_each_phase_have_messages(phase: Phase) -> None:
    live = phase in (Phase.PROFILING, Phase.STARTING, Phase.RUNNING)
    record = JobRecord(phase=phase, attempt=1, ended=0 if live else 1, nodes=("n0",) * live)
    silent = [
        name
        for name, each in conditions(record).items()
        if each["status"] == "False" and not (each["reason"] and each["message"].strip())
    ]
    assert not silent


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
    assert profile_applied(attempts.RUNNING, unprofiled) == stated


def test_profile_applied_is_unknown_without_nodes() -> None:
    assert profile_applied(JobRecord(), ())[:2] == ("Unknown", "NoNodes")
