"""Railwright as its users run it: installed by its chart, as pods from its images."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fixtures import command_line, network_tap, queries
from fixtures.training import REPORTS_STEPS, LiveJob, Training, script, step_of
from railwright_dashboards.generate import DASHBOARDS
from railwright_observe import page, scenario, site
from railwright_testbed import (
    ControlPlane,
    Testbed,
    deployment,
    later_fields,
    later_version,
    product_images,
    waiting,
)
from railwright_testbed.prometheus import INTERVAL_S, Prometheus
from railwright_testbed.service_process import NAMESPACE

Run = Callable[[Training], LiveJob]

DEADLINE_S = 120.0

TRAINS = ["python3", str(product_images.REPOSITORY / "examples/ddp/train.py"), "--steps=100000"]
TRAINS += ["--checkpoint-dir=/checkpoints", "--checkpoint-every=5", "--min-step-seconds=0.2"]

OF_FAULTS = (
    'railwright_attempts_ended_total{cause="PodDeleted"}',
    'railwright_attempts_ended_total{cause="RankFailed"}',
    'railwright_recovery_seconds_count{cause="PodDeleted"} > 0',
    'railwright_job_restarts_total{job_name="seen"} == 1',
    'railwright_job_attempts_ended_total{job_name="seen", cause="PodDeleted"} == 1',
    "sum(railwright_leader) == 2",
    'railwright_job_checkpoint_size_bytes{job_name="seen"} > 1000',
    'railwright_job_checkpoint_timestamp_seconds{job_name="seen"} > 0',
    'railwright_job_step_seconds{job_name="seen"} > 0.1',
)
"""Series of what happens to the two jobs."""


def test_job_without_python_in_its_image_runs(bed: Testbed, run: Run) -> None:
    """The image's shell finds no python3; the launcher has its own."""
    command = ["/bin/sh", "-c", "echo rank $RANK of $WORLD_SIZE"]
    job = run(Training("no-python", command, environment={"PATH": "/nowhere"}))
    job.until_phase("Succeeded")
    for rank in (0, 1):
        lines = job.logs(1, rank).splitlines()
        assert f"rank {rank} of 2" in lines
        # A launcher that reached the standby went on to the leader.
        assert not [line for line in lines if "refused" in line], lines


def test_job_trains_through_upgrade_and_roll_back(bed: Testbed, run: Run, tmp_path: Path) -> None:
    """The next version has fields and reasons that this one does not know. No attempt ends."""
    plane, chart = bed.control_plane, later_version.chart(tmp_path)
    job = run(Training("trains", script(REPORTS_STEPS)))
    job.until(lambda found: step_of(found) > 0, "its first step")
    deployment.upgrade(plane, chart=chart)
    assert _images(plane) == {later_version.VERSION}
    job.until(lambda found: _is_of_later(found["progress"]), "progress as the next version has it")
    waits = run(Training("waits", ["true"], nodes=99))
    waits.until(
        lambda found: later_fields.NEW_REASON in json.dumps(found.get("conditions")), "its reasons"
    )
    for each in (job, waits):
        printed = command_line.printed(
            plane.kubeconfig, "status", each.name, "-n", each.namespace, "-o", "json"
        )
        assert json.loads(printed)["conditions"]
    # With the kinds of the next version this one reads all that it wrote.
    deployment.upgrade(plane, f"images.tag={product_images.version()}", chart=chart)
    _demand_steps(job, 20)
    deployment.roll_back(plane)
    assert _images(plane) == {product_images.version()}
    _demand_steps(job, 20)
    waits.until(lambda found: later_fields.NEW_REASON not in json.dumps(found), "known reasons")
    job.delete()
    waits.delete()


def test_agents_report_every_node(bed: Testbed) -> None:
    plane = bed.control_plane

    def reporting() -> int:
        fabric = json.loads(plane.kubectl("get", "fabric", "default", "-o=json"))
        return int(fabric["status"].get("agents", {}).get("nodes", 0))

    count = len([*bed.nodes, bed.system])
    waiting.until(lambda: reporting() == count, "reports of all agents", deadline_s=DEADLINE_S)
    assert "no findings" in command_line.printed(plane.kubeconfig, "topology")


