"""What users of a namespace may do with jobs, by the roles that clusters give their users."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from railwright_api import names
from railwright_testbed import ControlPlane, waiting
from railwright_testbed.api_client import ApiClient

USERS = Path(__file__).resolve().parents[2] / "deploy/rights/users.yaml"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
DEADLINE_S = 30.0

READ = {("get", names.TRAINING_JOBS), ("list", names.PLACEMENTS), ("watch", names.PROFILES)}
WRITE = {(verb, names.TRAINING_JOBS) for verb in ("create", "update", "patch", "delete")}
OF_THE_OPERATOR = {
    ("patch", f"{names.TRAINING_JOBS}/status"),
    ("create", names.PLACEMENTS),
    ("delete", names.PROFILES),
}
OF_THE_CLUSTER = {("list", names.QUEUES), ("get", names.FABRICS), ("get", names.NODE_HEALTHS)}


@pytest.mark.parametrize(
    ("role", "allowed"),
    [("view", READ), ("edit", READ | WRITE), ("admin", READ | WRITE)],
)
def test_users_of_a_namespace_have_their_jobs(
    control_plane: ControlPlane, namespace: str, role: str, allowed: set[tuple[str, str]]
) -> None:
    control_plane.kubectl("apply", "-f", str(USERS))
    bind = ("create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}")
    control_plane.kubectl("-n", namespace, *bind)
    asked = READ | WRITE | OF_THE_OPERATOR | OF_THE_CLUSTER
    with contextlib.closing(control_plane.client()) as client:

        def may() -> set[tuple[str, str]]:
            return {each for each in asked if _may(client, role, *each, namespace=namespace)}

        # A controller of Kubernetes adds our rights to its roles.
        waiting.until(lambda: may() == allowed, f"rights of {role}", deadline_s=DEADLINE_S)
        assert not {each for each in asked if _may(client, role, *each, namespace="default")}


def test_role_for_the_cluster_reads_what_has_no_namespace(control_plane: ControlPlane) -> None:
    control_plane.kubectl("apply", "-f", str(USERS))
    role = "railwright-cluster-view"
    bind = ("create", "clusterrolebinding", role, f"--clusterrole={role}", "--user=looks")
    control_plane.kubectl(*bind)
    with contextlib.closing(control_plane.client()) as client:

        def may() -> set[tuple[str, str]]:
            asked = OF_THE_CLUSTER | READ | WRITE
            return {each for each in asked if _may(client, "looks", *each, namespace="")}

        waiting.until(lambda: may() == OF_THE_CLUSTER, "its rights", deadline_s=DEADLINE_S)


def _may(client: ApiClient, user: str, verb: str, what: str, *, namespace: str) -> bool:
    resource, _, subresource = what.partition("/")
    attributes = {
        "verb": verb,
        "group": names.GROUP,
        "resource": resource,
        "subresource": subresource,
        "namespace": namespace,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    return bool(client.post(REVIEWS, body)["status"]["allowed"])
