"""A small gang ahead of a large job: the running operator makes it, and starts the job by what it
recorded; or without, where it brings nothing."""

from __future__ import annotations

from typing import Any

from integration import manifests, operator_site
from integration.operator_site import Floor, Job, Site
from railwright import profile
from railwright_api import names
from railwright_testbed import waiting
from railwright_testbed.simulated_launchers import Played, SimulatedLaunchers

PLAYED = Played(steps=1_000_000, checkpoint_interval_steps=100)


def applied(floor: Floor, **spec: Any) -> tuple[Job, Job]:
    """A job of all nodes of the floor that wants a pre-run, and that."""
    job = floor.apply(
        "large", nodes=4, profiling={"preRun": "Auto"}, workload=manifests.PARALLEL, **spec
    )
    return job, ahead_of(floor)


def ahead_of(floor: Floor) -> Job:
    return Job(floor.site.plane, floor.site.admin, floor.name, "large-pre-run")


def communication(floor: Floor) -> str:
    placement = floor.site.admin.get(f"{floor.path(names.PLACEMENTS)}/large-1")
    return str(placement["spec"]["mapping"]["communication"])


def test_a_large_job_is_laid_out_by_what_a_small_one_recorded(site: Site, floor: Floor) -> None:
    """Also if the operator ends meanwhile, and another goes on."""
    job, ahead = applied(floor)
    small = ahead.until_bound()
    assert len(small["nodes"]) == 2
    metadata = ahead.object()["metadata"]
    assert metadata["labels"] == {names.LABEL_PRE_RUN_OF: "large"}
    assert metadata["ownerReferences"][0]["uid"] == job.object()["metadata"]["uid"]
    job.until_said("its pre-run large-pre-run on 2 nodes records first what ranks send: Starting")
    assert not job.pods()
    operator_site.start_again(site)
    with SimulatedLaunchers(site.plane, PLAYED):
        status = job.until_phase("Running")
    assert ahead.status()["phase"] == "Succeeded"
    assert ahead.status()["profile"] == status["profile"]
    found = profile.profile(status["profile"].encode())
    assert found.ranks == 2
    assert communication(floor) == "measured"
    assert "preRun" not in status
    # Each operator tells once why it waits.
    job.until_events("PreRun", "PreRun", "Scheduled", "Running")


def test_job_starts_without_a_failed_pre_run_and_reports_it(site: Site) -> None:
    """On nodes of its own: on those of its pre-run, it would wait for the pods there to be gone."""
    with operator_site.floor_on(site, (2, 2, 2)) as floor:
        job, ahead = applied(floor)
        ahead.until_bound()
        site.kwok.fail_pod(floor.name, "large-pre-run-1-1", exit_code=3)
        status = job.until_bound()
        assert "the pre-run large-pre-run failed: " in status["preRun"]["message"]
        assert "exited with 3" in status["preRun"]["message"]
        assert communication(floor) == "derived"
        job.until_events("PreRun", "PreRunGivenUp", "Scheduled")
        # Nor does its next attempt wait for another.
        site.kwok.fail_pod(floor.name, "large-1-0", exit_code=3)
        job.until_bound(2)
        assert ahead.status()["attempt"] == 1


def test_a_name_that_is_taken_keeps_no_job_from_starting(site: Site, floor: Floor) -> None:
    stranger = manifests.job("large-pre-run", spec={"suspend": True})
    site.admin.post(floor.path(names.TRAINING_JOBS), stranger)
    job, ahead = applied(floor)
    status = job.until_bound()
    assert "large-pre-run was refused: " in status["preRun"]["message"]
    assert "another job has its name" in status["preRun"]["message"]
    assert ahead.object()["spec"]["suspend"] is True


def test_a_pre_run_goes_with_its_job_and_while_that_is_suspended(floor: Floor) -> None:
    job, ahead = applied(floor)
    first = ahead.until_bound()
    uid = ahead.object()["metadata"]["uid"]
    job.patch({"suspend": True})
    job.until_phase("Suspended")
    waiting.until(lambda: not ahead.object(), "its end", deadline_s=20)
    job.patch({"suspend": False})
    # What the first had may not all be collected yet, and has the names that this one's has.
    again = ahead.until_bound_at_last()
    assert ahead.object()["metadata"]["uid"] != uid
    assert len(again["nodes"]) == len(first["nodes"])
    job.delete()
    floor.until_nothing_is_left()


def test_job_as_small_as_its_pre_run_records_itself(floor: Floor) -> None:
    workload = manifests.PARALLEL | {"parallelism": {"data": 2}}
    job = floor.apply("small", nodes=2, profiling={"preRun": "Auto"}, workload=workload)
    job.until_bound()
    (env,) = {
        tuple(
            each["value"]
            for each in pod["spec"]["containers"][0]["env"]
            if each["name"] in ("RAILWRIGHT_PROFILE_STEPS", "RAILWRIGHT_PRE_RUN")
        )
        for pod in job.pods()
    }
    assert env == ("3",)
    assert not Job(floor.site.plane, floor.site.admin, floor.name, "small-pre-run").object()
