"""The simulated API server answers as a real one does."""

from __future__ import annotations

import contextlib
import itertools
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any
from urllib.parse import parse_qsl, quote

import pytest

from fixtures import shell
from integration import generated_requests, manifests, server_comparison
from integration.server_comparison import Comparable, ServerView
from railwright_api import names
from railwright_kube.client import MERGE_PATCH
from railwright_kube.transport import JSON
from railwright_testbed import ControlPlane, waiting
from railwright_testbed.api_client import ApiClient
from simulator.api_server import ApiRequest, ApiServer

Json = dict[str, Any]

SEEDS = range(4)
REQUESTS = 400
SELECTORS = (
    "labelSelector=app%3Da",
    "labelSelector=app%2Ctier!%3Dx",
    "labelSelector=!tier",
    "fieldSelector=status.phase%3DRunning",
    "fieldSelector=spec.nodeName%3D{node}%2Cmetadata.name!%3Dx",
)


class RealServer(ApiClient):
    """The real API server, with all its statuses and streams."""

    def exchange(self, method: str, path: str, body: Json | None, type_: str) -> tuple[int, Json]:
        """Send a request; the status and the decoded body."""
        content = None if body is None else json.dumps(body).encode()
        status, text, _ = self._send(method, path, content, type_)
        return status, json.loads(text)

    def stream(self, path: str) -> list[Json]:
        """The events of a watch of one second."""
        _, text, _ = self._send("GET", f"{path}&watch=1&timeoutSeconds=1", None, JSON)
        return [json.loads(line) for line in text.splitlines()]


class SimulatedServer(ApiServer):
    """The simulated one, with the same methods."""

    def exchange(self, method: str, path: str, body: Json | None, type_: str) -> tuple[int, Json]:
        """Carry out a request."""
        response = self.answer(_request(method, path, json.loads(json.dumps(body)), type_))
        return response.status, json.loads(response.body)

    def stream(self, path: str) -> list[Json]:
        """The events of a watch until now."""
        return [json.loads(line) for line in self.watch(_request("GET", path)).take(10_000)]


Servers = tuple[RealServer, SimulatedServer]


def _request(method: str, path: str, body: Any = None, type_: str = JSON) -> ApiRequest:
    bare, _, query = path.partition("?")
    return ApiRequest(method, bare, dict(parse_qsl(query)), body, type_)


@contextlib.contextmanager
def _connected(plane: ControlPlane) -> Iterator[RealServer]:
    with contextlib.closing(
        RealServer(plane.url, ca_file=plane.ca_file, token=plane.token)
    ) as real:
        yield real


