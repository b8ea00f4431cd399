"""The testbed's real nodes: pods run, reach each other, and nodes die and come back."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from railwright_testbed import Testbed, kernel_objects, waiting
from railwright_testbed.api_client import Json

# Importing torch takes half a minute on a busy machine with two cores.
DEADLINE_S = 120.0
# A lease lasts 40 s; the controller that reads it gives a node 50 s.
DETECTION_DEADLINE_S = 90.0
PORT = 7000
ANSWER = f"""
import socket
server = socket.create_server(("", {PORT}))
while True:
    connection, _ = server.accept()
    connection.sendall(b"from " + connection.recv(100))
"""
ASK = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 10)
connection.sendall(b"the other rack")
print(connection.recv(100).decode())
"""


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with Testbed.start(name="selftest", racks={"rack-a": 1, "rack-b": 1}) as running:
        yield running


def run_pod(
    bed: Testbed,
    name: str,
    node: str,
    *,
    command: list[str],
    volumes: dict[str, Json] | None = None,
    gpus: int = 0,
) -> None:
    """Run a command; volumes are by the path they are mounted at.

    A kubelet refuses a pod whose GPUs another one still has: few tests ask for them.
    """
    paths = volumes or {}
    container = {
        "name": "main",
        "image": bed.image,
        "command": command,
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
        "volumeMounts": [{"name": path.strip("/"), "mountPath": path} for path in paths],
    }
    spec = {
        "nodeName": node,
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": path.strip("/"), **source} for path, source in paths.items()],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    bed.control_plane.kubectl("apply", "-f", "-", stdin=json.dumps(pod))


def wait_for_phase(bed: Testbed, name: str, *phases: str) -> Json:
    def reached() -> Json | None:
        answer = bed.control_plane.kubectl("get", "pod", name, "--output=json")
        pod: Json = json.loads(answer)
        return pod if pod["status"].get("phase") in phases else None

    return waiting.until(
        reached,
        f"pod {name} {' or '.join(phases)}",
        deadline_s=DEADLINE_S,
        evidence=lambda: bed.control_plane.kubectl("describe", "pod", name),
    )


def output_of(bed: Testbed, name: str) -> str:
    pod = wait_for_phase(bed, name, "Succeeded", "Failed")
    # A pod that the kubelet refused has no container, and so no logs.
    assert pod["status"]["phase"] == "Succeeded", pod["status"]
    return bed.control_plane.kubectl("logs", name)


def test_nodes_show_racks_and_gpus(bed: Testbed) -> None:
    answer = bed.control_plane.kubectl("get", "nodes", "--output=json")
    nodes = {node["metadata"]["name"]: node for node in json.loads(answer)["items"]}
    assert sorted(nodes) == ["node-a1", "node-b1", "system"]
    assert nodes["node-a1"]["metadata"]["labels"]["railwright.dev/rack"] == "rack-a"
    assert nodes["node-b1"]["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    system = nodes["system"]
    assert "nvidia.com/gpu" not in system["status"]["allocatable"]
    assert [taint["effect"] for taint in system["spec"]["taints"]] == ["NoSchedule"]


def test_pods_talk_across_nodes(bed: Testbed) -> None:
    run_pod(bed, "server", "node-a1", command=["python3", "-c", ANSWER])
    address = wait_for_phase(bed, "server", "Running")["status"]["podIP"]
    bed.control_plane.kubectl("wait", "pod/server", "--for=condition=Ready", "--timeout=30s")
    retried = f"until python3 -c '{ASK}' {address} {PORT} 2>/dev/null; do sleep 0.2; done"
    run_pod(bed, "client", "node-b1", command=["sh", "-c", retried])
    assert output_of(bed, "client") == "from the other rack\n"


def test_pods_reach_a_service_by_its_name(bed: Testbed) -> None:
    """From another node, and from its own, whose bridge these packets do not leave."""
    run_pod(bed, "served", "node-a1", command=["python3", "-c", ANSWER])
    bed.control_plane.kubectl("label", "pod", "served", "app=served")
    bed.control_plane.kubectl("create", "service", "clusterip", "served", f"--tcp=80:{PORT}")
    for client, node in (("near", "node-a1"), ("far", "node-b1")):
        command = f"until python3 -c '{ASK}' served.default.svc 80; do sleep 0.2; done"
        run_pod(bed, client, node, command=["sh", "-c", command])
        assert output_of(bed, client).endswith("from the other rack\n")


def test_api_server_is_a_service_and_unknown_names_fail_at_once(bed: Testbed) -> None:
    program = (
        "import socket, time\n"
        "socket.create_connection(('kubernetes.default', 443), 10)\n"
        "began = time.monotonic()\n"
        "try:\n socket.getaddrinfo('example.com', 80)\n"
        "except socket.gaierror:\n print(time.monotonic() - began < 2)\n"
    )
    run_pod(bed, "names", "node-b1", command=["python3", "-c", program])
    assert output_of(bed, "names") == "True\n"


def test_pod_has_the_virtual_environment(bed: Testbed) -> None:
    program = "import railwright, torch; print(torch.ones(2).sum().item())"
    run_pod(bed, "torch", "node-a1", command=["python3", "-c", program])
    assert output_of(bed, "torch") == "2.0\n"


def test_shared_directory_is_one_for_all(bed: Testbed) -> None:
    run_pod(
        bed,
        "writer",
        "node-b1",
        command=["sh", "-c", "echo kept > /checkpoints/step"],
        volumes={"/checkpoints": {"hostPath": {"path": str(bed.shared_directory)}}},
    )
    output_of(bed, "writer")
    assert (bed.shared_directory / "step").read_text() == "kept\n"


def test_projected_token_is_for_its_audience(bed: Testbed) -> None:
    token = {"audience": "railwright", "path": "token", "expirationSeconds": 600}
    run_pod(
        bed,
        "token",
        "node-a1",
        command=["cat", "/identity/token"],
        volumes={"/identity": {"projected": {"sources": [{"serviceAccountToken": token}]}}},
    )
    client = bed.control_plane.client()
    for audience, accepted in (("railwright", True), ("somebody-else", None)):
        spec = {"token": output_of(bed, "token"), "audiences": [audience]}
        review = client.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": spec})
        assert review["status"].get("authenticated") == accepted
    client.close()


def test_partitioned_node_lives_on_unseen(bed: Testbed) -> None:
    count = "i=0; while true; do i=$((i+1)); echo $i > /checkpoints/count; sleep 0.1; done"
    shared = {"/checkpoints": {"hostPath": {"path": str(bed.shared_directory)}}}
    run_pod(bed, "counter", "node-b1", command=["sh", "-c", count], volumes=shared)
    wait_for_phase(bed, "counter", "Running")
    bed.partition_node("node-b1")
    with pytest.raises(subprocess.CalledProcessError):
        bed.control_plane.kubectl("logs", "counter", "--request-timeout=3s")
    counted = bed.shared_directory / "count"
    before = counted.read_text()
    waiting.until(
        lambda: counted.read_text() not in (before, ""), "it to count on", deadline_s=DEADLINE_S
    )
    bed.restore_node("node-b1")
    bed.control_plane.kubectl("delete", "pod", "counter", "--now", "--timeout=60s")


def test_dead_node_is_noticed_and_comes_back_with_gpus(bed: Testbed) -> None:
    run_pod(bed, "doomed", "node-b1", command=["sleep", "1000"])
    wait_for_phase(bed, "doomed", "Running")
    bed.kill_node("node-b1")

    def is_unknown() -> bool:
        path = "{.status.conditions[?(@.type=='Ready')].status}"
        shown = bed.control_plane.kubectl("get", "node", "node-b1", f"--output=jsonpath={path}")
        return shown == "Unknown"

    waiting.until(is_unknown, "node-b1 Unknown", deadline_s=DETECTION_DEADLINE_S)
    # Returns when the node is Ready, schedulable, and shows its GPUs again.
    bed.restore_node("node-b1")
    run_pod(bed, "after", "node-b1", command=["echo", "alive"], gpus=8)
    assert output_of(bed, "after") == "alive\n"


def test_testbed_leaves_nothing() -> None:
    with Testbed.start(name="traceless", racks={"rack-a": 1}) as bed:
        run_pod(bed, "sleeper", "node-a1", command=["sleep", "1000"])
        wait_for_phase(bed, "sleeper", "Running")
        testbed_id, directory = bed.nodes[0].testbed_id, bed.nodes[0].directory.parents[1]
    links = subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert f"rw{testbed_id}" not in links
    assert not list(kernel_objects.NAMESPACES.glob(f"rw{testbed_id}-*"))
    for hierarchy in kernel_objects.cgroup_hierarchies():
        assert not (hierarchy / kernel_objects.cgroup_name(testbed_id)).exists()
    assert not kernel_objects.socket_folder(testbed_id).exists()
    assert not directory.exists()
    with open("/proc/self/mountinfo") as mounts:
        assert str(directory) not in mounts.read()
