"""Jobs that may be active only for so long, while they run and while they wait."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from integration import operator_site
from integration.operator_site import Floor, Job, Site
from railwright_testbed import waiting
from railwright_testbed.simulated_launchers import Played, SimulatedLaunchers

DEADLINE_S = 15


@pytest.fixture(scope="module")
def launchers(site: Site) -> Iterator[SimulatedLaunchers]:
    """Every pod that runs has a launcher, and no training ends."""
    with SimulatedLaunchers(
        site.plane, Played(steps=1_000_000, checkpoint_interval_steps=4)
    ) as launchers:
        yield launchers


def failed(job: Job) -> dict[str, Any]:
    """The status of the job once it failed at its deadline, not earlier and not much later."""
    status = job.until_phase("Failed")
    (condition,) = (each for each in status["conditions"] if each["type"] == "Failed")
    assert (condition["status"], condition["reason"]) == ("True", "DeadlineExceeded")
    found = re.match(
        r"the job has been active for (\d+) s, and its activeDeadlineSeconds is 15; no other",
        condition["message"],
    )
    assert found, condition["message"]
    assert DEADLINE_S <= int(found[1]) < DEADLINE_S + 10
    started, finished = (datetime.fromisoformat(status[at]) for at in ("startedAt", "finishedAt"))
    assert (finished - started).total_seconds() >= DEADLINE_S
    assert status["lastTermination"]["cause"] == "DeadlineExceeded"
    assert status["failures"] == 0
    return status


def test_job_fails_when_its_active_deadline_passes(
    launchers: SimulatedLaunchers, floor: Floor
) -> None:
    """A suspension in between resets the time, and nothing is left of the attempt."""
    job = floor.apply("job", activeDeadlineSeconds=DEADLINE_S)
    first = job.until_phase("Running")["startedAt"]
    job.patch({"suspend": True})
    assert "startedAt" not in job.until_phase("Suspended")
    job.patch({"suspend": False})
    assert job.until_phase("Running")["startedAt"] > first
    assert failed(job)["attempt"] == 2
    waiting.until(lambda: not job.bound(2) and not floor.in_flight(), "free", deadline_s=30)
    ends = ["Scheduled", "Running", "DeadlineExceeded", "Failed"]
    waiting.until(lambda: job.events()[-4:] == ends, "its events", deadline_s=20)


def test_waiting_job_fails_when_its_active_deadline_passes(
    site: Site, launchers: SimulatedLaunchers
) -> None:
    """It lost its node and gets no other; the next leader keeps it failed."""
    with operator_site.floor_on(site, (2,)) as floor:
        job = floor.apply("job", activeDeadlineSeconds=DEADLINE_S)
        job.until_phase("Running")
        site.plane.kubectl("cordon", floor.nodes[1])
        site.plane.kubectl("delete", "pod", "-n", floor.name, "job-worker-1-1")
        job.until_reason("NotEnoughNodes")
        assert failed(job)["attempt"] == 2
        assert not job.bound(2)
        waiting.until(lambda: not floor.in_flight(), "no entry", deadline_s=30)
        site.operator.stop()
        operator_site.start_again(site)
        floor.apply("next", nodes=1).until_phase("Running")
        assert job.status()["phase"] == "Failed"
