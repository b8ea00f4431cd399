"""What is read of pods and nodes is the same in protobuf as in JSON."""

from __future__ import annotations

from typing import Any, TypeVar

import orjson
import pytest

from fixtures import shell
from railwright_api import names
from railwright_kube import core_v1, paths, projections, protobuf
from railwright_kube.client import Api
from railwright_kube.core_v1 import NodeObject, PodObject
from railwright_kube.projections import ApiObject, Page, Projection, Undeclared
from railwright_operator.watch import records
from railwright_testbed import ControlPlane
from railwright_watch import nodes

F = TypeVar("F", bound=ApiObject)

RESOURCES = {"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": "1500m", "memory": "3Gi"}}
OWNER = {
    "apiVersion": "railwright.dev/v1alpha1",
    "kind": "TrainingJob",
    "name": "llm",
    "uid": "11111111-1111-1111-1111-111111111111",
    "controller": True,
}
LABELS = {"example.com/a": "b", "example.com/empty": ""}
BARE: dict[str, Any] = {"containers": [{"name": "main", "image": "i"}]}
RICH = {
    "nodeName": "n1",
    "containers": [
        {"name": "main", "image": "i", "resources": RESOURCES},
        {"name": "side", "image": "i"},
    ],
    "initContainers": [
        {"name": "sidecar", "image": "i", "restartPolicy": "Always", "resources": RESOURCES},
        {"name": "first", "image": "i", "resources": RESOURCES},
    ],
}
HEAVY: dict[str, Any] = {
    "containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
    "resources": {"requests": {"cpu": "2", "memory": "5Gi"}},
}
OVERHEAD = {"podFixed": {"cpu": "250m", "memory": "64Mi"}}
STATUS = {
    "phase": "Failed",
    "initContainerStatuses": [
        {
            "name": "first",
            "image": "i",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "soon"}},
        },
    ],
    "reason": "Evicted",
    "podIP": "10.0.0.7",
    "podIPs": [{"ip": "10.0.0.7"}],
    "conditions": [
        {"type": "Ready", "status": "False", "reason": "PodFailed"},
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"},
    ],
    "containerStatuses": [
        {
            "name": "main",
            "image": "i",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "\u00e9"}},
        },
        {
            "name": "side",
            "image": "i",
            "imageID": "",
            "ready": False,
            "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "later"}},
        },
    ],
}


async def _page(api: Api, path: str, projection: Projection[Any], **query: str) -> Page:
    page: Page = await api.get(path, query=query, accept=projection.accept, decode=projection.page)
    return page


def _read(page: Page, projection: Projection[F]) -> list[F]:
    """All its objects, readable every one."""
    found = []
    for item in page.items:
        each = projection.listed(item)
        assert not isinstance(each, Undeclared), each.why
        found.append(each)
    return found


async def _both(
    api: Api, path: str, kinds: tuple[Projection[F], Projection[F]], **query: str
) -> tuple[Page, list[F], list[F]]:
    """A page in JSON, what is read of it, and what is read of the same version in protobuf: a
    controller may have changed an object since."""
    json, messages = kinds
    page = await _page(api, path, json, **query)
    exactly = {"resourceVersion": str(page.version), "resourceVersionMatch": "Exact"}
    same = await _page(api, path, messages, **query, **exactly)
    assert same.version == page.version
    return page, _read(page, json), _read(same, messages)