def test_doctor_finds_nothing_that_failed(bed: Testbed) -> None:
    """Every check can be carried out; the agents may still be coming up."""
    ended = command_line.run(bed.control_plane.kubeconfig, "doctor", "-o", "json")
    found = json.loads(ended.stdout)
    wrong = [row for row in found if row["result"] not in ("ok", "warning")]
    assert (ended.returncode, wrong) == (0, []), ended.stdout
    sound = [row["finding"] for row in found if row["check"] in ("pods", "leaders")]
    assert "railwright-operator: 2 of 2 replicas ready" in sound
    assert "railwright-controllers: 1 of 1 replica ready" in sound


def test_leases_have_the_addresses_of_those_who_lead(bed: Testbed) -> None:
    """A standby redirects there."""
    plane = bed.control_plane
    for name, port in (("railwright-operator", 8470), ("railwright-controllers", 8480)):
        lease = json.loads(plane.kubectl("-n", NAMESPACE, "get", "lease", name, "-o=json"))
        holder = lease["spec"]["holderIdentity"]
        pod = json.loads(plane.kubectl("-n", NAMESPACE, "get", "pod", holder, "-o=json"))
        stated = lease["metadata"]["annotations"]["railwright.dev/address"]
        assert stated == f"{holder} {pod['status']['podIP']}:{port}"


def test_messages_are_encrypted(bed: Testbed, run: Run) -> None:
    """What goes to the servers over the network, as somebody beside it reads it."""
    job = run(Training("secret", script(REPORTS_STEPS)))
    job.until(lambda found: step_of(found) > 0, "its first step")
    with network_tap.opened(8470, 8480) as tap:
        launchers, agents = tap.payloads[8470], tap.payloads[8480]
        # An agent reports when it starts.
        bed.control_plane.kubectl("-n", NAMESPACE, "rollout", "restart", "daemonset")
        waiting.until(
            lambda: len(launchers) > 20 and len(agents) > 4,
            "messages of launchers and of agents",
            deadline_s=DEADLINE_S,
        )
    job.delete()
    assert not [part for part in launchers + agents if b"Bearer" in part or b"HTTP/" in part]


@pytest.fixture
def installed_again(bed: Testbed) -> Iterator[None]:
    """The chart, for the tests that follow, whatever this one leaves."""
    yield
    deployment.uninstall(bed.control_plane)
    deployment.install(bed.control_plane)


@pytest.fixture
def scraping(bed: Testbed, tmp_path: Path) -> Iterator[Prometheus]:
    """The Prometheus of ``make observe``, on these nodes. npm, which bundles the script of its
    page, is not needed for all that the script reads."""
    built = shutil.copytree(page.SOURCE, tmp_path / "built")
    (built / "dist").mkdir()
    for bundled in ("page.js", "page.css"):
        (built / "dist" / bundled).touch()
    folder = tmp_path / "site"
    folder.mkdir()
    with site.scraping(bed.control_plane, built, folder, interval_s=INTERVAL_S) as server:
        yield server


@pytest.fixture
def observed(
    scraping: Prometheus, run: Run, checkpoints: Callable[[str], dict[str, str]]
) -> Iterator[LiveJob]:
    """A job that trains."""
    job = run(Training("seen", TRAINS, volumes=checkpoints("seen")))
    yield job
    job.delete()


def test_observed_page_has_all_dashboards(scraping: Prometheus) -> None:
    """Its document with all that it names, and each dashboard with queries of this server."""
    document = scraping.asset("index.html").decode()
    for name in re.findall(r'(?:href|src)="([^":]+)"', document):
        scraping.asset(name)
    listed = json.loads(scraping.asset("dashboards.json"))
    assert [each["name"] for each in listed] == [each.uid for each in DASHBOARDS]
    for each in DASHBOARDS:
        found = json.loads(scraping.asset(f"{each.uid}.json"))
        assert len(found["spec"]["panels"]) == len(each.panels)
        assert scraping.url in json.dumps(found["spec"]["datasources"])


