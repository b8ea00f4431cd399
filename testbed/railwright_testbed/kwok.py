"""Simulated nodes: kwok plays their kubelets, by the stages in kwok_stages.yaml.

Tests control a node or a pod with its metadata:

- node label `testbed.railwright.dev/ready: "false"`: Ready becomes False, leases go on;
- pod annotation `testbed.railwright.dev/start-after: 2s`: Pending for so long, then Running;
- pod annotation `testbed.railwright.dev/run-for: 5s`: Running for so long, then Succeeded;
- pod annotation `testbed.railwright.dev/exit-code: "1"`: Failed with it (after `run-for`, if set).
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from railwright_testbed import binaries, processes, waiting
from railwright_testbed.api_client import ApiClient, ApiError, Json
from railwright_testbed.ports import PortReservation
from railwright_testbed.processes import Process
from railwright_testbed.state_folder import StateFolder

PREFIX = "testbed.railwright.dev"
_STAGES = Path(__file__).with_name("kwok_stages.yaml")
_SIMULATED = "kwok.x-k8s.io/node"
# After an outage of the API server, kwok and the controller manager look again at intervals that
# grow to 60 s (client-go: 30 s, doubled by jitter).
_READY_DEADLINE_S = 120.0
_READY_DEADLINE_S_PER_NODE = 0.2
_CONNECTIONS = 4


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """One simulated node. Resources are added to the usual ones (cpu, memory, pods)."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, str] = field(default_factory=dict)