@pytest.fixture
async def pods(control_plane: ControlPlane, namespace: str) -> str:
    """The path of a namespace with pods of many kinds."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    async with shell.api(shell.connect(control_plane)) as api:
        await api.create(path, {"metadata": {"name": "bare"}, "spec": BARE})
        runtime = {"metadata": {"name": namespace}, "handler": "heavy", "overhead": OVERHEAD}
        await api.create("/apis/node.k8s.io/v1/runtimeclasses", runtime)
        heavy = HEAVY | {"runtimeClassName": namespace}
        await api.create(path, {"metadata": {"name": "heavy"}, "spec": heavy})
        for rank in range(3):
            ours = {
                names.LABEL_JOB_UID: OWNER["uid"],
                names.LABEL_JOB_NAME: OWNER["name"],
                names.LABEL_ATTEMPT: "3",
                names.LABEL_NODE_RANK: str(rank),
                names.LABEL_ROLE: "worker",
                names.LABEL_COMPLETION_INDEX: str(rank),
            }
            metadata = {
                "name": f"llm-worker-{rank}-3",
                "labels": LABELS | ours,
                "ownerReferences": [OWNER],
                "finalizers": ["example.com/held"],
            }
            await api.create(path, {"metadata": metadata, "spec": RICH})
        await api.patch(f"{path}/llm-worker-1-3/status", {"status": STATUS})
        await api.delete(f"{path}/llm-worker-2-3")
    return path


async def test_pods_are_equal_in_json_and_protobuf(control_plane: ControlPlane, pods: str) -> None:
    async with shell.api(shell.connect(control_plane)) as api:
        page, written, listed = await _both(
            api, pods, (projections.of(PodObject, "Pod"), protobuf.POD)
        )
        expected = [records.pod(found) for found in written]
        assert [records.pod(found) for found in listed] == expected
        assert [records.answered(orjson.loads(bytes(item))) for item in page.items] == expected
        bare, heavy, running, ended, going = expected
        assert (bare.job_uid, running.job_uid) == (None, OWNER["uid"])
        assert heavy.requests == {"cpu": 2250, "memory": (5 << 30) + (64 << 20), "pods": 1}
        assert ended.exit == records.Exit(137, "OOMKilled", "\u00e9")
        assert ended.waiting == core_v1.Waiting("CrashLoopBackOff", "soon")
        assert ended.disruption == "EvictionByEvictionAPI"
        assert ended.requests["nvidia.com/gpu"] == 16
        assert going.deleting
        for pod in (running, ended, going):
            await api.patch(f"{pods}/{pod.name}", {"metadata": {"finalizers": None}})


async def test_nodes_are_equal_in_json_and_protobuf(
    control_plane: ControlPlane, namespace: str
) -> None:
    name = f"node-of-{namespace}"
    taint = {"key": "example.com/t", "value": "v", "effect": "NoSchedule"}
    node = {"metadata": {"name": name, "labels": LABELS}, "spec": {"taints": [taint]}}
    amounts = {"nvidia.com/gpu": "8", "cpu": "64", "memory": "1Ti", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    async with shell.api(shell.connect(control_plane)) as api:
        await api.create(paths.NODES, node)
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
        await api.patch(f"{paths.NODES}/{name}/status", {"status": status})
        await api.patch(f"{paths.NODES}/{name}", {"spec": {"unschedulable": True}})
        query = {"fieldSelector": f"metadata.name={name}"}
        kinds = projections.of(NodeObject, "Node"), protobuf.NODE
        _, (written,), (listed,) = await _both(api, paths.NODES, kinds, **query)
        expected = nodes.node(written)
        assert expected.cordoned
        assert expected.allocatable["nvidia.com/gpu"] == 8
        record = nodes.node(listed)
        assert (record, record.unread) == (expected, expected.unread)
        await api.delete(f"{paths.NODES}/{name}")


async def test_a_list_comes_in_pages(control_plane: ControlPlane, pods: str) -> None:
    async with shell.api(shell.connect(control_plane)) as api:
        first = await _page(api, pods, protobuf.POD, limit="3")
        query = {"limit": "3", "continue": first.following}
        last = await _page(api, pods, protobuf.POD, **query)
    assert (len(first.items), len(last.items), last.following) == (3, 2, "")
    assert first.version == last.version


def test_what_is_no_list_is_refused() -> None:
    for body in (b"", b"{}", protobuf.MAGIC + b"\xff\xff"):
        with pytest.raises(ValueError, match=r"list|List"):
            protobuf.POD.page(body)
