"""The Profile of a job outlives the operator that stored it, and is deleted with its job."""

from __future__ import annotations

from typing import Any

import pytest

from integration import granted_rights, manifests, operator_site
from integration.operator_site import Floor, Site
from railwright_api import names
from railwright_testbed import waiting
from railwright_testbed.api_client import ApiError
from railwright_testbed.simulated_launchers import Played, SimulatedLaunchers

PLAYED = Played(steps=1_000_000, checkpoint_interval_steps=100)


def test_profile_maps_the_next_attempt_after_a_restart(site: Site, floor: Floor) -> None:
    """Another operator process than the one that stored the profile maps the next attempt."""
    job = floor.apply("seen", nodes=4, profiling={"preRun": "Auto"}, workload=manifests.PARALLEL)
    with SimulatedLaunchers(site.plane, PLAYED):
        status = job.until_phase("Running")
    stored = site.admin.get(f"{floor.path(names.PROFILES)}/seen")
    uid = job.object()["metadata"]["uid"]
    assert stored["spec"]["jobUID"] == stored["metadata"]["ownerReferences"][0]["uid"] == uid
    operator_site.start_again(site)
    attempt = status["attempt"]
    pod = f"seen-worker-0-{attempt}"
    site.plane.kubectl("-n", floor.name, "delete", "pod", pod, "--wait=false")
    job.until_bound(attempt + 1)
    assert job.placement(attempt + 1)["mapping"]["communication"] == "Measured"
    job.delete()
    floor.until_nothing_is_left()


@pytest.mark.parametrize(
    "stated", [{}, {"workload": {"opaque": {}, "parallelism": {}}}], ids=["none", "opaque"]
)
def test_profile_alone_maps_the_next_attempt(site: Site, floor: Floor, stated: Any) -> None:
    """The first attempt is in the network's order, and its recording maps the second one, whose
    recording replaces it."""
    job = floor.apply("alone", nodes=4, profiling={"steps": 3}, **stated)
    with SimulatedLaunchers(site.plane, PLAYED):
        first = job.until_phase("Running")["attempt"]
        until_recorded(floor, first)
        assert "mapping" not in job.placement(first)
        site.kwok.fail_pod(floor.name, f"alone-worker-0-{first}", exit_code=3)
        until_recorded(floor, first + 1)
    assert job.placement(first + 1)["mapping"]["communication"] == "Measured"
    granted_rights.expect_used(site.plane.audit_log, __name__, namespace=floor.name)
    job.delete()
    floor.until_nothing_is_left()


def until_recorded(floor: Floor, attempt: int) -> None:
    """Wait until the Profile of the job is that of this attempt."""

    def is_stored() -> bool:
        try:
            found = floor.site.admin.get(f"{floor.path(names.PROFILES)}/alone")
        except ApiError:
            return False
        return bool(found["spec"]["attempt"] == attempt)

    waiting.until(is_stored, f"the profile of attempt {attempt}", deadline_s=60)
