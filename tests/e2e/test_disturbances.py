"""A running gang meets the world: pods deleted by hand, suspension, deletion, a dying node."""

from __future__ import annotations

import json
from collections.abc import Callable

from fixtures.training import LiveJob, Training, script
from railwright_testbed import Testbed, deployment, waiting

Run = Callable[[Training], LiveJob]

SLEEPS = script("import time; time.sleep(600)")
REPLICAS = {
    "transformer": {
        "layers": 2,
        "hidden": 512,
        "heads": 8,
        "feedForward": 2048,
        "vocabulary": 1024,
    },
    "parallelism": {"data": 4},
    "training": {"sequence": 128, "globalBatch": 4},
}


def test_a_pod_deleted_by_hand_costs_no_failure(bed: Testbed, run: Run) -> None:
    job = run(Training("by-hand", SLEEPS))
    job.until_phase("Running")
    plane = bed.control_plane
    plane.kubectl("-n", job.namespace, "delete", "pod", "by-hand-worker-1-1", "--wait=false")
    status = job.until(
        lambda status: status["attempt"] == 2 and status["phase"] == "Running", "attempt 2 running"
    )
    assert status["lastTermination"]["cause"] == "PodDeleted"
    assert (status["failures"], status["restarts"]) == (0, 1)
    job.delete()


def test_suspend_frees_the_nodes_and_resume_starts_again(run: Run) -> None:
    job = run(Training("pausing", SLEEPS))
    job.until_phase("Running")
    job.patch({"suspend": True})
    job.until_phase("Suspended")
    waiting.until(lambda: not _live(job), "no live pod", deadline_s=60)
    job.patch({"suspend": False})
    status = job.until_phase("Running")
    assert (status["attempt"], status["failures"], status["restarts"]) == (2, 0, 0)
    job.delete()


def test_a_deleted_job_leaves_nothing(bed: Testbed, run: Run) -> None:
    job = run(Training("gone", SLEEPS))
    job.until_phase("Running")
    job.delete()
    plane = bed.control_plane

    def left() -> list[str]:
        found = plane.kubectl("-n", job.namespace, "get", "pods,placements,tj", "-o", "name")
        return found.split()

    waiting.until(lambda: not left(), "nothing left", deadline_s=90, evidence=lambda: str(left()))


def test_a_finished_job_goes_when_its_time_is_over(run: Run) -> None:
    job = run(Training("short", script("pass"), spec={"ttlSecondsAfterFinished": 15}))
    job.until_phase("Succeeded")
    waiting.until(lambda: job.status() == {}, "the job is gone", deadline_s=60)


def test_operator_restart_while_node_dies_replaces_node(bed: Testbed, run: Run) -> None:
    """Both replicas end while a node dies; a new one detects the loss and replaces the node."""
    job = run(Training("orphaned", SLEEPS, gpus=8))
    job.until_phase("Running")
    victim = job.nodes()[1]
    bed.kill_node(victim)
    try:
        deployment.crash_operator(bed.control_plane)
        status = job.until(
            lambda status: status["attempt"] == 2 and status["phase"] == "Running",
            "attempt 2 running",
        )
        assert status["lastTermination"]["lostNodes"] == [victim]
        assert victim not in job.nodes()
        assert status["failures"] == 0
    finally:
        job.delete()
        bed.restore_node(victim)


def test_a_node_cut_off_and_alive_is_stopped_when_it_comes_back(bed: Testbed, run: Run) -> None:
    """The job says what it does: it is mapped again without that node, and no other rank moves."""
    job = run(Training("cut-off", SLEEPS, nodes=4, gpus=8, spec={"workload": REPLICAS}))
    job.until_phase("Running")
    first = job.nodes()
    victim = first[1]
    bed.partition_node(victim)
    try:
        job.until(
            lambda status: status["attempt"] == 2 and status["phase"] == "Running", "attempt 2"
        )
        (spare,) = {each.name for each in bed.nodes} - {*first}
        placed = job.placement(2)
        assert placed["nodes"] == [spare if name == victim else name for name in first]
        assert placed["mapping"]["moved"] == 1
    finally:
        bed.restore_node(victim)
    waiting.until(
        lambda: not [pod for pod in _live(job) if pod.endswith("-1")],
        "attempt 1 stopped",
        deadline_s=180,
    )
    waiting.until(lambda: not _in_flight(bed, "cut-off"), "no entry", deadline_s=30)
    job.delete()


def _in_flight(bed: Testbed, job: str) -> list[int]:
    """The attempts of a job in the ledger."""
    ledger = bed.control_plane.kubectl("get", "ledger", "default", "-o", "json")
    entries = json.loads(ledger)["spec"].get("entries", [])
    return [entry["attempt"] for entry in entries if entry["jobName"] == job]


def _live(job: LiveJob) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in job.pods()
        if pod["status"]["phase"] not in ("Succeeded", "Failed")
    ]
