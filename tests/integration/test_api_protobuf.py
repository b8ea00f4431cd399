"""What is read of pods and nodes is the same in protobuf as in JSON."""

from __future__ import annotations

from typing import Any

import pytest

from railwright_api import names
from railwright_operator.kube import paths
from railwright_operator.kube.client import Api
from railwright_operator.watch import excerpts, protobuf, records
from railwright_operator.watch.excerpts import Excerpt, Page
from railwright_testbed import ControlPlane
from worlds import shell

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
STATUS = {
    "phase": "Failed",
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


async def _page(api: Api, path: str, excerpt: Excerpt, **query: str) -> Page:
    page: Page = await api.get(path, query=query, accept=excerpt.accept, decode=excerpt.page)
    return page


@pytest.fixture
async def pods(control_plane: ControlPlane, namespace: str) -> str:
    """The path of a namespace with pods of many kinds."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    async with shell.api(shell.connect(control_plane)) as api:
        await api.create(path, {"metadata": {"name": "bare"}, "spec": BARE})
        for rank in range(3):
            ours = {
                names.LABEL_JOB_UID: OWNER["uid"],
                names.LABEL_JOB_NAME: OWNER["name"],
                names.LABEL_ATTEMPT: "3",
                names.LABEL_NODE_RANK: str(rank),
            }
            metadata = {
                "name": f"llm-3-{rank}",
                "labels": LABELS | ours,
                "ownerReferences": [OWNER],
                "finalizers": ["example.com/held"],
            }
            await api.create(path, {"metadata": metadata, "spec": RICH})
        await api.patch(f"{path}/llm-3-1/status", {"status": STATUS})
        await api.delete(f"{path}/llm-3-2")
    return path


async def test_pods_are_read_alike(control_plane: ControlPlane, pods: str) -> None:
    async with shell.api(shell.connect(control_plane)) as api:
        wholes = await _page(api, pods, excerpts.WHOLE)
        page = await _page(api, pods, protobuf.POD)
        assert page.version >= wholes.version
        expected = [records.pod(excerpts.whole(item)) for item in wholes.items]
        assert [records.pod(excerpts.pod(item)) for item in wholes.items] == expected
        assert [records.pod(protobuf.POD.listed(item)) for item in page.items] == expected
        bare, running, ended, going = expected
        assert (bare.job_uid, running.job_uid) == (None, OWNER["uid"])
        assert ended.exit == records.Exit(137, "OOMKilled", "\u00e9")
        assert ended.waiting == records.Waiting("ImagePullBackOff", "later")
        assert (ended.disruption, ended.pod_ip) == ("EvictionByEvictionAPI", "10.0.0.7")
        assert ended.requests["nvidia.com/gpu"] == 16
        assert going.deleting
        for pod in (running, ended, going):
            await api.patch(f"{pods}/{pod.name}", {"metadata": {"finalizers": None}})


async def test_nodes_are_read_alike(control_plane: ControlPlane, namespace: str) -> None:
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
        (whole,) = (await _page(api, paths.NODES, excerpts.WHOLE, **query)).items
        (item,) = (await _page(api, paths.NODES, protobuf.NODE, **query)).items
        expected = records.node(excerpts.whole(whole))
        assert expected.cordoned
        assert expected.allocatable["nvidia.com/gpu"] == 8
        assert records.node(excerpts.node(whole)) == expected
        assert records.node(protobuf.NODE.listed(item)) == expected
        await api.delete(f"{paths.NODES}/{name}")


async def test_a_list_comes_in_pages(control_plane: ControlPlane, pods: str) -> None:
    async with shell.api(shell.connect(control_plane)) as api:
        first = await _page(api, pods, protobuf.POD, limit="3")
        query = {"limit": "3", "continue": first.following}
        last = await _page(api, pods, protobuf.POD, **query)
    assert (len(first.items), len(last.items), last.following) == (3, 1, "")
    assert first.version == last.version


def test_what_is_no_list_is_refused() -> None:
    for body in (b"", b"{}", protobuf.MAGIC + b"\xff\xff"):
        with pytest.raises(ValueError, match=r"list|List"):
            protobuf.POD.page(body)
