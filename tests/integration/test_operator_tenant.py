"""A tenant's namespace as in the example: allowed jobs, and access to them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from integration import manifests
from integration.operator_site import Floor, Site
from railwright_api import names
from railwright_testbed import waiting
from railwright_testbed.api_client import ApiError
from railwright_testbed.control_plane import KubectlError

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/tenant.yaml"
POD = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "fsGroup": 1000,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_pods_are_accepted_under_restricted_pod_security(site: Site, floor: Floor) -> None:
    """A template that follows the restricted profile gets pods that follow it too."""
    enforce = "pod-security.kubernetes.io/enforce=restricted"
    site.plane.kubectl("label", "namespace", floor.name, enforce)
    main = {"name": "train", "image": "i", "command": ["c"], "securityContext": CONTAINER}
    beside, before = main | {"name": "beside"}, main | {"name": "before"}
    pod = {"securityContext": POD, "containers": [main, beside], "initContainers": [before]}
    assert floor.apply("job", template={"spec": pod}).until_bound()["phase"] == "Starting"


def test_the_example_of_a_tenant_is_taken_and_in_force(site: Site, floor: Floor) -> None:
    site.plane.kubectl("apply", "-f", str(EXAMPLE))
    jobs = manifests.path(names.TRAINING_JOBS, "team-a")
    with pytest.raises(ApiError, match="hostNetwork: pods of this namespace stay off the host"):
        site.admin.post(jobs + manifests.ASK, manifests.job(pod={"hostNetwork": True}))
    waiting.until(lambda: _is_taken(site, jobs), "a job that is taken", deadline_s=120)
    _create_as_member(site, "team-a")
    with pytest.raises(KubectlError, match="cannot create"):
        _create_as_member(site, "team-b")
    policy = next(
        each for each in yaml.safe_load_all(EXAMPLE.read_text()) if each["kind"] == "NetworkPolicy"
    )["spec"]
    floor.apply("job", nodes=1).until_bound()
    labels = floor.site.admin.get(f"/api/v1/namespaces/{floor.name}/pods/job-worker-0-1")[
        "metadata"
    ]
    (chosen,) = policy["podSelector"]["matchExpressions"]
    assert (chosen["operator"], chosen["key"] in labels["labels"]) == ("Exists", True)
    # No namespaceSelector and no ipBlock: only pods of the namespace itself.
    assert policy["ingress"] == [{"from": [{"podSelector": {}}]}]
    assert policy["policyTypes"] == ["Ingress"]


def _create_as_member(site: Site, group: str) -> None:
    """Have a member of this group create a job in the tenant's namespace."""
    job = json.dumps(manifests.job(pod={"securityContext": POD}))
    member = ("--as=alice", f"--as-group={group}", "-n", "team-a")
    site.plane.kubectl(*member, "create", "--dry-run=server", "-f", "-", stdin=job)


def _is_taken(site: Site, jobs: str) -> bool:
    try:
        site.admin.post(jobs + manifests.ASK, manifests.job(pod={"securityContext": POD}))
    except ApiError as error:
        if "status unknown for quota" not in str(error):
            raise
        # Kubernetes knows new kinds after half a minute. A quota that it has by then is counted
        # only minutes later.
        site.plane.kubectl("delete", "resourcequotas", "--all", "-n", "team-a")
        site.plane.kubectl("apply", "-f", str(EXAMPLE))
        return False
    return True


def test_oversized_job_waits_with_numbers_and_delays_no_job(floor: Floor) -> None:
    most = {"cpu": "100k", "memory": "256Ti", "nvidia.com/gpu": 999_999}
    main = {"name": "train", "image": "i", "command": ["c"]}
    beside = [main | {"name": f"s{n}", "resources": {"limits": most}} for n in range(7)]
    huge = floor.apply("huge", nodes=16_384, gpus=999_999, resources=most, beside=beside)
    message = huge.until_reason("NeverFits")["message"]
    assert "7999992 nvidia.com/gpu" in message.replace(",", "")
    assert floor.apply("small").until_bound()["phase"] == "Starting"