class Kwok:
    """One kwok process and the nodes it simulates."""

    def __init__(
        self,
        folder: StateFolder,
        *,
        kubeconfig: Path,
        certificates: Path,
        new_client: Callable[[], ApiClient],
        lease_s: int,
    ) -> None:
        self._folder = folder
        self._kubeconfig = kubeconfig
        self._certificates = certificates
        self._new_client = new_client
        self._lease_s = lease_s
        self._program = binaries.find(binaries.SIMULATED_NODES)["kwok"]
        self._port = PortReservation("127.0.0.1")
        # Several may simulate nodes of one control plane, each its own.
        self._name = f"kwok-{self._port.port}"
        self._process: Process | None = None

    def __repr__(self) -> str:
        return f"Kwok({self._process!r})"

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        self._process = Process(
            self._name,
            [str(self._program), *self._flags()],
            log=self._folder.logs / f"{self._name}.log",
            records=self._folder.records,
        )
        self.add_nodes(nodes)

    def stop(self) -> None:
        """End kwok. Its nodes stay in the API and become NotReady, as dead machines do."""
        if self._process is not None:
            self._process.end()
            self._process = None
        self._port.release()

    def release(self) -> None:
        if self._process is not None:
            self._process.release()
        self._port.release()

    def __enter__(self) -> Kwok:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def add_nodes(self, nodes: Sequence[NodeSpec]) -> None:
        """Create nodes and wait until all of them are Ready and schedulable."""
        with ThreadPoolExecutor(_CONNECTIONS) as pool:
            chunks = [nodes[start::_CONNECTIONS] for start in range(_CONNECTIONS)]
            list(pool.map(self._create, chunks))
        required = {node.name for node in nodes}
        waiting.until(
            lambda: required <= self.ready_nodes(),
            f"{len(required)} simulated nodes Ready",
            deadline_s=_READY_DEADLINE_S + len(required) * _READY_DEADLINE_S_PER_NODE,
            evidence=lambda: self._evidence(required),
            # The response has all nodes; frequent requests would slow them down.
            pause_s_longest=max(0.25, len(required) / 1000),
        )

    def set_ready(self, name: str, ready: bool) -> None:
        """Make a node's Ready condition so, and wait until it is."""
        value = None if ready else "false"
        with self._client() as client:
            labels = {f"{PREFIX}/ready": value}
            client.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})
        self._until(lambda: (name in self.ready_nodes()) == ready, f"{name} Ready={ready}")

    def fail_pod(self, namespace: str, name: str, *, exit_code: int = 1) -> None:
        """Let a running pod's containers end with an exit code."""
        annotations = {f"{PREFIX}/exit-code": str(exit_code), f"{PREFIX}/run-for": None}
        with self._client() as client:
            path = f"/api/v1/namespaces/{namespace}/pods/{name}"
            client.patch(path, {"metadata": {"annotations": annotations}})

    def report_pod(self, namespace: str, name: str, status: Json) -> None:
        """Write a pod's status as its kubelet would, once the pod is reported as running."""
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        with self._client() as client:
            self._until(lambda: client.get(path)["status"]["phase"] == "Running", f"{name} running")
            client.patch(f"{path}/status", {"status": status})

    def freeze(self) -> None:
        """All simulated nodes go silent: no lease, no status, and no pod is ever confirmed gone."""
        assert self._process is not None, "started before it is frozen"
        processes.send(self._process.record, signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None, "started before it is thawed"
        processes.send(self._process.record, signal.SIGCONT)

    def ready_nodes(self) -> set[str]:
        """Simulated nodes that are Ready and carry no taint that keeps pods off."""
        with self._client() as client:
            # From the API server's cache: with many nodes this list is read often.
            answer = client.get("/api/v1/nodes?resourceVersion=0")
        return {
            str(node["metadata"]["name"])
            for node in answer["items"]
            if _is_ready(node, simulated_by=self._name)
        }

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        assert self._process is not None, "started before anything waits for it"
        self._process.until(condition, what, deadline_s=_READY_DEADLINE_S)

    def _evidence(self, required: set[str]) -> str:
        assert self._process is not None, "started before anything waits for it"
        unready = sorted(required - self.ready_nodes())
        return f"not ready: {len(unready)}, such as {unready[:3]}\n{self._process.evidence()}"

    def _create(self, nodes: Sequence[NodeSpec]) -> None:
        with self._client() as client:
            for node in nodes:
                _create_node(client, node, simulated_by=self._name)

    @contextlib.contextmanager
    def _client(self) -> Iterator[ApiClient]:
        with contextlib.closing(self._new_client()) as client:
            yield client

    def _flags(self) -> list[str]:
        address = f"127.0.0.1:{self._port.port}"
        return [
            f"--config={_STAGES}",
            f"--kubeconfig={self._kubeconfig}",
            f"--manage-nodes-with-annotation-selector={_SIMULATED}={self._name}",
            "--node-ip=127.0.0.1",
            f"--node-port={self._port.port}",
            f"--server-address={address}",
            f"--node-lease-duration-seconds={self._lease_s}",
            f"--tls-cert-file={self._certificates / 'apiserver.crt'}",
            f"--tls-private-key-file={self._certificates / 'apiserver.key'}",
        ]


def _create_node(client: ApiClient, node: NodeSpec, *, simulated_by: str) -> None:
    resources = {"cpu": "192", "memory": "2Ti", "pods": "256", **node.resources}
    labels = {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        **node.labels,
    }
    document: Json = {
        "metadata": {
            "name": node.name,
            "labels": labels,
            "annotations": {_SIMULATED: simulated_by},
        },
        "status": {"capacity": resources, "allocatable": resources, "phase": "Running"},
    }
    try:
        client.post("/api/v1/nodes", document)
    except ApiError as error:
        # A node of that name may be there from before kwok was stopped and started again.
        if error.status != 409:
            raise
        annotations = document["metadata"]["annotations"]
        client.patch(f"/api/v1/nodes/{node.name}", {"metadata": {"annotations": annotations}})


def _is_ready(node: Json, *, simulated_by: str) -> bool:
    if node["metadata"].get("annotations", {}).get(_SIMULATED) != simulated_by:
        return False
    conditions = {c["type"]: c["status"] for c in node["status"].get("conditions", [])}
    taints = {taint["key"] for taint in node["spec"].get("taints", [])}
    return conditions.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in taints
