"""A job whose pods pull images names them, by the events of their kubelets."""

from __future__ import annotations

import pytest

from integration.operator_site import Floor, Job, Json, Site

SINCE = "2026-01-02T03:04:05Z"


def report(site: Site, pod: Json, reason: str, message: str) -> None:
    """What a kubelet posts of a pod's first container."""
    about = pod["metadata"]
    path = f"/api/v1/namespaces/{about['namespace']}/events"
    body = {
        "metadata": {"generateName": f"{about['name']}."},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": about["namespace"],
            "name": about["name"],
            "uid": about["uid"],
            "fieldPath": "spec.containers{main}",
        },
        "reason": reason,
        "message": message,
        "type": "Normal",
        "source": {"component": "kubelet", "host": pod["spec"]["nodeName"]},
        "firstTimestamp": SINCE,
        "lastTimestamp": SINCE,
        "count": 1,
    }
    site.admin.post(path, body)


@pytest.fixture
def starting(site: Site, floor: Floor) -> Job:
    """A job of two whose containers are not created yet."""
    site.kwok.freeze()
    job = floor.apply("pulls", nodes=2)
    job.until_bound()
    return job


def test_pulled_images_are_on_the_status(site: Site, starting: Job) -> None:
    try:
        starting.until_reason("ContainerCreating")
        first, second = starting.pods()
        for pod in (first, second):
            report(site, pod, "Pulling", 'Pulling image "example.com/train:1"')
        message = f"pulling example.com/train:1 on 2 of 2 nodes since {SINCE}"
        starting.until_said(message)
        assert starting.status()["reason"] == "PullingImages"
        for pod in (first, second):
            report(site, pod, "Pulled", 'Successfully pulled image "example.com/train:1" in 7s')
        starting.until_reason("ContainerCreating")
    finally:
        site.kwok.thaw()
    starting.until_reason("AtBarrier")
