"""What changes under a gang that is half bound: the job, its shape, the nodes, the rules."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from fixtures.api_faults import Fault
from integration import failpoints, manifests, operator_site
from integration.failpoints import Failpoint
from integration.operator_site import FLOOR_LABEL, Floor, Job, Json, Site
from railwright_api import names
from railwright_testbed import NodeSpec, waiting
from railwright_testbed.api_client import ApiError
from railwright_testbed.control_plane import KubectlError

SIZE = 16
HALF = SIZE // 2
POLICY = "no-pods-on-this-node"

WITHHELD = {
    "before_its_pods": ("create pods", 1),
    "with_half_of_its_pods": ("create pods", HALF + 1),
    "with_half_of_it_bound": ("create pods/binding", HALF + 1),
}


@pytest.fixture(autouse=True)
def calm(site: Site) -> Iterator[None]:
    """Whatever a test did to the proxy ends with it."""
    yield
    site.proxy.lift_all()


@pytest.mark.parametrize(("selector", "first"), WITHHELD.values(), ids=WITHHELD)
def test_a_job_deleted_in_mid_commit_leaves_nothing(
    site: Site, hall: Floor, gang: str, selector: str, first: int
) -> None:
    with _held_half_way(hall, gang, selector, first) as job:
        job.delete()
        waiting.until(lambda: not job.object(), "the job is gone", deadline_s=20)
    hall.until_nothing_is_left()


def test_a_job_made_again_in_mid_commit_gets_pods_of_its_own(
    site: Site, hall: Floor, gang: str
) -> None:
    with _held_half_way(hall, gang, "create pods/binding", HALF + 1) as old:
        uids = {pod["metadata"]["uid"] for pod in old.pods()}
        old.delete()
        waiting.until(lambda: not old.object(), "the old job is gone", deadline_s=20)
        job = hall.apply(gang, nodes=SIZE)
    uid = job.object()["metadata"]["uid"]

    def is_whole() -> bool:
        pods = [pod for pod in job.pods() if pod["metadata"]["uid"] not in uids]
        owners = {pod["metadata"]["ownerReferences"][0]["uid"] for pod in pods}
        bound = [pod for pod in pods if "nodeName" in pod["spec"]]
        return owners == {uid} and len(bound) == len(job.pods()) == SIZE

    waiting.until(is_whole, "the new job's own pods", deadline_s=60, evidence=job.timeline)


def _halved(job: Job) -> Json:
    """Its roles with half of the replicas."""
    (role,) = job.object()["spec"]["roles"]
    return {"roles": [role | {"replicas": HALF}]}


def test_spec_change_in_mid_commit_never_mixes_pods(site: Site, hall: Floor, gang: str) -> None:
    """The gang is rolled back: no two pods of an attempt have different specs."""
    with _held_half_way(hall, gang, "create pods", HALF + 1) as job:
        with pytest.raises(KubectlError, match="roles cannot change"):
            job.patch(_halved(job))
        job.patch({"suspend": True})
        job.patch(_halved(job))
        job.patch({"suspend": False})

    def is_new() -> bool:
        bound = job.bound(job.status()["attempt"])
        return len(bound) == len(job.pods()) == HALF and not hall.in_flight()

    waiting.until(is_new, "the new shape", deadline_s=60, evidence=job.timeline)


def test_job_changed_while_operator_down_never_runs_half(
    site: Site, hall: Floor, gang: str
) -> None:
    """A gang in flight is rolled back and starts with the new spec."""
    with failpoints.killed_at(site, site.operator, Failpoint("pod", HALF, after=True)):
        job = hall.apply(gang, nodes=SIZE)
    roles = job.object()["spec"]["roles"]
    roles[0]["template"]["spec"]["containers"][0]["command"] = ["python3", "other.py"]
    for change in ({"suspend": True}, {"roles": roles}, {"suspend": False}):
        job.patch(change)
    operator_site.start_again(site)
    job.until(lambda status: len(job.bound(status.get("attempt", 0))) == SIZE, "all of it")
    waiting.until(lambda: len(job.pods()) == SIZE, "nothing of attempts before", deadline_s=40)
    commands = {pod["spec"]["containers"][0]["command"][-1] for pod in job.pods()}
    assert commands == {"other.py"}


def test_node_registered_anew_is_placed_by_its_labels(site: Site) -> None:
    with operator_site.floor_on(site, (2, 2)) as floor:
        floor.apply("first", nodes=4).until_bound()
        moved, rack = floor.nodes[0], f"{floor.name}-rack-1"
        site.plane.kubectl("delete", "node", moved)
        floor.clear()
        labels = {FLOOR_LABEL: floor.name, names.LABEL_RACK: rack}
        site.kwok.add_nodes([NodeSpec(moved, labels, {"nvidia.com/gpu": "8"})])
        site.until_nodes_heard()
        floor.apply("all", nodes=4).until_bound()
        floor.clear()
        job = floor.apply("second", nodes=3)
        assert set(job.until_nodes()) == {moved, *floor.nodes[2:]}


def test_refused_binding_rolls_back_its_gang_alone(site: Site, floor: Floor) -> None:
    """Other gangs are bound meanwhile."""
    with operator_site.floor_on(site, (2,)) as beside:
        with manifests.created(site.admin, *_policy(floor.nodes[3])):
            waiting.until(lambda: _is_in_force(floor), "the policy", deadline_s=30)
            job = floor.apply("job", nodes=4)
            message = job.until_reason("CommitRefused", deadline_s=40)["message"]
            assert "this node takes no pod" in message
            beside.apply("other").until_bound()
        job.until(lambda status: len(job.bound(status["attempt"])) == 4, "all of it")
        waiting.until(lambda: len(job.pods()) == 4, "nothing of attempts before", deadline_s=40)
        assert job.status()["failures"] == 0


@contextlib.contextmanager
def _held_half_way(hall: Floor, gang: str, selector: str, first: int) -> Iterator[Job]:
    """A job whose commit has come to this write; after the block all go through."""
    held = hall.site.proxy.fail(selector, Fault.REQUEST_HELD, first=first, times=None)
    job = hall.apply(gang, nodes=SIZE)
    waiting.until(
        lambda: held.met > SIZE - first, "held", deadline_s=20, evidence=lambda: f"{held}"
    )
    try:
        yield job
    finally:
        held.lift()


def _policy(node: str) -> list[tuple[str, Json]]:
    """No pod may be bound to this node."""
    group = "/apis/admissionregistration.k8s.io/v1"
    bindings = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods/binding"],
    }
    rule = {
        "expression": f"object.target.name != '{node}'",
        "message": "this node takes no pod",
    }
    policy = {
        "metadata": {"name": POLICY},
        "spec": {"matchConstraints": {"resourceRules": [bindings]}, "validations": [rule]},
    }
    binding = {
        "metadata": {"name": POLICY},
        "spec": {"policyName": POLICY, "validationActions": ["Deny"]},
    }
    return [
        (f"{group}/validatingadmissionpolicies", policy),
        (f"{group}/validatingadmissionpolicybindings", binding),
    ]


def _is_in_force(floor: Floor) -> bool:
    """Whether the policy is asked before it is found that there is no such pod."""
    body = {"metadata": {"name": "none"}, "target": {"kind": "Node", "name": floor.nodes[3]}}
    path = f"/api/v1/namespaces/{floor.name}/pods/none/binding?dryRun=All"
    with pytest.raises(ApiError) as caught:
        floor.site.admin.post(path, body)
    return caught.value.status != 404
