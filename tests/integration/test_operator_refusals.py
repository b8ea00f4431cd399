"""A refusal by the API server rolls back the gang, is published, and passes."""

from __future__ import annotations

from typing import Any

import pytest

from integration.operator_site import Floor, Job, Site
from railwright_testbed import waiting

GPU = "nvidia.com/gpu"
MAIN = {"name": "train", "image": "i", "command": ["c"]}


def test_a_quota_that_refuses_one_pod_keeps_the_whole_gang_out(site: Site, floor: Floor) -> None:
    floor.create(_quota(gpus=16))
    waiting.until(lambda: _used(site, floor) == "0", "the quota counted", deadline_s=60)
    job = floor.apply("job", nodes=3)
    status = job.until_reason("CommitRefused")
    assert "exceeded quota: gpus" in status["message"]
    assert status["phase"] == "Queued"
    assert status["lastTermination"]["cause"] == "CommitRefused"
    waiting.until(lambda: not job.pods() and not floor.in_flight(), "rolled back", deadline_s=20)
    # The refused one tries again now and then, and may take of the quota and the nodes meanwhile.
    small = floor.apply("small", nodes=2)
    assert set(small.until_nodes(None)) < set(floor.nodes)
    _remove(small)
    job.patch({"suspend": True})
    waiting.until(lambda: not job.pods() and not floor.in_flight(), "none tries", deadline_s=60)
    alone = floor.apply("alone", nodes=2)
    assert alone.until_nodes(None) in (floor.nodes[:2], floor.nodes[2:])
    _remove(alone)
    job.patch({"suspend": False})
    site.plane.kubectl("-n", floor.name, "delete", "resourcequota", "gpus")
    status = job.until(lambda status: len(job.bound(status["attempt"])) == 3, "all of it bound")
    assert (status["failures"], status["restarts"]) == (0, 0)


def test_pod_refused_by_its_namespace_is_published(site: Site, floor: Floor) -> None:
    label = "pod-security.kubernetes.io/enforce=baseline"
    site.plane.kubectl("label", "namespace", floor.name, label)
    job = floor.apply("job", volumes={"/data": "/srv"})
    message = job.until_reason("CommitRefused")["message"]
    assert 'violates PodSecurity "baseline' in message
    assert "hostPath" in message
    assert job.pods() == []


def test_container_that_meets_the_restricted_profile_is_admitted(site: Site, floor: Floor) -> None:
    """Though the launcher is installed by a container of ours."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    site.plane.kubectl("label", "namespace", floor.name, label)
    security = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    restricted = {"spec": {"containers": [MAIN | {"securityContext": security}]}}
    floor.apply("job", template=restricted).until_bound()


def test_invalid_template_is_published_at_once(floor: Floor) -> None:
    job = floor.apply("job", template={"spec": {"containers": [MAIN], "securityContext": "none"}})
    message = job.until_reason("CommitRefused")["message"]
    assert "cannot be handled as a Pod" in message
    assert "securityContext" in message


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ({"max": {GPU: "4"}}, f"maximum {GPU} usage per Container is 4, but limit is 8"),
        ({"default": {"memory": "1Ti"}}, "requests more than the job does: memory: 1Ti, planned 0"),
    ],
    ids=["max", "default"],
)
def test_limit_range_that_changes_a_pod_keeps_gang_out(
    floor: Floor, limit: dict[str, Any], words: str
) -> None:
    """A LimitRange refuses or enlarges one pod; no pod of the gang is bound."""
    limits = [{"type": "Container"} | limit]
    floor.create(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "limits"},
            "spec": {"limits": limits},
        }
    )
    job = floor.apply("job")
    status = job.until_reason("CommitRefused")
    assert words in status["message"]
    assert (status["phase"], status["failures"]) == ("Queued", 0)
    waiting.until(lambda: not job.pods() and not floor.in_flight(), "rolled back", deadline_s=20)
    small = floor.apply("small", gpus=4, resources={"memory": "1Gi", "cpu": 1})
    assert small.until_nodes() in (floor.nodes[:2], floor.nodes[2:])


def _remove(job: Job) -> None:
    job.delete()
    waiting.until(lambda: not job.pods(), f"the pods of {job.name} are gone", deadline_s=60)


def _used(site: Site, floor: Floor) -> str:
    """What the quota's controller has counted so far; empty before."""
    quota = site.admin.get(f"/api/v1/namespaces/{floor.name}/resourcequotas/gpus")
    return str(quota.get("status", {}).get("used", {}).get("requests.nvidia.com/gpu", ""))


def _quota(*, gpus: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus"},
        "spec": {"hard": {"requests.nvidia.com/gpu": str(gpus)}},
    }