@pytest.fixture
def servers(control_plane: ControlPlane, namespace: str) -> Iterator[Servers]:
    """A real server whose namespace can have pods, and a simulated one."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
    with _connected(control_plane) as real:
        real.exchange("POST", path, {"metadata": {"name": "default"}}, JSON)
        yield real, SimulatedServer(wall_clock=time.time)
        for kind in generated_requests.kinds(namespace):
            if "/namespaces/" not in kind.path:
                _remove(real, f"{kind.path}/{namespace}-x")
                _remove(real, f"{kind.path}/{namespace}-y")


def _remove(real: RealServer, path: str) -> None:
    real.exchange("PATCH", path, {"metadata": {"finalizers": None}}, MERGE_PATCH)
    real.exchange("DELETE", path, None, JSON)


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_requests_have_equal_results(
    control_plane: ControlPlane, servers: Servers, namespace: str, seed: int
) -> None:
    real, simulated = servers
    kinds = generated_requests.kinds(namespace)
    paths = sorted({kind.path for kind in kinds})
    pods = kinds[0].path
    # The real server can serve a watch from the version of its first list of a kind.
    version = [real.get(path)["metadata"]["resourceVersion"] for path in paths][-1]
    theirs, ours = ServerView(real.exchange), ServerView(simulated.exchange)
    for request in generated_requests.generate(Random(seed), namespace, count=REQUESTS):
        theirs.send(request)
        ours.send(request)
    streams = [
        *(f"{path}?" for path in paths),
        *(f"{pods}?{query.format(node=kinds[0].node)}&" for query in SELECTORS),
    ]

    def stream(path: str) -> list[Json]:
        with _connected(control_plane) as server:
            return server.stream(f"{path}resourceVersion={version}")

    with ThreadPoolExecutor(len(streams)) as pool:
        their_events = [*pool.map(stream, streams)]
    our_events = [simulated.stream(f"{path}resourceVersion=1") for path in streams]
    expected = Comparable(theirs.results, _of_test(their_events, namespace))
    found = Comparable(ours.results, _of_test(our_events, namespace))
    differences = server_comparison.differences(found, expected)
    assert not differences, "\n".join(differences)


def _of_test(streams: list[list[Json]], namespace: str) -> list[Json]:
    """The events of the objects of the test."""
    ours = {"x", "y", f"{namespace}-x", f"{namespace}-y"}
    events = itertools.chain.from_iterable(streams)
    return [event for event in events if event["object"]["metadata"]["name"] in ours]


def test_nodes_have_equal_results(servers: Servers, namespace: str) -> None:
    """Controllers change nodes, so versions are not compared."""
    name = f"node-of-{namespace}"
    path = f"/api/v1/nodes/{name}"
    node = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": "2"}}}
    cordoned = {"spec": {"unschedulable": True}, "status": {"allocatable": {"cpu": "9"}}}
    resized = {"spec": {"unschedulable": None}, "status": {"allocatable": {"cpu": "4"}}}
    found = [
        [
            _node_fields(*server.exchange("POST", "/api/v1/nodes", node, JSON)),
            _node_fields(*server.exchange("PATCH", path, cordoned, MERGE_PATCH)),
            _node_fields(*server.exchange("PATCH", f"{path}/status", resized, MERGE_PATCH)),
            _node_fields(*server.exchange("DELETE", path, None, JSON)),
            _node_fields(*server.exchange("DELETE", path, None, JSON)),
        ]
        for server in servers
    ]
    assert found[1] == found[0]


def _node_fields(code: int, body: Json) -> list[Any]:
    if body["kind"] == "Status":
        return [code, body["status"], body["details"]["name"], body["details"]["kind"]]
    is_cordoned = body.get("spec", {}).get("unschedulable", False)
    return [code, is_cordoned, body["status"]["allocatable"]]


def test_events_are_selected_alike(servers: Servers, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/events"
    regarding = {"namespace": namespace, "name": "p", "uid": "u"}
    query = "fieldSelector=involvedObject.kind%3DPod%2Creason%3DPulling"
    for server in servers:
        for number, (kind, reason) in enumerate(
            [("Pod", "Pulling"), ("Pod", "Pulled"), ("Node", "Pulling"), ("Pod", "Pulling")]
        ):
            event = {"metadata": {"name": f"e{number}"}, "reason": reason}
            event["involvedObject"] = regarding | {"kind": kind}
            server.exchange("POST", path, event, JSON)
        _, found = server.exchange("GET", f"{path}?{query}", None, JSON)
        assert [each["metadata"]["name"] for each in found["items"]] == ["e0", "e3"]


def test_pages_are_of_one_version(servers: Servers, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/pods"
    for server in servers:
        for name in ("b", "d", "e"):
            server.exchange("POST", path, shell.pod(name), JSON)
        _, page = server.exchange("GET", f"{path}?limit=1", None, JSON)
        server.exchange("DELETE", f"{path}/d", None, JSON)
        server.exchange("POST", path, shell.pod("c"), JSON)
        token = page["metadata"]["continue"]
        _, rest = server.exchange("GET", f"{path}?limit=9&continue={quote(token)}", None, JSON)
        found = [each["metadata"]["name"] for each in (*page["items"], *rest["items"])]
        assert found == ["b", "d", "e"]
        assert rest["metadata"] == {"resourceVersion": page["metadata"]["resourceVersion"]}


def test_watch_from_compacted_version_ends(servers: Servers, namespace: str) -> None:
    """A real server keeps the newest events of each kind in memory, whatever etcd has."""
    real, simulated = servers
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    simulated.exchange("POST", path, shell.config_map("x"), JSON)
    simulated.compact()
    path = f"{manifests.path(names.TRAINING_JOBS, namespace)}?resourceVersion=1"
    (expected,), (found,) = real.stream(path), simulated.stream(path)
    for event in (expected, found):
        event["object"]["message"] = event["object"]["message"].partition(":")[0]
    assert found == expected


def test_garbage_is_collected_alike(servers: Servers, namespace: str) -> None:
    """The pods of a deleted owner: an unbound one goes, a bound one is marked."""
    real, simulated = servers
    core = f"/api/v1/namespaces/{namespace}"
    for server in servers:
        _, made = server.exchange("POST", f"{core}/configmaps", shell.config_map("x"), JSON)
        uid = made["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x"}
        for name in ("free", "bound"):
            pod = shell.pod(name, ownerReferences=[owner | {"uid": uid}])
            server.exchange("POST", f"{core}/pods", pod, JSON)
        body = {
            "metadata": {"name": "bound"},
            "target": {"kind": "Node", "name": f"{namespace}-node"},
        }
        server.exchange("POST", f"{core}/pods/bound/binding", body, JSON)
        server.exchange("DELETE", f"{core}/configmaps/x", None, JSON)
    simulated.collect_garbage()

    def found(server: RealServer | SimulatedServer) -> list[tuple[str, bool]]:
        _, pods = server.exchange("GET", f"{core}/pods", None, JSON)
        metadata = [pod["metadata"] for pod in pods["items"]]
        return [(each["name"], "deletionTimestamp" in each) for each in metadata]

    assert found(simulated) == [("bound", True)]
    waiting.until(lambda: found(real) == found(simulated), "garbage collection", deadline_s=20)
