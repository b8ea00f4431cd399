"""Whatever a job was doing, suspending, deleting and finishing it leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from integration import operator_site
from integration.operator_site import Floor, Job, Site
from railwright_testbed import waiting
from railwright_testbed.kwok import PREFIX

Arrange = Callable[[Floor], Job]

FAILS = {f"{PREFIX}/exit-code": "3"}
SUCCEEDS = {f"{PREFIX}/run-for": "0.1s"}


def queued(floor: Floor) -> Job:
    floor.site.plane.kubectl("cordon", floor.nodes[0])
    floor.site.until_nodes_heard()
    job = floor.apply("job", nodes=4)
    job.until_reason("NotEnoughNodes")
    return job


def starting(floor: Floor) -> Job:
    job = floor.apply("job", nodes=4)
    job.until_bound()
    return job


def recovering(floor: Floor) -> Job:
    job = starting(floor)
    floor.site.kwok.fail_pod(floor.name, "job-worker-2-1", exit_code=3)
    job.until(lambda status: "lastTermination" in status, "its end")
    return job


def suspended(floor: Floor) -> Job:
    job = floor.apply("job", nodes=4, suspend=True)
    job.until_phase("Suspended")
    return job


def succeeded(floor: Floor) -> Job:
    job = floor.apply("job", nodes=4, annotations=SUCCEEDS)
    job.until_phase("Succeeded")
    return job


def failed(floor: Floor) -> Job:
    job = floor.apply("job", nodes=4, annotations=FAILS, failurePolicy={"backoffLimit": 0})
    job.until_phase("Failed")
    return job


@pytest.mark.parametrize(
    "arrange",
    [queued, starting, recovering, suspended, succeeded, failed],
    ids=lambda a: a.__name__,
)
def test_job_deleted_in_any_phase_leaves_nothing(
    site: Site, floor: Floor, arrange: Arrange
) -> None:
    """Its pods, Placements and reservations go."""
    arrange(floor).delete()
    floor.until_nothing_is_left()
    site.plane.kubectl("uncordon", floor.nodes[0])
    site.until_nodes_heard()
    assert floor.apply("next", nodes=4).until_nodes() == floor.nodes


@pytest.mark.parametrize("arrange", [queued, starting, recovering], ids=lambda a: a.__name__)
def test_job_suspended_in_any_phase_frees_nodes_and_resumes(
    site: Site, floor: Floor, arrange: Arrange
) -> None:
    """It starts again when `suspend` is cleared."""
    job = arrange(floor)
    job.patch({"suspend": True})
    status = job.until_phase("Suspended")
    attempt = status.get("attempt", 0)
    assert "nodes" not in status
    waiting.until(
        lambda: not job.bound(attempt) and not floor.in_flight(),
        "its nodes are free",
        deadline_s=30,
    )
    floor.apply("other", nodes=3).until_bound()
    site.plane.kubectl("-n", floor.name, "delete", "tj", "other")
    site.plane.kubectl("uncordon", floor.nodes[0])
    site.until_nodes_heard()
    job.patch({"suspend": False})
    status = job.until_bound(attempt + 1)
    assert status["restarts"] == (1 if arrange is recovering else 0)


@pytest.mark.parametrize(
    ("annotations", "phase"), [(SUCCEEDS, "Succeeded"), (FAILS, "Failed")], ids=["well", "badly"]
)
def test_a_finished_job_goes_when_its_time_is_over(
    floor: Floor, annotations: dict[str, str], phase: str
) -> None:
    kept = floor.apply("kept", nodes=1, annotations=annotations, failurePolicy={"backoffLimit": 0})
    job = floor.apply(
        "job",
        nodes=1,
        annotations=annotations,
        failurePolicy={"backoffLimit": 0},
        ttlSecondsAfterFinished=15,
    )
    assert "finishedAt" in job.until_phase(phase)
    waiting.until(lambda: not job.object(), "the job is gone", deadline_s=60)
    waiting.until(lambda: not job.pods(), "its pods are gone", deadline_s=60)
    assert kept.until_phase(phase)
    assert len(kept.pods()) == 1


def test_job_made_again_waits_for_the_old_pods(site: Site) -> None:
    """No name that a pod has is planned, so nothing is refused, and nothing is taken over."""
    with operator_site.floor_on(site, (2, 2)) as floor:
        old = floor.apply("again", nodes=2)
        old.until_bound()
        uids = {pod["metadata"]["uid"] for pod in old.pods()}
        site.kwok.freeze()
        try:
            old.delete()
            waiting.until(lambda: not old.object(), "the old job is gone", deadline_s=20)
            new = floor.apply("again", nodes=2)
            message = new.until_reason("PodNamesTaken")["message"]
            assert "2 of its 2 pod names" in message
            assert {pod["metadata"]["uid"] for pod in new.pods()} == uids
        finally:
            site.kwok.thaw()
        new.until_bound(1)
        assert not uids & {pod["metadata"]["uid"] for pod in new.pods()}
        assert "CommitRefused" not in new.events()


def test_pods_of_a_removed_node_are_collected(site: Site) -> None:
    """No kubelet is left that could end them. Pod garbage collection writes a status first."""
    with operator_site.floor_on(site, (1,)) as floor:
        job = floor.apply("job", nodes=1)
        (node,) = job.until_nodes()
        waiting.until(
            lambda: [pod["status"]["phase"] for pod in job.pods()] == ["Running"],
            "it runs",
            deadline_s=30,
        )
        site.plane.kubectl("delete", "node", node)
        waiting.until(lambda: not job.pods(), "collected", deadline_s=150, evidence=job.timeline)
        floor.nodes.clear()
