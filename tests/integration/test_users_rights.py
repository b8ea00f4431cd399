"""What users of a namespace may do with jobs, by the roles that clusters give their users."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from integration import access_reviews
from railwright_api import names
from railwright_testbed import ControlPlane, waiting
from railwright_testbed.api_client import ApiClient

USERS = Path(__file__).resolve().parents[2] / "deploy/rights/users.yaml"
DEADLINE_S = 30.0

READ = {("get", names.TRAINING_JOBS), ("list", names.PLACEMENTS), ("watch", names.PROFILES)}
WRITE = {(verb, names.TRAINING_JOBS) for verb in ("create", "update", "patch", "delete")}
OF_THE_OPERATOR = {
    ("patch", f"{names.TRAINING_JOBS}/status"),
    ("create", names.PLACEMENTS),
    ("delete", names.PROFILES),
}
OF_THE_CLUSTER = {
    ("list", names.QUEUES),
    ("get", names.FABRICS),
    ("get", names.NODE_HEALTHS),
    ("list", "nodes"),
    ("list", "priorityclasses"),
    ("list", "runtimeclasses"),
}


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
    requests = READ | WRITE | OF_THE_OPERATOR | OF_THE_CLUSTER
    with contextlib.closing(control_plane.client()) as client:

        def may() -> set[tuple[str, str]]:
            return {each for each in requests if _may(client, role, *each, namespace=namespace)}

        # A controller of Kubernetes adds our rights to its roles.
        waiting.until(lambda: may() == allowed, f"rights of {role}", deadline_s=DEADLINE_S)
        assert not {each for each in requests if _may(client, role, *each, namespace="default")}


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("cluster-view", OF_THE_CLUSTER),
        ("positions", {("list", names.TRAINING_JOBS)}),
        ("free-devices", {("list", "pods")}),
    ],
)
def test_role_for_the_cluster_has_what_it_is_for(
    control_plane: ControlPlane, role: str, allowed: set[tuple[str, str]]
) -> None:
    control_plane.kubectl("apply", "-f", str(USERS))
    its = f"--clusterrole=railwright-{role}"
    control_plane.kubectl("create", "clusterrolebinding", role, its, f"--user={role}")
    requests = OF_THE_CLUSTER | READ | WRITE | {("list", "pods"), ("list", names.TRAINING_JOBS)}
    with contextlib.closing(control_plane.client()) as client:

        def may() -> set[tuple[str, str]]:
            return {each for each in requests if _may(client, role, *each, namespace="")}

        waiting.until(lambda: may() == allowed, "its rights", deadline_s=DEADLINE_S)


def _may(client: ApiClient, user: str, verb: str, what: str, *, namespace: str) -> bool:
    groups = {"nodes": "", "pods": "", "priorityclasses": "scheduling.k8s.io"}
    groups |= {"runtimeclasses": "node.k8s.io"}
    group = groups.get(what, names.GROUP)
    return access_reviews.may(client, user, verb, group=group, what=what, namespace=namespace)
