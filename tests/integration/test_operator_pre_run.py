"""A small attempt before a large job: the operator starts the job by what it recorded, or without
where it brought nothing."""

from __future__ import annotations

from typing import Any

from integration import manifests, operator_site
from integration.operator_site import Floor, Job, Site
from railwright import profile
from railwright_api import names
from railwright_testbed import waiting
from railwright_testbed.simulated_launchers import Played, SimulatedLaunchers

PLAYED = Played(steps=1_000_000, checkpoint_interval_steps=100)
ASKED = ("RAILWRIGHT_PROFILE_STEPS", "RAILWRIGHT_PRE_RUN")


def applied(floor: Floor, *, nodes: int = 4, **spec: Any) -> Job:
    """A job of so many replicas that wants a pre-run."""
    workload = manifests.PARALLEL | {"parallelism": {"data": nodes}}
    profiling = {"preRun": "Auto"}
    return floor.apply("large", nodes=nodes, profiling=profiling, workload=workload, **spec)


def placement(floor: Floor, attempt: int) -> dict[str, Any]:
    found = floor.site.admin.get(f"{floor.path(names.PLACEMENTS)}/large-{attempt}")
    return dict(found["spec"])


def asked(job: Job) -> set[tuple[str, ...]]:
    """What the pods of a job are asked to record, one for all if they are asked for the same."""
    return {
        tuple(
            each["value"] for each in pod["spec"]["containers"][0]["env"] if each["name"] in ASKED
        )
        for pod in job.pods()
    }


def test_large_job_is_mapped_by_its_pre_run(site: Site, floor: Floor) -> None:
    """Also if the operator ends meanwhile, and another goes on."""
    job = applied(floor)
    small = job.until_bound()
    assert (small["phase"], small["nodes"]) == ("Profiling", 2)
    assert asked(job) == {("3", "true")}
    operator_site.start_again(site)
    with SimulatedLaunchers(site.plane, PLAYED):
        status = job.until_phase("Running")
    stored = site.admin.get(f"{floor.path(names.PROFILES)}/large")
    assert stored["spec"]["attempt"] == 1
    found = profile.profile(stored["spec"]["document"].encode())
    assert (found.ranks, status["attempt"], status["nodes"]) == (2, 2, 4)
    assert (status["failures"], status["restarts"], "preRun" in status) == (0, 0, False)
    purposes = [placement(floor, attempt)["purpose"] for attempt in (1, 2)]
    assert purposes == ["PreRun", "Training"]
    assert placement(floor, 2)["mapping"]["communication"] == "Measured"


def test_job_whose_pre_run_fails_starts_without(site: Site) -> None:
    with operator_site.floor_on(site, (2, 2, 2)) as floor:
        job = applied(floor)
        job.until_bound()
        site.kwok.fail_pod(floor.name, "large-worker-1-1", exit_code=3)
        status = job.until_bound(2)
        assert status["preRun"]["message"].startswith("the pre-run ended in attempt 1: ")
        assert "exited with 3" in status["preRun"]["message"]
        assert (status["phase"], status["nodes"], status["failures"]) == ("Starting", 4, 0)
        assert placement(floor, 2)["mapping"]["communication"] == "Derived"
        job.until_events("Scheduled", "RankFailed", "PreRunGivenUp", "Scheduled")
        # Nor does its next attempt wait for another.
        site.kwok.fail_pod(floor.name, "large-worker-0-2", exit_code=3)
        job.until_bound(3)
        assert placement(floor, 3)["purpose"] == "Training"


def test_suspended_pre_run_frees_its_nodes_and_follows_again(floor: Floor) -> None:
    job = applied(floor)
    job.until_bound()
    job.patch({"suspend": True})
    job.until_phase("Suspended")
    waiting.until(lambda: not job.pods(), "its pods gone", deadline_s=20)
    job.patch({"suspend": False})
    status = job.until_bound(2)
    assert (status["phase"], placement(floor, 2)["purpose"]) == ("Profiling", "PreRun")
    job.patch({"profiling": {"preRun": "Never"}})
    job.until_bound(3)
    assert placement(floor, 3)["purpose"] == "Training"
    job.delete()
    floor.until_nothing_is_left()


def test_job_as_small_as_its_pre_run_records_itself(floor: Floor) -> None:
    job = applied(floor, nodes=2)
    assert job.until_bound()["phase"] == "Starting"
    assert asked(job) == {("3",)}
