"""The service accounts on a real API server: each may do its work, and nothing beside."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration import access_reviews
from railwright_api import names
from railwright_kube import paths
from railwright_testbed import ControlPlane, waiting
from railwright_testbed.api_client import ApiClient

ROOT = Path(__file__).resolve().parents[2]
OWN = "railwright-system"
OPERATOR, CONTROLLERS, AGENT = "railwright-operator", "railwright-controllers", "railwright-agent"
METRICS = "railwright-metrics"
OURS = "railwright.dev"
LEASES = "coordination.k8s.io"
FILES = ("namespace.yaml", "operator.yaml", "controllers.yaml", "all-namespaces.yaml")

May = Callable[..., bool]


@pytest.fixture(scope="module")
def may(control_plane: ControlPlane) -> Iterator[May]:
    """Asks the API server what an account may: verb, group, resource, namespace."""
    for name in FILES:
        control_plane.kubectl("apply", "-f", str(ROOT / "deploy/rights" / name))
    with contextlib.closing(control_plane.client()) as client:

        def ask(user: str, verb: str, group: str, what: str, namespace: str = "default") -> bool:
            return _may(client, user, verb, group=group, what=what, namespace=namespace)

        # Who may do what is learned from a watch: one right of each binding.
        waiting.until(
            lambda: (
                ask(OPERATOR, "list", "", "nodes", "")
                and ask(OPERATOR, "create", LEASES, "leases", OWN)
                and ask(OPERATOR, "get", LEASES, "leases", "kube-node-lease")
                and ask(CONTROLLERS, "list", "", "nodes", "")
                and ask(CONTROLLERS, "create", LEASES, "leases", OWN)
            ),
            "the rights in force",
            deadline_s=20,
        )
        yield ask


@pytest.mark.parametrize(
    ("verbs", "group", "what", "namespace"),
    [
        ("get list watch delete", OURS, "trainingjobs", "default"),
        ("patch", OURS, "trainingjobs/status", "default"),
        ("get list watch create", OURS, "queues", ""),
        ("patch", OURS, "queues/status", ""),
        ("list watch", OURS, "fabrics", ""),
        ("list watch", OURS, "nodehealths", ""),
        ("get list watch create delete", OURS, "placements", "default"),
        ("list watch create patch", OURS, "profiles", "default"),
        ("get create update", OURS, "ledgers", ""),
        ("get list watch create delete", "", "pods", "default"),
        ("create", "", "pods/binding", "default"),
        ("list watch", "", "nodes", ""),
        ("list watch", "scheduling.k8s.io", "priorityclasses", ""),
        ("list watch", "node.k8s.io", "runtimeclasses", ""),
        ("create", "events.k8s.io", "events", "default"),
        ("list watch", "", "events", "default"),
        ("create", LEASES, "leases", OWN),
        ("get update", LEASES, f"leases={OPERATOR}", OWN),
        ("get", LEASES, "leases", "kube-node-lease"),
        ("create", "authentication.k8s.io", "tokenreviews", ""),
        ("create", "authorization.k8s.io", "subjectaccessreviews", ""),
    ],
)
def test_the_operator_may_do_its_work(
    may: May, verbs: str, group: str, what: str, namespace: str
) -> None:
    refused = [verb for verb in verbs.split() if not may(OPERATOR, verb, group, what, namespace)]
    assert not refused, f"{refused} {what}"


@pytest.mark.parametrize(
    ("verbs", "group", "what", "namespace"),
    [
        ("get list watch create update patch delete", "", "secrets", OWN),
        ("get list create update delete", "", "configmaps", "default"),
        ("get list watch create update patch delete", "", "configmaps", OWN),
        ("get patch", "", f"configmaps={names.PROBES}", OWN),
        ("update patch deletecollection", "", "pods", "default"),
        ("create get", "", "pods/exec", "default"),
        ("create", "", "pods/ephemeralcontainers", "default"),
        ("get update patch delete", "", "nodes", ""),
        ("create update patch delete", "", "events", "default"),
        ("create update patch", OURS, "trainingjobs", "default"),
        ("update patch", OURS, "placements", "default"),
        ("get update delete", OURS, "profiles", "default"),
        ("delete patch", OURS, "ledgers", ""),
        ("update patch delete", OURS, "queues", ""),
        ("get create update patch delete", OURS, "fabrics", ""),
        ("get update patch", OURS, "fabrics/status", ""),
        ("get create update patch delete", OURS, "nodehealths", ""),
        ("get update patch", LEASES, f"leases={CONTROLLERS}", OWN),
        ("create update", LEASES, "leases", "kube-node-lease"),
        ("get create", LEASES, "leases", "default"),
        ("get create update patch delete", "scheduling.k8s.io", "priorityclasses", ""),
        ("get create update patch delete", "node.k8s.io", "runtimeclasses", ""),
        ("create", "", "serviceaccounts/token", OWN),
        ("get list create", "rbac.authorization.k8s.io", "clusterroles", ""),
        ("list", "", "namespaces", ""),
        ("list", "apiextensions.k8s.io", "customresourcedefinitions", ""),
    ],
)
def test_the_operator_may_not_do_what_it_has_no_need_of(
    may: May, verbs: str, group: str, what: str, namespace: str
) -> None:
    allowed = [verb for verb in verbs.split() if may(OPERATOR, verb, group, what, namespace)]
    assert not allowed, f"{allowed} {what}"


@pytest.mark.parametrize(
    ("verbs", "group", "what", "namespace"),
    [
        ("list watch create", OURS, "fabrics", ""),
        ("patch", OURS, "fabrics/status", ""),
        ("list watch create patch", OURS, "nodehealths", ""),
        ("list watch", "", "nodes", ""),
        ("list watch", "", "pods", "default"),
        ("create", LEASES, "leases", OWN),
        ("get update", LEASES, f"leases={CONTROLLERS}", OWN),
        ("list watch", "", "configmaps", OWN),
        ("patch", "", f"configmaps={names.PROBES}", OWN),
        ("create", "authentication.k8s.io", "tokenreviews", ""),
        ("create", "authorization.k8s.io", "subjectaccessreviews", ""),
    ],
)
def test_controllers_may_do_their_work(
    may: May, verbs: str, group: str, what: str, namespace: str
) -> None:
    refused = [verb for verb in verbs.split() if not may(CONTROLLERS, verb, group, what, namespace)]
    assert not refused, f"{refused} {what}"


@pytest.mark.parametrize(
    ("verbs", "group", "what", "namespace"),
    [
        ("get list watch create update patch delete", "", "secrets", OWN),
        ("get list watch patch", "", "configmaps", "default"),
        ("get create update patch delete", "", "configmaps", OWN),
        ("get create update patch delete deletecollection", "", "pods", "default"),
        ("create", "", "pods/binding", "default"),
        ("create get", "", "pods/exec", "default"),
        ("get create update patch delete", "", "nodes", ""),
        ("patch", "", "nodes/status", ""),
        ("list create", "", "events", "default"),
        ("get list watch create update patch delete", OURS, "trainingjobs", "default"),
        ("get update patch", OURS, "trainingjobs/status", "default"),
        ("get list watch create update patch delete", OURS, "placements", "default"),
        ("get list watch create update patch delete", OURS, "profiles", "default"),
        ("get list watch create update patch delete", OURS, "ledgers", ""),
        ("get list watch create update patch delete", OURS, "queues", ""),
        ("get update patch", OURS, "queues/status", ""),
        ("update patch delete", OURS, "fabrics", ""),
        ("update delete", OURS, "nodehealths", ""),
        ("get update patch", LEASES, f"leases={OPERATOR}", OWN),
        ("get update", LEASES, "leases", "kube-node-lease"),
        ("create", "", "serviceaccounts/token", OWN),
        ("get list create", "rbac.authorization.k8s.io", "clusterroles", ""),
        ("list", "", "namespaces", ""),
        ("list", "apiextensions.k8s.io", "customresourcedefinitions", ""),
    ],
)
def test_controllers_may_do_nothing_beside(
    may: May, verbs: str, group: str, what: str, namespace: str
) -> None:
    allowed = [verb for verb in verbs.split() if may(CONTROLLERS, verb, group, what, namespace)]
    assert not allowed, f"{allowed} {what}"


@pytest.mark.parametrize("service_account", [OPERATOR, CONTROLLERS])
def test_signing_keys_are_readable(
    may: May, control_plane: ControlPlane, service_account: str
) -> None:
    with contextlib.closing(control_plane.client()) as client:
        for path, verb, expected in (
            (paths.SIGNING_KEYS, "get", True),
            ("/metrics", "get", False),
            (paths.SIGNING_KEYS, "delete", False),
        ):
            asked = {"nonResourceAttributes": {"path": path, "verb": verb}}
            assert _is_allowed(client, service_account, asked) is expected, f"{verb} {path}"


def test_metrics_are_for_an_account_of_their_own(may: May, control_plane: ControlPlane) -> None:
    control_plane.kubectl("apply", "-f", str(ROOT / "deploy/rights/metrics.yaml"))
    asked = {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
    with contextlib.closing(control_plane.client()) as client:
        waiting.until(
            lambda: _is_allowed(client, METRICS, asked), "the right in force", deadline_s=20
        )
        for verb, group, what in (
            ("get", "", "pods"),
            ("list", "", "nodes"),
            ("get", OURS, "trainingjobs"),
            ("get", "", f"secrets={METRICS}"),
        ):
            assert not _may(client, METRICS, verb, group=group, what=what, namespace=OWN)


def test_agents_are_taken_and_have_no_rights(may: May, control_plane: ControlPlane) -> None:
    agents = str(ROOT / "deploy/agents")
    answer = control_plane.kubectl("apply", "--dry-run=server", "-o", "name", "-k", agents)
    assert answer.split() == [
        "serviceaccount/railwright-agent",
        "daemonset.apps/railwright-agent",
        "networkpolicy.networking.k8s.io/railwright-agents",
    ]
    with contextlib.closing(control_plane.client()) as client:
        for verb, group, what in (
            ("list", "", "nodes"),
            ("get", "", "pods"),
            ("get", OURS, "fabrics"),
            ("create", "authentication.k8s.io", "tokenreviews"),
        ):
            asked = _may(client, AGENT, verb, group=group, what=what, namespace=OWN)
            assert not asked, f"{verb} {what}"


def _may(
    client: ApiClient, service_account: str, verb: str, *, group: str, what: str, namespace: str
) -> bool:
    user = _user(service_account)
    return access_reviews.may(client, user, verb, group=group, what=what, namespace=namespace)


def _is_allowed(client: ApiClient, service_account: str, asked: dict[str, Any]) -> bool:
    return access_reviews.is_allowed(client, _user(service_account), asked)


def _user(service_account: str) -> str:
    return f"system:serviceaccount:{OWN}:{service_account}"
