"""A gang that loses a node or a rank before its first message: budget and recovery."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from history import notes
from integration import operator_site
from integration.operator_site import NODE_LOST_S, Floor, Job, Site
from railwright_api import names
from railwright_scheduler.attempt.record import BACKOFF_S_FIRST

NEVER_READY = {"image": "none", "imageID": "", "ready": False, "restartCount": 0}


def test_node_lost_before_the_start_is_replaced_by_a_spare(site: Site, hall: Floor) -> None:
    """Beside a hall of nodes that live: of three alone, one is the majority of those heard now."""
    with operator_site.floor_on(site, (2, 1)) as floor:
        lost, kept, spare = floor.nodes
        job = floor.apply("job")
        assert job.until_nodes() == [lost, kept]
        site.kwok.set_ready(lost, False)
        status = job.until_bound(2, deadline_s=NODE_LOST_S)
        assert job.nodes() == [kept, spare]
        end = status["lastTermination"]
        assert (end["cause"], end["lostNodes"], end["attempt"]) == ("NodeLost", [lost], 1)
        assert "not Ready for " in end["message"]
        assert (status["restarts"], status["failures"]) == (1, 0)
        job.until_events("Scheduled", "NodeLost", "Recovering", "Scheduled")
        site.kwok.set_ready(lost, True)


def test_job_without_spare_node_waits_until_one_returns(site: Site) -> None:
    """After the loss of a node the job waits with a reason, and starts when the node returns."""
    with operator_site.floor_on(site, (2,)) as floor:
        job = floor.apply("job")
        job.until_bound()
        gone = floor.nodes.pop()
        site.plane.kubectl("cordon", floor.nodes[0])
        site.plane.kubectl("delete", "node", gone)
        status = job.until(
            lambda status: status["phase"] == "Queued" and status["reason"] != "NodeLost", "a wait"
        )
        assert status["reason"] == "NeverFits"
        assert "at most 1 such nodes exist" in status["message"]
        assert status["lastTermination"]["lostNodes"] == [gone]
        floor.add(f"{floor.name}-rack-0", 1)
        assert "1 cordoned" in job.until_reason("NotEnoughNodes")["message"]
        site.plane.kubectl("uncordon", floor.nodes[0])
        assert job.until_nodes(2) == floor.nodes


def test_the_budget_is_exact_and_attempts_keep_their_distance(site: Site, floor: Floor) -> None:
    job = floor.apply("job", failurePolicy={"backoffLimit": 1})
    job.until_bound()
    site.kwok.fail_pod(floor.name, "job-worker-1-1", exit_code=3)
    status = job.until(lambda status: "lastTermination" in status, "its end")
    assert status["lastTermination"]["cause"] == "RankFailed"
    ended = datetime.fromisoformat(status["lastTermination"]["time"])
    nodes = job.until_nodes(2)
    started = datetime.fromisoformat(_scheduled(job)["lastTransitionTime"])
    assert (started - ended).total_seconds() >= BACKOFF_S_FIRST - 1
    site.kwok.fail_pod(floor.name, "job-worker-0-2", exit_code=4)
    status = job.until_phase("Failed")
    end = status["lastTermination"]
    assert (end["rank"], end["exitCode"], end["node"]) == (0, 4, nodes[0])
    assert (status["attempt"], status["failures"], status["restarts"]) == (2, 2, 1)
    assert "rank 0" in status["message"]
    job.until_events("Scheduled", "RankFailed", "Recovering", "Scheduled", "RankFailed", "Failed")


def test_new_leader_counts_failures_of_the_window(site: Site, floor: Floor) -> None:
    """Two days pass after the first failure; the two that follow are more than the job may have."""
    job = floor.apply("job", failurePolicy={"backoffLimit": 1})
    job.until_bound()
    site.kwok.fail_pod(floor.name, "job-worker-1-1", exit_code=3)
    status = job.until_bound(2)
    assert status["failureTimes"] == [status["lastTermination"]["time"]]
    site.operator.stop()
    noticed = datetime.fromisoformat(status["failureTimes"][0])
    before = {"failureTimes": [(noticed - timedelta(days=2)).isoformat()]}
    path = f"{floor.path(names.TRAINING_JOBS)}/job/status"
    site.forge(lambda: site.admin.patch(path, {"status": before}))
    operator_site.start_again(site)
    site.kwok.fail_pod(floor.name, "job-worker-0-2", exit_code=3)
    status = job.until_bound(3)
    assert (status["failures"], len(status["failureTimes"])) == (2, 1)
    used = "1 of 1 allowed failures used in the last 24 h"
    assert any(used in each["message"] for each in status["conditions"])
    site.operator.stop()
    operator_site.start_again(site)
    because = "the time of a failure is forged"
    with notes.outside_guarantees(site.plane, "I24", because=because):
        site.kwok.fail_pod(floor.name, "job-worker-0-3", exit_code=3)
        status = job.until_phase("Failed")
    assert status["message"].endswith("; 2 of 1 allowed failures used in the last 24 h")


def test_memory_kill_of_a_pod_is_published(site: Site, floor: Floor) -> None:
    job = floor.apply("job", failurePolicy={"backoffLimit": 0})
    job.until_bound()
    killed = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    container = {"name": "train", "state": killed} | NEVER_READY
    site.kwok.report_pod(
        floor.name, "job-worker-1-1", {"phase": "Failed", "containerStatuses": [container]}
    )
    end = job.until_phase("Failed")["lastTermination"]
    assert (end["cause"], end["exitCode"], end["rank"]) == ("OutOfMemory", 137, 1)
    assert "killed it for memory" in end["message"]


def test_an_evicted_pod_costs_no_failure(site: Site, floor: Floor) -> None:
    job = floor.apply("job", failurePolicy={"backoffLimit": 0})
    job.until_bound()
    site.kwok.report_pod(
        floor.name,
        "job-worker-0-1",
        {"phase": "Failed", "reason": "Evicted", "containerStatuses": []},
    )
    status = job.until_bound(2)
    assert status["lastTermination"]["cause"] == "PodEvicted"
    assert (status["failures"], status["restarts"]) == (0, 1)


def _scheduled(job: Job) -> dict[str, Any]:
    conditions = job.status()["conditions"]
    return next(condition for condition in conditions if condition["type"] == "Scheduled")
