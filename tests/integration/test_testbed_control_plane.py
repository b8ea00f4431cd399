"""The testbed's control plane: it serves, its simulated nodes obey, and it leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from railwright_testbed import ControlPlane, Kwok, NodeSpec, state_folder, waiting
from railwright_testbed.api_client import Json

POD_PREFIX = "testbed.railwright.dev"
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane.start(name="selftest") as running:
        yield running


@pytest.fixture(scope="module")
def kwok(plane: ControlPlane) -> Iterator[Kwok]:
    nodes = [NodeSpec(f"simulated-{i}", {"rack": "a"}, {"nvidia.com/gpu": "8"}) for i in range(3)]
    with plane.kwok(nodes=nodes) as running:
        yield running


def create_pod(plane: ControlPlane, name: str, **annotations: str) -> None:
    keys = {f"{POD_PREFIX}/{key.replace('_', '-')}": text for key, text in annotations.items()}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": keys},
        "spec": {
            "nodeName": "simulated-0",
            "initContainers": [{"name": "first", "image": "none"}],
            "containers": [{"name": "main", "image": "none"}],
        },
    }
    plane.kubectl("apply", "-f", "-", stdin=json.dumps(pod))


def wait_for_phase(plane: ControlPlane, name: str, phase: str) -> Json:
    def reached() -> Json | None:
        pod: Json = json.loads(plane.kubectl("get", "pod", name, "--output=json"))
        return pod if pod["status"].get("phase") == phase else None

    return waiting.until(reached, f"pod {name} {phase}", deadline_s=DEADLINE_S)


def test_simulated_nodes_have_the_requested_resources(plane: ControlPlane, kwok: Kwok) -> None:
    assert kwok.ready_nodes() == {"simulated-0", "simulated-1", "simulated-2"}
    node = json.loads(plane.kubectl("get", "node", "simulated-1", "--output=json"))
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    assert node["metadata"]["labels"]["rack"] == "a"


def test_node_becomes_not_ready_and_ready_again(plane: ControlPlane, kwok: Kwok) -> None:
    kwok.set_ready("simulated-2", False)
    node = json.loads(plane.kubectl("get", "node", "simulated-2", "--output=json"))
    ready = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
    assert ready["status"] == "False"
    kwok.set_ready("simulated-2", True)
    assert "simulated-2" in kwok.ready_nodes()


@pytest.mark.usefixtures("kwok")
def test_pod_runs_for_its_time_and_succeeds(plane: ControlPlane) -> None:
    create_pod(plane, "short", run_for="1s")
    pod = wait_for_phase(plane, "short", "Succeeded")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


def test_pod_fails_on_demand_with_its_exit_code(plane: ControlPlane, kwok: Kwok) -> None:
    create_pod(plane, "victim")
    wait_for_phase(plane, "victim", "Running")
    kwok.fail_pod("default", "victim", exit_code=137)
    pod = wait_for_phase(plane, "victim", "Failed")
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


def test_deleted_pod_goes(plane: ControlPlane, kwok: Kwok) -> None:
    assert "simulated-0" in kwok.ready_nodes()
    create_pod(plane, "gone")
    wait_for_phase(plane, "gone", "Running")
    plane.kubectl("delete", "pod", "gone", "--wait", "--timeout=20s")
    assert plane.kubectl("get", "pod", "gone", "--ignore-not-found") == ""


def test_frozen_nodes_confirm_no_deletion(plane: ControlPlane, kwok: Kwok) -> None:
    create_pod(plane, "lingering")
    wait_for_phase(plane, "lingering", "Running")
    kwok.freeze()
    plane.kubectl("delete", "pod", "lingering", "--wait=false")
    with pytest.raises(subprocess.CalledProcessError, match="timed out"):
        plane.kubectl("wait", "pod", "lingering", "--for=delete", "--timeout=2s")
    kwok.thaw()
    plane.kubectl("wait", "pod", "lingering", "--for=delete", "--timeout=30s")


def test_service_account_has_only_its_own_rights(plane: ControlPlane) -> None:
    kubeconfig = plane.kubeconfig_for_service_account("default", "default")
    with pytest.raises(subprocess.CalledProcessError, match="cannot list resource"):
        plane.kubectl("get", "secrets", f"--kubeconfig={kubeconfig}")


def test_api_server_comes_back_with_its_data(plane: ControlPlane) -> None:
    plane.kubectl("create", "configmap", "kept")
    plane.stop_api_server()
    with pytest.raises(subprocess.CalledProcessError, match="refused"):
        plane.kubectl("get", "configmap", "kept")
    plane.start_api_server()
    assert "kept" in plane.kubectl("get", "configmap", "kept")


def test_killed_owner_leaves_nothing() -> None:
    program = (
        "import os, signal\n"
        "from railwright_testbed import ControlPlane\n"
        "ControlPlane.start(name='abandoned')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], check=False, timeout=120)
    assert answer.returncode == -9
    waiting.until(
        lambda: not state_folder.named("abandoned"),
        "the guardian to remove the testbed of its dead owner",
        deadline_s=DEADLINE_S,
    )
