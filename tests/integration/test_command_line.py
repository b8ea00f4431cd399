"""``railwright`` on a real API server: what it prints of jobs and nodes, and what it changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures import command, command_line
from fixtures.api_faults import Reply
from fixtures.training import Training
from integration.operator_site import COMMAND, FLOOR_LABEL, Floor, Site
from railwright_api import names
from railwright_cli import api_server
from railwright_testbed import binaries, helm, waiting
from railwright_testbed.kwok import PREFIX

USERS = Path(__file__).resolve().parents[2] / "deploy/rights/users.yaml"
USERS_VALUES = ("clusterView", "positions", "freeDevices")
"""Groups of users in the values of the chart."""


@pytest.fixture
def config(site: Site) -> Path:
    """The kubeconfig of the administrator."""
    return site.plane.kubeconfig


@pytest.fixture
def viewer(site: Site, floor: Floor) -> Path:
    """The kubeconfig of somebody who may view the floor's namespace and nothing else."""
    site.plane.kubectl("apply", "-f", str(USERS))
    grant = ("create", "rolebinding", "viewer", "--clusterrole=view")
    site.plane.kubectl("-n", floor.name, *grant, f"--serviceaccount={floor.name}:default")
    kubeconfig = site.plane.kubeconfig_for_service_account(floor.name, "default")
    waiting.until(
        lambda: command_line.run(kubeconfig, "queue", "-n", floor.name).returncode == 0,
        "the rights of a viewer",
        deadline_s=30,
    )
    return kubeconfig


def test_queue_has_waiting_jobs_in_their_order(floor: Floor, config: Path) -> None:
    floor.apply("runs", nodes=4).until_bound()
    floor.apply("never", nodes=99).until_reason("NeverFits")
    floor.apply("first", nodes=3).until_older()
    floor.apply("second", nodes=1).until_reason("NotEnoughNodes")
    rows = command_line.document(config, "queue", "-n", floor.name)
    assert [row["name"] for row in rows] == ["runs", "first", "second", "never"]
    assert {row["namespace"] for row in rows} == {floor.name}
    position = {row["name"]: row["position"] for row in rows}
    assert position["runs"] is position["never"] is None
    assert position["second"] == position["first"] + 1
    assert rows[0]["nodeList"]
    why = command_line.document(config, "why", f"{floor.name}/second")
    (devices,) = why["devices"]
    assert (devices["requested"], devices["available"], devices["inUse"]) == (8, 0, 32)
    assert devices["heldBy"] == [f"32 {floor.name}/runs"]
    assert why["position"] == position["second"]
    assert why["ahead"][-1] == f"{floor.name}/first"
    printed = command_line.printed(config, "why", f"{floor.name}/second").splitlines()
    assert printed[0].startswith(f"{floor.name}/second is Queued: NotEnoughNodes, for ")
    assert "needs 1 node with 8 nvidia.com/gpu" in printed[1]
    assert printed[2].startswith("  What to do: Wait, or add nodes.")
    assert printed[-1].split()[:6] == ["nvidia.com/gpu", "8", "0", "0", "32", "0"]


def test_higher_priority_is_ahead(site: Site, floor: Floor, config: Path) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    name = f"{floor.name}-urgent"
    site.admin.post(path, {"metadata": {"name": name}, "value": 7})
    floor.apply("runs", nodes=4).until_bound()
    floor.apply("old", nodes=2).until_older()
    floor.apply("urgent", nodes=2, priorityClassName=name).until_reason("NotEnoughNodes")
    rows = command_line.document(config, "queue", "-n", floor.name)
    assert [(row["name"], row["priority"]) for row in rows[1:]] == [("urgent", 7), ("old", 0)]


