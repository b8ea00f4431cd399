"""A job that cannot start has a reason with numbers within 5 s, and starts when it can."""

from __future__ import annotations

import pytest

from integration import manifests, operator_site
from integration.operator_site import Floor, Job, Site


def test_missing_queue_is_published_within_seconds(floor: Floor) -> None:
    name = f"{floor.name}-team"
    job = floor.apply("job", queue=name)
    status = job.until_reason("QueueNotFound", deadline_s=5)
    assert status["phase"] == "Queued"
    assert status["message"].startswith(f"queue {name!r} does not exist; existing queues: ")
    assert "default" in status["message"]
    floor.create(manifests.cluster_object("Queue", name))
    job.until_bound()


@pytest.mark.parametrize(
    ("asked", "stated"),
    [
        ((2, 9), "at most 8 nvidia.com/gpu on any node"),
        ((5, 8), "at most 4 such nodes exist: replicas <= 4"),
    ],
)
def test_job_that_can_never_fit_is_published_and_blocks_none(
    floor: Floor, asked: tuple[int, int], stated: str
) -> None:
    nodes, gpus = asked
    job = floor.apply("never", nodes=nodes, gpus=gpus)
    assert stated in job.until_reason("NeverFits", deadline_s=5)["message"]
    floor.apply("small").until_bound()
    assert job.status()["reason"] == "NeverFits"


def test_selector_without_a_match_is_published(site: Site, floor: Floor) -> None:
    selector = {operator_site.FLOOR_LABEL: floor.name, "example.com/kind": "none"}
    manifest = manifests.job("odd", pod={"nodeSelector": selector})
    site.admin.post(manifests.path("trainingjobs", floor.name), manifest)
    job = Job(site.plane, site.admin, floor.name, "odd")
    message = job.until_reason("NeverFits", deadline_s=5)["message"]
    assert "no node matches the selector" in message
    assert "example.com/kind=none" in message


def test_waiting_jobs_state_need_free_and_jobs_ahead(floor: Floor) -> None:
    floor.apply("holder", nodes=2).until_bound()
    large = floor.apply("large", nodes=4)
    # What the first cycle sees of new nodes and pods may be less.
    _until_waits(
        large,
        "NotEnoughNodes",
        "needs 4 nodes with 8 nvidia.com/gpu each; 2/4 nodes available; "
        f"best railwright.dev/rack {floor.name}-rack-1 has 2; 2 busy",
    )
    large.until_older()
    _until_waits(
        floor.apply("small", nodes=1),
        "BlockedByReservation",
        f"needs 1 node and 2 are available, but {floor.name}/large is ahead "
        "and reserved some of them: it needs 4 nodes and has 2 available; position 2 in the queue",
    )


def test_waiting_job_has_no_pods(floor: Floor) -> None:
    """So an autoscaler sees no pod for which it could add a node."""
    floor.apply("holder", nodes=2).until_bound()
    job = floor.apply("job", nodes=4)
    job.until_reason("NotEnoughNodes")
    job.until_older()
    assert job.pods() == []


def _until_waits(job: Job, reason: str, message: str) -> None:
    """Wait until these are the reason and the whole message of its status."""
    job.until(
        lambda status: (status.get("reason"), status.get("message")) == (reason, message),
        message,
        deadline_s=20.0,
    )


def test_unfit_nodes_are_counted_by_cause_and_used_on_recovery(site: Site, floor: Floor) -> None:
    """The reason counts unready, cordoned and tainted nodes."""
    cordoned, tainted, unready, well = floor.nodes
    site.plane.kubectl("cordon", cordoned)
    site.plane.kubectl("taint", "node", tainted, "railwright.dev/quarantine=:NoSchedule")
    site.kwok.set_ready(unready, False)
    site.until_nodes_heard()
    job = floor.apply("job", nodes=2)
    message = job.until_said("1 unready, 1 cordoned, 1 tainted")["message"]
    assert "1/4 nodes available" in message
    site.plane.kubectl("uncordon", cordoned)
    assert job.until_nodes() == [cordoned, well]
    second = floor.apply("second", nodes=2)
    second.until_reason("NotEnoughNodes")
    site.kwok.set_ready(unready, True)
    site.plane.kubectl("taint", "node", tainted, "railwright.dev/quarantine-")
    assert second.until_nodes() == [tainted, unready]


def test_a_lasting_taint_keeps_jobs_out_that_do_not_tolerate_it(site: Site) -> None:
    with operator_site.floor_on(site, (1,)) as floor:
        site.plane.kubectl("taint", "node", floor.nodes[0], "example.com/team=blue:NoSchedule")
        site.until_nodes_heard()
        message = floor.apply("job", nodes=1).until_reason("NeverFits")["message"]
        assert "example.com/team=blue:NoSchedule" in message
        site.plane.kubectl("taint", "node", floor.nodes[0], "example.com/team-")
