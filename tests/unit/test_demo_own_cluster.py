"""What the demo refuses before it connects to a cluster, and what it would install there."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from railwright_demo import manifests, own_cluster, own_job
from railwright_demo.errors import DemoRefused
from railwright_demo.own_cluster import Request
from railwright_demo.scene import Job, Pod, Scene
from railwright_demo.screen import Screen
from railwright_demo.training_log import PolledLogs

IMAGE = "registry.example.com:5000/team/railwright-operator:0.2.0"
NOWHERE = """
apiVersion: v1
kind: Config
current-context: nowhere
contexts: [{name: nowhere, context: {cluster: nowhere, user: nobody}}]
clusters: [{name: nowhere, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: nobody, user: {token: none}}]
"""


@pytest.fixture
def request_of_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Request:
    """A complete one, of a cluster that does not answer."""
    monkeypatch.setenv("KUBECONFIG", "")
    path = tmp_path / "config"
    path.write_text(NOWHERE)
    return Request(str(path), IMAGE, "torch:1", storage_class="", is_confirmed=True)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"train_image": ""}, "TRAIN_IMAGE is missing: expected an image for the job"),
        ({"image": ""}, "IMAGE is '': expected the image of the operator"),
        ({"image": "registry.example.com/railwright-launcher:1"}, "expected the image of the op"),
        ({"image": "registry.example.com/railwright-operator"}, "expected the image of the op"),
        ({"kubeconfig": "/nowhere/config"}, "there is no such file"),
        ({}, "no response from the API server"),
    ],
)
def test_incomplete_request_is_refused(
    request_of_user: Request, change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DemoRefused, match=reason):
        own_cluster.play(Screen(io.StringIO()), replace(request_of_user, **change))


def test_all_images_are_of_one_registry_and_tag() -> None:
    text = str(manifests.objects(IMAGE, "run-1"))
    for name in ("operator", "controllers", "launcher"):
        assert f"registry.example.com:5000/team/railwright-{name}:0.2.0" in text
    assert "example.com/railwright" not in text


def test_each_object_has_the_label_of_the_run() -> None:
    objects = [*manifests.kinds("run-1"), *manifests.objects(IMAGE, "run-1")]
    assert {each["metadata"]["labels"]["railwright.dev/demo"] for each in objects} == {"run-1"}


def test_operator_gets_rights_for_jobs_of_the_demo_only() -> None:
    found = [
        (each["kind"], each["metadata"].get("namespace"))
        for each in manifests.objects(IMAGE, "run-1")
        if each.get("roleRef", {}).get("name") == "railwright-operator-jobs"
    ]
    assert found == [("RoleBinding", "railwright-demo")]


def test_pods_of_the_job_share_one_node() -> None:
    """A role has each pod on a node of its own: so each pod is a role of its own."""
    job = own_job.manifest("ddp", image="torch:1", hostname="node-1", min_step_s=0.0)
    roles = job["spec"]["roles"]
    assert [(role["replicas"], role["group"]) for role in roles] == [(1, "train")] * 4
    selectors = [role["template"]["spec"]["nodeSelector"] for role in roles]
    assert selectors == [{"kubernetes.io/hostname": "node-1"}] * 4


def test_polled_losses_stay_when_their_pod_is_gone() -> None:
    texts = {"ddp-0-1": "step=1 loss=3.0\nstep=2 loss=2.0\n"}
    logs = PolledLogs(lambda pod: texts.get(pod, ""))
    first = Pod("ddp-0-1", attempt=1, node_rank=0, phase="Running")
    logs.follow(Scene(0.0, Job(attempt=1), pods=(first,)))
    texts.clear()
    logs.follow(Scene(1.0, Job(attempt=1), pods=(first,)))
    logs.follow(Scene(2.0, Job(attempt=2), pods=(first,)))
    assert logs.losses() == {1: {1: 3.0, 2: 2.0}}
