"""A control plane with simulated nodes, and what a benchmark of gangs asks it."""

from __future__ import annotations

import asyncio
import http
import math
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from railwright_api import names
from railwright_testbed import ControlPlane, NodeSpec, api_client, service_process, waiting
from railwright_testbed.api_client import ApiClient, ApiError
from railwright_testbed.control_plane import ControlPlaneOptions
from railwright_testbed.controllers_process import ControllersProcess
from railwright_testbed.operator_process import OperatorProcess

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
GPU = "nvidia.com/gpu"
GPUS = 8
RACK_NODES, BLOCK_NODES = 16, 128
LEASE_S = 240
WORKLOAD: Json = {
    "transformer": {
        "layers": 64,
        "hidden": 4096,
        "heads": 32,
        "feedForward": 16384,
        "vocabulary": 51200,
    },
    "parallelism": {"tensor": 8, "pipeline": 8},
    "training": {"sequence": 2048, "globalBatch": 16},
}
"""Of 64 ranks or a multiple of it."""
OPERATOR = "operator"
FLOW, CONTROLLERS_FLOW = "railwright-operator", "railwright-controllers"
TOKEN_DEADLINE_S = 30.0
GONE_DEADLINE_S = 300.0
REST_DEADLINE_S = 120.0
REST_WINDOW_S = 1.0
REST_IDLE_MIN = 0.8
"""Share of the processors' time without work: 1,024 idle nodes and an idle operator leave 0.9."""


def log_progress(text: str) -> None:
    """Progress, for whoever waits."""
    print(f"== {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True, slots=True)
class GangSite:
    """One cluster; pods are made in namespaces that ``namespace`` prepares."""

    plane: ControlPlane

    def get(self, path: str) -> Json:
        """What is at this path; a connection kept between two rounds would have been closed."""
        return self.request("GET", path)

    def fabric(self) -> Json:
        """The status of the Fabric; empty while there is none."""
        found = self.get(f"/apis/{names.API_VERSION}/{names.FABRICS}")["items"]
        status: Json = found[0].get("status", {}) if found else {}
        return status

    def request(self, method: str, path: str, body: Json | None = None) -> Json:
        """One request as the cluster's administrator."""
        plane = self.plane
        with closing(
            ApiClient(plane.url, ca_file=plane.ca_file, token=plane.token, timeout_s=120.0)
        ) as client:
            return client.request(method, path, body=body)

    def namespace(self, name: str) -> None:
        """A namespace in which pods can be made."""
        self.plane.kubectl("create", "namespace", name)
        path = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        waiting.until(lambda: self._has(path), "its service account", deadline_s=TOKEN_DEADLINE_S)

    def pods(self, namespace: str) -> list[Json]:
        """All pods there."""
        found: list[Json] = self.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
        return found

    def clear(self, namespace: str) -> None:
        """Delete every job and pod there, and wait until they are gone and nothing is in flight."""
        jobs = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.TRAINING_JOBS}"
        pods = f"/api/v1/namespaces/{namespace}/pods"
        self.plane.kubectl("-n", namespace, "delete", names.TRAINING_JOBS, "--all", "--wait=false")
        waiting.until(
            lambda: not self.get(jobs)["items"], "no job left", deadline_s=GONE_DEADLINE_S
        )

        def gone() -> bool:
            # Whatever the garbage collector has not come to yet. Of many pods the request may take
            # longer than it is allowed to, and has deleted a part of them then.
            try:
                self.request("DELETE", f"{pods}?gracePeriodSeconds=0")
            except ApiError as error:
                if error.status != http.HTTPStatus.GATEWAY_TIMEOUT:
                    raise
                return False
            return not self.get(f"{pods}?limit=1")["items"] and not self.in_flight()

        waiting.until(gone, "no pod left", deadline_s=GONE_DEADLINE_S, pause_s_longest=2.0)

    def settle(self) -> None:
        """Wait until the machine is at rest: components still work on what was cleared away."""
        deadline_s = time.monotonic() + REST_DEADLINE_S
        idle_share = 0.0
        while idle_share < REST_IDLE_MIN:
            assert time.monotonic() < deadline_s, f"idle share of the processors: {idle_share:.2f}"
            idle_before, total_before = _processor_ticks()
            time.sleep(REST_WINDOW_S)
            idle, total = _processor_ticks()
            idle_share = (idle - idle_before) / (total - total_before)

    def requests(self, *flows: str) -> int:
        """Requests of these flows that the API server has let in, by its own count."""
        text = self._metrics()
        found = re.findall(
            r'^apiserver_flowcontrol_dispatched_requests_total\{flow_schema="([^"]*)".*\} (\S+)$',
            text,
            re.MULTILINE,
        )
        return sum(int(float(count)) for schema, count in found if schema in flows)

    @contextmanager
    def watched(self, namespace: str, pods: int) -> Iterator[_Watcher]:
        """Eyes on a namespace, open before the clock starts."""
        command = [
            *(sys.executable, str(Path(__file__).with_name("pod_watcher.py")), self.plane.url),
            *(str(self.plane.ca_file), self.plane.token, namespace, str(pods)),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            watcher = _Watcher(process)
            assert watcher.line() == "ready"
            try:
                yield watcher
            finally:
                process.kill()

    def session(self) -> aiohttp.ClientSession:
        """The HTTP library that the product uses, as the cluster's administrator."""

        context = ssl.create_default_context(cafile=str(self.plane.ca_file))
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=context),
            headers={"Authorization": f"Bearer {self.plane.token}", "Accept": "application/json"},
        )

    def _has(self, path: str) -> bool:
        with closing(self.plane.client()) as client:
            return api_client.answers(client, path)

    def in_flight(self) -> list[Json]:
        """The attempts in the ledger."""
        path = f"/apis/{names.API_VERSION}/{names.LEDGERS}"
        ledgers = self.get(path)["items"]
        return [entry for ledger in ledgers for entry in ledger["spec"].get("entries", [])]

    def _metrics(self) -> str:
        return self.plane.kubectl("get", "--raw", "/metrics")


