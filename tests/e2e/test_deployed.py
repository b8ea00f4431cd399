"""Railwright as its users run it: installed by its chart, as pods from its images."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fixtures import command_line, network_tap
from fixtures.training import REPORTS_STEPS, LiveJob, Training, script, step_of
from railwright_testbed import (
    ControlPlane,
    Testbed,
    deployment,
    later_fields,
    later_version,
    product_images,
    waiting,
)
from railwright_testbed.service_process import NAMESPACE

Run = Callable[[Training], LiveJob]

DEADLINE_S = 120.0


def test_job_without_python_in_its_image_runs(run: Run) -> None:
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


def test_leases_have_the_addresses_of_leaders(bed: Testbed) -> None:
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


def test_metrics_of_each_pod_need_a_token_and_are_encrypted(bed: Testbed) -> None:
    """The standby has them too. The name in the certificate is that of the Service."""
    found: dict[str, list[int]] = {}
    with network_tap.opened(8472, 8482) as tap:
        for process in deployment.SCRAPED:
            reader = deployment.metrics_reader(bed.control_plane, process)
            stranger = replace(reader, token="")
            for group in deployment.scrape_targets(bed.control_plane, process):
                address, _, port = group["targets"][0].partition(":")
                status, text = reader.read(address, int(port))
                assert "railwright_leader{" in text, text
                found.setdefault(process, []).append(status)
                assert stranger.read(address, int(port))[0] == 401
    assert found == {"railwright-operator": [200, 200], "railwright-controllers": [200]}
    for parts in tap.payloads.values():
        assert parts
        assert not [part for part in parts if b"Bearer" in part or b"HTTP/" in part]


@pytest.fixture
def installed_again(bed: Testbed) -> Iterator[None]:
    """The chart, for the tests that follow, whatever this one leaves."""
    yield
    deployment.uninstall(bed.control_plane)
    deployment.install(bed.control_plane)


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
    deployment.uninstall(plane)
    before = deployment.objects(plane)
    deployment.install(plane)
    job = run(Training("stays", ["true"]))
    job.until_phase("Succeeded")
    deployment.uninstall(plane)
    assert job.status()["phase"] == "Succeeded"
    assert len(deployment.kinds(plane)) == 7
    job.delete()
    assert deployment.left(plane, before) == []


@pytest.mark.usefixtures("installed_again")
def test_plain_manifests_run_too(bed: Testbed, run: Run) -> None:
    plane = bed.control_plane
    deployment.uninstall(plane)
    before = deployment.objects(plane)
    deployment.apply_manifests(plane)
    job = run(Training("plain", ["true"]))
    job.until_phase("Succeeded")
    job.delete()
    deployment.delete_manifests(plane)
    assert deployment.left(plane, before) == []


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