def test_lists_of_several_pages_are_whole(
    floor: Floor, config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setattr(api_server, "PAGE_OBJECTS", 2)
    for number in range(5):
        floor.apply(f"waits-{number}", nodes=99)
    assert command.run("queue", "-n", floor.name, "-o", "json") == 0
    assert len(json.loads(capsys.readouterr().out)) == 5


def test_viewer_of_a_namespace_sees_its_jobs(floor: Floor, viewer: Path) -> None:
    floor.apply("waits", nodes=99).until_reason("NeverFits")
    ended = command_line.run(viewer, "queue", "-n", floor.name, "-o", "json")
    (row,) = json.loads(ended.stdout)
    assert (row["name"], row["position"]) == ("waits", None)
    assert "positions are unknown: trainingjobs.railwright.dev is forbidden" in ended.stderr
    refused = command_line.run(viewer, "queue", "--all-namespaces")
    assert (refused.returncode, refused.stdout) == (2, "")
    shown = command_line.run(viewer, "logs", "waits", "-n", floor.name)
    assert "there is no attempt yet: the job is Queued" in shown.stderr
    assert "NeverFits" in command_line.printed(viewer, "why", "waits", "-n", floor.name)
    refused = command_line.run(viewer, "nodes")
    assert refused.returncode == 2
    assert "nodes is forbidden" in refused.stderr
    refused = command_line.run(viewer, "cancel", "waits", "-n", floor.name)
    assert refused.returncode == 2
    assert "forbidden" in refused.stderr


def test_viewer_with_the_charts_bindings_sees_why_it_waits(
    site: Site, floor: Floor, viewer: Path
) -> None:
    """Its position, the nodes, and whether another job fits: what `users` of the chart is for."""
    group = f"system:serviceaccounts:{floor.name}"
    values = [f"--set=users.{each}={{{group}}}" for each in USERS_VALUES]
    template = ("template", "railwright", str(helm.CHART), "--set=images.registry=example.com")
    chosen = ("--show-only=templates/users.yaml",)
    bindings = helm.run(*template, *values, *chosen)
    edit = ("create", "rolebinding", "editor", "--clusterrole=edit", f"--group={group}")
    site.plane.kubectl("-n", floor.name, *edit)
    floor.apply("runs", nodes=4).until_bound()
    floor.apply("waits", nodes=1).until_reason("NotEnoughNodes")
    job = json.dumps(_on(floor, Training("next", COMMAND, nodes=1)))
    try:
        site.plane.kubectl("apply", "-f", "-", stdin=bindings)
        waiting.until(lambda: "/next waits: " in _dry_run(viewer, job), "the rights", deadline_s=30)
        why = command_line.run(viewer, "why", "waits", "-n", floor.name)
        assert (why.returncode, why.stderr) == (0, "")
        assert "Queue: position " in why.stdout
        assert f"32 {floor.name}/runs" in why.stdout
        assert command_line.run(viewer, "nodes", *floor.nodes).stderr == ""
    finally:
        site.plane.kubectl("delete", "-f", "-", stdin=bindings)


def _dry_run(kubeconfig: Path, job: str) -> str:
    return command_line.run(kubeconfig, "submit", "--dry-run", "-f", "-", stdin=job).stderr


def test_failed_job_is_explained_by_its_first_failure(
    site: Site, floor: Floor, config: Path
) -> None:
    job = floor.apply("fails", failurePolicy={"backoffLimit": 0})
    job.until_bound()
    site.kwok.fail_pod(floor.name, "fails-worker-1-1", exit_code=3)
    job.until_phase("Failed")
    why = command_line.document(config, "why", f"{floor.name}/fails")
    assert (why["phase"], why["reason"]) == ("Failed", "RankFailed")
    assert (why["lastTermination"]["exitCode"], why["position"]) == (3, None)
    assert "exit code 3" in command_line.printed(config, "why", f"{floor.name}/fails")
    shown = command_line.document(config, "status", f"{floor.name}/fails")
    assert (shown["phase"], shown["attempt"]) == ("Failed", 1)
    watched = command_line.run(config, "status", "--watch", f"{floor.name}/fails")
    assert watched.returncode == 1
    assert "Failed, RankFailed" in watched.stdout


def test_watched_status_survives_broken_watches(site: Site, floor: Floor, tmp_path: Path) -> None:
    """Also if the job is deleted while no watch is open."""
    site.plane.kubectl(
        *("-n", floor.name, "create", "rolebinding", "admin", "--clusterrole=cluster-admin"),
        f"--serviceaccount={floor.name}:default",
    )
    between = site.proxy.entrance
    kubeconfig = site.plane.kubeconfig_for_service_account(floor.name, "default", through=between)
    floor.apply("waits", nodes=99).until_reason("NeverFits")
    output = tmp_path / "status"
    with command_line.running(kubeconfig, output, "status", "-w", "waits", "-n", floor.name) as it:
        waiting.until(lambda: "NeverFits" in output.read_text(), "the status", deadline_s=30)
        held = site.proxy.fail("watch trainingjobs", Reply(503), times=None, namespace=floor.name)
        site.proxy.cut_streams()
        waiting.until(lambda: "trying again" in output.read_text(), "a try", deadline_s=30)
        floor.clear()
        held.lift()
        assert it.wait(30) == 1
    assert "the job was deleted" in output.read_text()


def test_following_ends_when_the_job_is_deleted(floor: Floor, config: Path, tmp_path: Path) -> None:
    floor.apply("waits", nodes=99).until_reason("NeverFits")
    output, place = tmp_path / "logs", ("waits", "-n", floor.name)
    with command_line.running(config, output, "logs", "-f", *place) as it:
        waiting.until(lambda: "NeverFits" in output.read_text(), "the state", deadline_s=30)
        floor.clear()
        floor.apply("waits", nodes=99)
        assert it.wait(30) == 1
    assert "the job was deleted" in output.read_text()
    refused = command_line.run(config, "logs", "--previous", *place)
    assert (refused.returncode, refused.stderr) == (
        2,
        "railwright: there is no attempt before attempt 0\n",
    )
    refused = command_line.run(config, "logs", "--rank", "99", *place)
    assert "there is no rank 99 in group worker: its ranks are 0 to 98" in refused.stderr


def test_jobs_are_suspended_resumed_and_cancelled(floor: Floor, config: Path) -> None:
    job = floor.apply("job", nodes=2)
    other = floor.apply("other", nodes=1)
    job.until_bound()
    place = ("-n", floor.name)
    refused = command_line.run(config, "suspend", "jobb", "other", *place)
    assert refused.returncode == 2
    assert f"there is no job 'jobb' in namespace {floor.name}; the nearest is 'job'" in (
        refused.stderr
    )
    assert not other.object()["spec"].get("suspend")
    assert command_line.document(config, "suspend", "job", *place)["result"] == "suspended"
    job.until_phase("Suspended")
    why = command_line.printed(config, "why", "job", *place)
    assert f"What to do: railwright resume {floor.name}/job" in why
    assert "was suspended already" in command_line.printed(config, "suspend", "job", *place)
    resumed = command_line.printed(config, "resume", "job", "-o", "name", *place)
    assert resumed == "trainingjob.railwright.dev/job\n"
    job.until_bound_at_last()
    assert "was resumed already" in command_line.printed(config, "resume", "job", *place)
    command_line.printed(config, "cancel", "job", "other", *place)
    floor.until_nothing_is_left()


def _on(floor: Floor, job: Training) -> dict[str, Any]:
    """The manifest of a job that runs on the nodes of the floor."""
    manifest = job.manifest(floor.name)
    (role,) = manifest["spec"]["roles"]
    role["template"]["spec"]["nodeSelector"] = {FLOOR_LABEL: floor.name}
    return manifest


def test_submitted_file_runs(floor: Floor, config: Path) -> None:
    text = json.dumps(_on(floor, Training("job", COMMAND)))
    printed = command_line.printed(config, "submit", "-f", "-", stdin=text)
    assert printed == f"{floor.name}/job created\n"
    again = command_line.run(config, "submit", "-f", "-", stdin=text)
    assert again.returncode == 2
    assert "already exists" in again.stderr


def test_options_of_submit_become_a_job(floor: Floor, config: Path) -> None:
    options = ("-N", "4", "--image", "registry/train:1", "--limits", "nvidia.com/gpu=8,cpu=4")
    more = ("--env", "A=b=c", "--queue", "q", "--priority", "high", "-n", floor.name, "--dry-run")
    command = ("python", "train.py", "--lr", "1e-3")
    ended = command_line.run(config, "submit", *options, *more, "--", *command)
    assert (ended.returncode, ended.stderr.count("PriorityClass 'high' does not exist")) == (1, 1)
    found = yaml.safe_load(ended.stdout)
    (role,) = found["spec"]["roles"]
    (container,) = role["template"]["spec"]["containers"]
    assert found["metadata"]["name"].startswith("train-")
    assert (role["replicas"], role["processesPerReplica"]) == (4, 8)
    assert container["command"] == [*command]
    assert container["env"] == [{"name": "A", "value": "b=c"}]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8", "cpu": "4"}
    assert (found["spec"]["queue"], found["spec"]["priorityClassName"]) == ("q", "high")
    assert not floor.left()
    ended = command_line.run(config, "submit", "--processes", "2", *options, *more, "--", "true")
    assert yaml.safe_load(ended.stdout)["spec"]["roles"][0]["processesPerReplica"] == 2


def test_dry_run_says_whether_jobs_fit(
    site: Site, floor: Floor, config: Path, viewer: Path
) -> None:
    """Each job of a file, behind the jobs that wait; only with the rights that it needs."""

    def submit(kubeconfig: Path, *nodes: int) -> subprocess.CompletedProcess[str]:
        jobs = [_on(floor, Training(f"job-{each}", COMMAND, nodes=each)) for each in nodes]
        text = yaml.safe_dump_all(jobs)
        return command_line.run(kubeconfig, "submit", "--dry-run", "-f", "-", stdin=text)

    floor.apply("runs", nodes=2).until_bound()
    fits = submit(config, 2)
    assert (fits.returncode, yaml.safe_load(fits.stdout)["metadata"]["name"]) == (0, "job-2")
    assert f"railwright: {floor.name}/job-2 fits now: 2 nodes, " in fits.stderr
    never = submit(config, 3, 5)
    assert never.returncode == 1
    assert "job-3 waits: NotEnoughNodes: needs 3 nodes with 1 nvidia.com/gpu" in never.stderr
    assert "job-5 can never start as it is: NeverFits: needs 5 nodes" in never.stderr
    floor.apply("ahead", nodes=4).until_reason("NotEnoughNodes")
    behind = submit(config, 1)
    assert (behind.returncode, "job-1 waits: BlockedByReservation" in behind.stderr) == (0, True)
    assert not [name for name in floor.left() if "job-" in name]
    grant = ("-n", floor.name, "create", "rolebinding", "editor", "--clusterrole=edit")
    site.plane.kubectl(*grant, f"--serviceaccount={floor.name}:default")
    waiting.until(lambda: submit(viewer, 2).returncode == 0, "the right to create", deadline_s=30)
    assert "whether it fits is unknown: nodes is forbidden" in submit(viewer, 5).stderr


def test_refusal_of_the_api_server_is_printed(floor: Floor, config: Path) -> None:
    manifest = Training("job", COMMAND, nodes=2).manifest(floor.name)
    manifest["spec"]["roles"][0]["replica"] = 3
    refused = command_line.run(config, "submit", "-f", "-", stdin=json.dumps(manifest))
    assert refused.returncode == 2
    assert 'unknown field "spec.roles[0].replica"' in refused.stderr


def test_nodes_have_their_jobs_and_devices(site: Site, floor: Floor, config: Path) -> None:
    floor.apply("gang", nodes=2, gpus=4).until_bound()
    done = floor.apply("done", nodes=1, annotations={f"{PREFIX}/run-for": "0.1s"})
    done.until_phase("Succeeded")
    (used,) = floor.apply("whole", nodes=1).until_nodes()
    site.plane.kubectl("cordon", floor.nodes[3])
    rows = {row["name"]: row for row in command_line.document(config, "nodes", *floor.nodes)}
    assert rows[used]["jobs"] == [f"{floor.name}/whole"]
    assert (rows[used]["use"], rows[used]["devices"]) == ("Full", ["8/8 nvidia.com/gpu"])
    partly = next(row for row in rows.values() if f"{floor.name}/gang" in row["jobs"])
    assert (partly["use"], partly["devices"]) == ("Partly", ["4/8 nvidia.com/gpu"])
    assert rows[floor.nodes[3]]["state"] == "Cordoned"
    assert rows[floor.nodes[3]]["domain"] == f"{floor.name}-rack-1"
    by_rack = command_line.document(config, "info", "--by", names.LABEL_RACK)
    counted = {row["domain"]: row for row in by_rack}
    first, second = (counted[f"{floor.name}-rack-{number}"] for number in (0, 1))
    assert first["allDevices"] == second["allDevices"] == ["16 nvidia.com/gpu"]
    free = [int(row["freeDevices"][0].split()[0]) for row in (first, second)]
    assert sum(free) == 32 - 16 - 8
    assert (first["partly"] + second["partly"], first["full"] + second["full"]) == (2, 1)
    assert first["free"] + second["free"] == 0
    assert {row["domain"] for row in command_line.document(config, "info", "--by", "rack")} == {
        *counted
    }
    assert second["unavailable"] == 1
    refused = command_line.run(config, "nodes", "no-such")
    assert (refused.returncode, refused.stderr) == (2, "railwright: there is no node no-such\n")


def test_doctor_finds_what_is_missing(floor: Floor, config: Path, viewer: Path) -> None:
    """The site's processes run beside the cluster: it has no Deployments."""
    ended = command_line.run(config, "doctor", "-o", "json", "-n", floor.name)
    found = json.loads(ended.stdout)
    results = [(row["check"], row["result"]) for row in found]
    assert ended.returncode == 1
    assert results.count(("pods", "failed")) == 2
    ok = {"version", "clock", "kinds", "versions", "leaders", "rights", "jobs"}
    assert {check for check, result in results if result == "ok"} >= ok
    assert all(row["whatToDo"] for row in found if row["result"] == "failed")
    seen = json.loads(command_line.run(viewer, "doctor", "-o", "json", "-n", floor.name).stdout)
    assert {row["check"] for row in seen if row["result"] == "unknown"} >= {"pods", "fabric"}


def test_doctor_compares_clocks_and_versions(site: Site, floor: Floor, config: Path) -> None:
    """A node whose clock is an hour ahead, another one an hour behind, and half an upgrade."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    for name, hours in ((f"{floor.name}-ahead", 1), (f"{floor.name}-behind", -1)):
        renewed = (datetime.now(UTC) + timedelta(hours=hours)).isoformat(timespec="microseconds")
        spec = {"holderIdentity": name, "renewTime": renewed.replace("+00:00", "Z")}
        site.admin.post(leases, {"metadata": {"name": name}, "spec": spec})
    workloads = f"/apis/apps/v1/namespaces/{floor.name}/deployments"
    for name, tag in (("railwright-operator", "0.1.0"), ("railwright-controllers", "v0.7.2")):
        labels, image = {"app": name}, f"example.com:5000/team/{name}:{tag}"
        pod = {"containers": [{"name": "it", "image": image}]}
        template = {"metadata": {"labels": labels}, "spec": pod}
        its = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        site.admin.post(workloads, {"metadata": {"name": name}, "spec": its})
    command = ("doctor", "--system-namespace", floor.name, "-o", "json")
    found = json.loads(command_line.run(config, *command).stdout)
    warnings = [row["finding"] for row in found if row["result"] == "warning"]
    for each in (f"ahead: {floor.name}-ahead", f"the nodes are down: {floor.name}-behind"):
        assert [text for text in warnings if each in text], warnings
    versions = "railwright-operator 0.1.0, railwright-controllers v0.7.2, this command 0.1.0"
    assert versions in warnings
    for end in ("ahead", "behind"):
        site.admin.delete(f"{leases}/{floor.name}-{end}")


def test_kubectl_runs_and_completes_the_plugin(floor: Floor, config: Path) -> None:
    floor.apply("waits", nodes=99).until_reason("NeverFits")
    kubectl = str(binaries.find(binaries.CONTROL_PLANE)["kubectl"])
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(config), "PATH": path}

    def answer(*arguments: str) -> str:
        command = [kubectl, *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    assert "waits" in answer("railwright", "queue", "-n", floor.name)
    assert answer("__complete", "railwright", "sta").startswith("status\t")