@dataclass(frozen=True, slots=True)
class _Watcher:
    process: subprocess.Popen[str]

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def all_running_s(self) -> float:
        """The monotonic time at which all pods were seen Running. Blocks."""
        line = self.line()
        assert line, "the watcher ended before all pods ran"
        return float(line)


@contextmanager
def opened(nodes: int, *, lease_s: int = LEASE_S) -> Iterator[GangSite]:
    """A cluster of so many nodes, with our kinds and the operator's rights, and no operator."""
    options = ControlPlaneOptions(node_lease_s=lease_s, node_grace_s=lease_s + 10, recorded=False)
    with ControlPlane.start("bench", options=options) as plane:
        service_process.install(plane, ROOT)
        log_progress(f"{nodes} simulated nodes")
        specs = [_node(number) for number in range(nodes)]
        with plane.kwok(specs):
            yield GangSite(plane)


@contextmanager
def operated(site: GangSite) -> Iterator[OperatorProcess]:
    """The operator as in production, leading."""
    process = OperatorProcess(
        site.plane, name=OPERATOR, host="127.0.0.1", launcher_image="example.com/launcher"
    )
    with process:
        ledgers = f"/apis/{names.API_VERSION}/{names.LEDGERS}"
        waiting.until(lambda: site.get(ledgers)["items"], "a leader", deadline_s=60)
        yield process


@contextmanager
def controlled(site: GangSite) -> Iterator[ControllersProcess]:
    """The controllers as in production; they have published the topology."""
    with ControllersProcess(site.plane) as process:
        waiting.until(lambda: site.fabric().get("topology"), "a topology", deadline_s=60)
        yield process


def node_name(number: int) -> str:
    """The name of a node."""
    return f"node-{number:05d}"


def job(
    namespace: str, name: str, *, nodes: int, gpus: int = GPUS, workload: Json | None = None
) -> Json:
    """A TrainingJob that takes these GPUs of each node; with a workload its ranks are mapped."""
    container = {
        "name": "train",
        "image": "example.com/none",
        "command": ["python3", "train.py"],
        "resources": {"limits": {GPU: gpus}},
    }
    template = {"spec": {"containers": [container]}}
    role = {"name": "worker", "replicas": nodes, "template": template}
    return {
        "apiVersion": names.API_VERSION,
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "roles": [role | ({"processesPerReplica": gpus} if workload else {})],
            **({"workload": workload} if workload else {}),
        },
    }


async def apply(site: GangSite, jobs: Sequence[Json]) -> float:
    """Create all jobs at once; the monotonic time right before the first request."""
    namespace = jobs[0]["metadata"]["namespace"]
    path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.TRAINING_JOBS}"

    async def one(session: aiohttp.ClientSession, body: Json) -> None:
        headers = {"Content-Type": "application/json"}
        async with session.post(
            site.plane.url + path, data=orjson.dumps(body), headers=headers
        ) as answer:
            assert answer.status == 201, await answer.text()

    async with site.session() as session:
        started_s = time.monotonic()
        await asyncio.gather(*(one(session, body) for body in jobs))
    return started_s


def resident_mib(operator: OperatorProcess) -> float:
    """The most memory that the operator and the processes of its mapper have held, in MiB."""
    return sum(map(process_mib, (operator.pid, *operator.mapper_pids())))


def process_mib(pid: int) -> float:
    """The most memory that a process has held, in MiB."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", text, re.MULTILINE)
    assert found is not None, text
    return int(found[1]) / 1024


LAG = "railwright_loop_lag_seconds"
"""The operator's own histogram of how late its event loop was."""

CYCLE, CYCLE_CPU = "railwright_cycle_seconds", "railwright_cycle_cpu_seconds"
"""Those of the time and the CPU time of its cycles."""


def buckets(operator: OperatorProcess, histogram: str = LAG) -> dict[float, float]:
    """How often a value was at most so many seconds."""
    text = operator.scrape()
    found = re.findall(rf'^{histogram}_bucket\{{le="(\S+)"\}} (\S+)$', text, re.M)
    return {float(edge): float(count) for edge, count in found}


def p99_ms(
    operator: OperatorProcess, histogram: str = LAG, *, since: Mapping[float, float] | None = None
) -> float:
    """The upper edge of the bucket that the 99th percentile falls into."""
    before = since or {}
    now = buckets(operator, histogram)
    counts = {edge: count - before.get(edge, 0.0) for edge, count in now.items()}
    total = counts[math.inf]
    return 1000 * next(edge for edge, count in counts.items() if count >= 0.99 * total)


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _processor_ticks() -> tuple[int, int]:
    """Ticks without work, and all, since the machine was started (``man 5 proc``, ``cpu``)."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split(maxsplit=9)[1:9]
    ticks = [int(field) for field in fields]
    return ticks[3] + ticks[4], sum(ticks)


def _node(number: int) -> NodeSpec:
    labels = {
        names.LABEL_RACK: f"rack-{number // RACK_NODES:03d}",
        names.LABEL_BLOCK: f"block-{number // BLOCK_NODES:03d}",
    }
    return NodeSpec(node_name(number), labels, {GPU: str(GPUS)})