def test_observed_pods_are_followed(bed: Testbed, scraping: Prometheus) -> None:
    """The deleted leader is scraped no more, and its successor and the new standby are."""
    three = "count(up == 1) == 3"
    scraping.until(three, deadline_s=DEADLINE_S)
    pods = "count by (pod) (up)"
    before = {each["metric"]["pod"] for each in scraping.query(pods)}
    leader = scenario.replace_leader(bed.control_plane, print)
    scraping.until(f'railwright_leader{{pod="{leader}"}} == 1', deadline_s=DEADLINE_S)
    waiting.until(
        lambda: len({each["metric"]["pod"] for each in scraping.query(pods)} & before) == 2,
        "two of the pods from before",
        deadline_s=DEADLINE_S,
    )
    scraping.until(three, deadline_s=DEADLINE_S)


def test_panels_have_data_of_the_deployed_pods(
    bed: Testbed, run: Run, scraping: Prometheus, observed: LiveJob
) -> None:
    """One job loses a pod meanwhile, and another one fails."""
    prometheus, job = scraping, observed
    run(Training("fails", ["false"], spec={"failurePolicy": {"backoffLimit": 0}}))
    job.until(lambda found: bool(found.get("checkpoints")), "a checkpoint")
    pod = job.pods()[0]["metadata"]["name"]
    bed.control_plane.kubectl("-n", job.namespace, "delete", "pod", pod)
    job.until(lambda found: found["attempt"] == 2 and step_of(found) > 0, "attempt 2")

    def broken() -> str:
        absent = queries.without_data(prometheus, job.namespace, job.name)
        return "\n".join(str(each) for each in absent if not each.panel.may_be_empty)

    waiting.until(
        lambda: not broken(), "data of all panels", deadline_s=DEADLINE_S, evidence=broken
    )
    for expr in OF_FAULTS:
        prometheus.until(expr, deadline_s=DEADLINE_S)
    waiting.until(
        lambda: all(rule["health"] == "ok" for rule in prometheus.rules()),
        "the evaluation of all rules",
        deadline_s=DEADLINE_S,
        evidence=lambda: str([rule for rule in prometheus.rules() if rule["health"] != "ok"]),
    )


def test_no_container_of_ours_ended(bed: Testbed) -> None:
    pods = json.loads(bed.control_plane.kubectl("-n", NAMESPACE, "get", "pods", "-o=json"))
    restarts = {
        pod["metadata"]["name"]: each["restartCount"]
        for pod in pods["items"]
        if "deletionTimestamp" not in pod["metadata"]
        for each in pod["status"]["containerStatuses"]
    }
    assert len(restarts) == 3 + len([*bed.nodes, bed.system])
    assert set(restarts.values()) == {0}


@pytest.mark.usefixtures("installed_again")
def test_only_kinds_and_objects_of_users_are_left(bed: Testbed, run: Run) -> None:
    plane = bed.control_plane
    job = run(Training("stays", ["true"]))
    job.until_phase("Succeeded")
    deployment.uninstall(plane)
    assert deployment.left(plane) == [f"namespace/{NAMESPACE}"]
    assert job.status()["phase"] == "Succeeded"
    assert len(deployment.kinds(plane)) == 7
    job.delete()


@pytest.mark.usefixtures("installed_again")
def test_plain_manifests_run_too(bed: Testbed, run: Run) -> None:
    plane = bed.control_plane
    deployment.uninstall(plane)
    deployment.apply_manifests(plane)
    job = run(Training("plain", ["true"]))
    job.until_phase("Succeeded")
    deployment.delete_manifests(plane)
    assert deployment.left(plane) == []


def _is_of_later(found: dict[str, Any]) -> bool:
    return later_fields.NEWS.items() <= found.items()


def _demand_steps(job: LiveJob, count: int) -> None:
    """The first attempt goes on for so many steps."""
    step = step_of(job.status())
    status = job.until(lambda found: step_of(found) > step + count, f"{count} more steps")
    assert (status["attempt"], status["phase"]) == (1, "Running")


def _images(plane: ControlPlane) -> set[str]:
    """The tags of the images that pods run which are not ending."""
    pods = json.loads(plane.kubectl("-n", NAMESPACE, "get", "pods", "-o=json"))["items"]
    running = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return {pod["spec"]["containers"][0]["image"].rpartition(":")[2] for pod in running}
