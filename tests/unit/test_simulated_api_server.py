"""The simulated API server: what the comparison with a real one does not show cheaply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures import shell
from railwright_api import names
from railwright_kube import bodies, core_v1, projections, protobuf
from railwright_operator.watch import records
from railwright_watch import nodes
from simulator.api_server import ApiRequest, ApiServer
from simulator.resources import RESOURCES
from simulator.statuses import StatusError
from simulator.stored_objects import Change

Json = dict[str, Any]

CRDS = Path(__file__).resolve().parents[2] / "crds"
PODS = "/api/v1/namespaces/a/pods"
ALL_PODS = "/api/v1/pods"
CONFIG_MAPS = "/api/v1/namespaces/a/configmaps"


@pytest.fixture
def server() -> ApiServer:
    return ApiServer(wall_clock=lambda: 1.7e9)


def _list(server: ApiServer, path: str, **query: str) -> Json:
    found: Json = json.loads(server.answer(ApiRequest("GET", path, query)).body)
    return found


def _names(page: Json) -> list[str]:
    return [item["metadata"]["name"] for item in page["items"]]


def _job(name: str) -> Json:
    return {"metadata": {"name": name}, "spec": {}}


def _create_pods(server: ApiServer, *pods: str) -> None:
    for name in pods:
        server.request("POST", PODS, shell.pod(name))


def test_pages_have_the_objects_of_one_version(server: ApiServer) -> None:
    _create_pods(server, "b", "d", "e", "f")
    page = _list(server, ALL_PODS, limit="1")
    server.request("DELETE", f"{PODS}/d")
    server.request("PATCH", f"{PODS}/e", {"metadata": {"labels": {"new": "yes"}}})
    _create_pods(server, "a", "c")
    following = page["metadata"]["continue"]
    rest = _list(server, ALL_PODS, **{"continue": following})
    assert _names(page) + _names(rest) == ["b", "d", "e", "f"]
    assert rest["metadata"] == {"resourceVersion": page["metadata"]["resourceVersion"]}
    assert "labels" not in rest["items"][1]["metadata"]
    assert _names(_list(server, ALL_PODS)) == ["a", "b", "c", "e", "f"]


def test_compaction_expires_versions_and_tokens(server: ApiServer) -> None:
    _create_pods(server, "a", "b", "c")
    token = _list(server, ALL_PODS, limit="1")["metadata"]["continue"]
    old, newest = str(server.version - 1), str(server.version)
    server.compact()
    response = server.answer(ApiRequest("GET", ALL_PODS, {"continue": token}))
    assert response.status == 200, "nothing has changed since"
    _create_pods(server, "d")
    server.compact()
    response = server.answer(ApiRequest("GET", ALL_PODS, {"continue": token}))
    assert (response.status, json.loads(response.body)["reason"]) == (410, "Expired")
    cursor = server.watch(ApiRequest("GET", ALL_PODS, {"resourceVersion": old}))
    event = projections.event(cursor.take(9)[0])
    assert (event.type, projections.failure(event.object).code) == ("ERROR", 410)
    assert cursor.ended
    assert not server.watch(ApiRequest("GET", ALL_PODS, {"resourceVersion": newest})).ended


def test_open_watch_survives_compaction(server: ApiServer) -> None:
    cursor = server.watch(ApiRequest("GET", ALL_PODS, {"resourceVersion": str(server.version)}))
    _create_pods(server, "a", "b", "c")
    server.compact()
    assert len(cursor.take(2)) == 2
    version = json.loads(cursor.bookmark())["object"]["metadata"]["resourceVersion"]
    assert int(version) == server.version - 1, "one event is pending"
    assert len(cursor.take(2)) == 1
    server.request("POST", CONFIG_MAPS, shell.config_map("x"))
    version = json.loads(cursor.bookmark())["object"]["metadata"]["resourceVersion"]
    assert int(version) == server.version


def test_skipped_events_are_lost(server: ApiServer) -> None:
    cursor = server.watch(ApiRequest("GET", PODS, {"resourceVersion": str(server.version)}))
    _create_pods(server, "a", "b", "c")
    cursor.skip(2)
    (line,) = cursor.take(9)
    assert json.loads(line)["object"]["metadata"]["name"] == "c"
    assert cursor.take(9) == []


def test_watch_without_version_begins_with_all_objects(server: ApiServer) -> None:
    _create_pods(server, "b", "a")
    cursor = server.watch(ApiRequest("GET", ALL_PODS, {}))
    found = [json.loads(line) for line in cursor.take(9)]
    assert [event["object"]["metadata"]["name"] for event in found] == ["a", "b"]


def test_lists_in_protobuf_equal_those_in_json(server: ApiServer) -> None:
    resources = {"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": "1500m"}}
    metadata = {"name": "p", "labels": {names.LABEL_JOB_UID: "u", names.LABEL_ATTEMPT: "1"}}
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i", "resources": resources}]}
    server.request("POST", PODS, {"metadata": metadata, "spec": spec})
    ready = {"type": "Ready", "status": "True"}
    server.request("PATCH", f"{PODS}/p/status", {"status": {"conditions": [ready]}})
    _create_pods(server, *(f"q{number}" for number in range(200)))
    status = {"allocatable": {"nvidia.com/gpu": "8"}, "conditions": [ready]}
    node = {"metadata": {"name": "n"}, "spec": {"unschedulable": True}, "status": status}
    server.request("POST", "/api/v1/nodes", node)
    pods = protobuf.POD, projections.of(core_v1.PodObject, "Pod")
    assert _read(server, ALL_PODS, pods[0], records.pod) == _read(
        server, ALL_PODS, pods[1], records.pod
    )
    kinds = protobuf.NODE, projections.of(core_v1.NodeObject, "Node")
    (found,) = _read(server, "/api/v1/nodes", kinds[0], nodes.node)
    assert [found] == _read(server, "/api/v1/nodes", kinds[1], nodes.node)
    assert found.allocatable == {"nvidia.com/gpu": 8}
    page = protobuf.POD.page(
        server.answer(ApiRequest("GET", ALL_PODS, {"limit": "3"}, accept=protobuf.ACCEPT)).body
    )
    assert (page.version, page.following) == (server.version, f"{server.version}/a/q1")


def _read(
    server: ApiServer, path: str, projection: projections.Projection[Any], record: Any
) -> list[Any]:
    body = server.answer(ApiRequest("GET", path, {}, accept=projection.accept)).body
    return [record(projection.listed(item)) for item in projection.page(body).items]


def test_list_of_metadata_has_no_specs(server: ApiServer) -> None:
    _create_pods(server, "a")
    response = server.answer(ApiRequest("GET", ALL_PODS, {}, accept=projections.METADATA_ONLY))
    page = projections.metadata_page(response.body)
    assert [*page.unread.values()] == ["a/a"]
    assert b"spec" not in response.body


def test_objects_without_living_owners_are_deleted(server: ApiServer) -> None:
    jobs = f"/apis/{names.API_VERSION}/namespaces/a/{names.TRAINING_JOBS}"
    owner = server.request("POST", jobs, _job("one"))["metadata"]["uid"]
    other = server.request("POST", jobs, _job("two"))["metadata"]["uid"]
    owners = {"orphan": [owner], "bound": [owner], "shared": [owner, other], "free": []}
    for name, uids in owners.items():
        pod = shell.pod(name, ownerReferences=[{"uid": uid} for uid in uids])
        uid = server.request("POST", PODS, pod)["metadata"]["uid"]
        if name == "bound":
            server.request("POST", f"{PODS}/{name}/binding", bodies.binding(name, uid, node="n"))
    server.collect_garbage()
    assert len(server.objects(ALL_PODS)) == 4
    server.request("DELETE", f"{jobs}/one")
    late = shell.pod("late", ownerReferences=[{"uid": owner}])
    server.request("POST", PODS, late)
    server.collect_garbage()
    found = {each["metadata"]["name"]: each["metadata"] for each in server.objects(ALL_PODS)}
    assert found.keys() == {"bound", "shared", "free"}
    assert [name for name in found if "deletionTimestamp" in found[name]] == ["bound"]


def test_admission_hooks_change_and_refuse_objects(server: ApiServer) -> None:
    def admit(verb: str, path: str, found: Json) -> Json:
        if verb == "update":
            raise StatusError(403, "Forbidden", "no updates")
        return found | {"data": {"path": path}}

    server.admission.append(admit)
    created = server.request("POST", CONFIG_MAPS, shell.config_map("x"))
    assert created["data"] == {"path": CONFIG_MAPS}
    with pytest.raises(StatusError, match="403 Forbidden: no updates"):
        server.request("PATCH", f"{CONFIG_MAPS}/x", {"data": {"a": "1"}})


def test_callbacks_get_changes_in_order(server: ApiServer) -> None:
    """Also the changes that the requests of a callback cause."""
    seen: list[str] = []

    def react(change: Change) -> None:
        if change.key == "a/p" and change.type == "ADDED":
            server.request("POST", CONFIG_MAPS, shell.config_map("x"))

    server.on_change.append(react)
    server.on_change.append(lambda change: seen.append(f"{change.type} {change.key}"))
    _create_pods(server, "p")
    server.request("DELETE", f"{PODS}/p")
    assert seen == ["ADDED a/p", "ADDED a/x", "MODIFIED a/p", "DELETED a/p"]


def test_other_patches_are_refused(server: ApiServer) -> None:
    _create_pods(server, "p")
    with pytest.raises(StatusError, match="415"):
        server.request("PATCH", f"{PODS}/p", [], "application/json-patch+json")


@pytest.mark.parametrize("file", sorted(CRDS.glob("*.yaml")), ids=lambda file: file.stem)
def test_custom_resources_are_those_of_the_crds(file: Path) -> None:
    spec = yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
    (version,) = spec["versions"]
    resource = RESOURCES[f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}"]
    assert resource.kind == spec["names"]["kind"]
    assert resource.namespaced == (spec["scope"] == "Namespaced")
    assert resource.status == ("status" in version.get("subresources", {}))
