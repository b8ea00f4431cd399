"""The rights of the operator and the controllers as written: no wildcard, and nothing that leads to
more rights."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from architecture import tree
from railwright_api import names
from railwright_controllers import wiring as controllers_wiring
from railwright_controllers.__main__ import LEASE as CONTROLLERS_LEASE
from railwright_controllers.wiring import AGENT
from railwright_kube import paths
from railwright_kube.access import PATH
from railwright_operator import wiring
from railwright_operator.__main__ import LEASE as OPERATOR_LEASE
from railwright_process import tls

Document = dict[str, Any]
Right = tuple[str, str, str]

DEPLOY = tree.ROOT / "deploy"
SYSTEM = "railwright-system"


def documents(name: str) -> list[Document]:
    """The objects of a file that an administrator applies."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


SERVICE_ACCOUNTS = ("railwright-operator", "railwright-controllers")
AUTHORITIES = dict(
    zip(SERVICE_ACCOUNTS, (wiring.AUTHORITY, controllers_wiring.AUTHORITY), strict=True)
)
LEASES = dict(zip(SERVICE_ACCOUNTS, (OPERATOR_LEASE, CONTROLLERS_LEASE), strict=True))
DOCUMENTS = dict(
    zip(
        SERVICE_ACCOUNTS,
        map(documents, ("rights/operator.yaml", "rights/controllers.yaml")),
        strict=True,
    )
)
"""The objects of each account."""

EACH_SERVICE_ACCOUNT = pytest.mark.parametrize("service_account", SERVICE_ACCOUNTS)
JOBS = "railwright-operator-jobs"
READING = {"get", "list", "watch"}
REVIEWS = {
    ("authentication.k8s.io", "tokenreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
}
"""Questions: the API server stores none."""

VERBS = {"get", "list", "watch", "create", "update", "patch", "delete"}
HEARTBEAT_PORT, AGENT_PORT = 8470, 8480
KEY_PATHS = [paths.SIGNING_KEYS]
RESOURCES_NEVER = {
    "secrets",
    "namespaces",
    "serviceaccounts",
    "serviceaccounts/token",
    "pods/exec",
    "pods/attach",
    "pods/portforward",
    "pods/ephemeralcontainers",
    "nodes/proxy",
    "roles",
    "clusterroles",
    "rolebindings",
    "clusterrolebindings",
    "customresourcedefinitions",
}


def roles(service_account: str) -> list[Document]:
    """Every Role and ClusterRole of an account's file."""
    return [each for each in DOCUMENTS[service_account] if each["kind"] in ("Role", "ClusterRole")]


def rules(service_account: str) -> list[tuple[str, Document]]:
    """The rules of these roles, each with the namespace of its role; empty for all namespaces."""
    return [
        (role["metadata"].get("namespace", ""), rule)
        for role in roles(service_account)
        for rule in role["rules"]
    ]


def rights(service_account: str) -> list[Right]:
    """(group, resource, verb) of every right."""
    return [
        (group, resource, verb)
        for _, rule in rules(service_account)
        for group in rule.get("apiGroups", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def verbs(service_account: str, resource: str) -> set[str]:
    """What an account may do to a resource, in any namespace."""
    return {verb for _, found, verb in rights(service_account) if found == resource}


@EACH_SERVICE_ACCOUNT
def test_rights_are_named_one_by_one(service_account: str) -> None:
    assert rights(service_account)
    assert not [right for right in rights(service_account) if "*" in "".join(right)]
    assert {verb for _, _, verb in rights(service_account)} <= VERBS
    others = [rule for _, rule in rules(service_account) if "nonResourceURLs" in rule]
    assert [(rule["nonResourceURLs"], rule["verbs"]) for rule in others] == [(KEY_PATHS, ["get"])]


@EACH_SERVICE_ACCOUNT
def test_nothing_is_granted_that_leads_to_more_rights(service_account: str) -> None:
    granted = {resource for _, resource, _ in rights(service_account)} - {"secrets"}
    assert not granted & RESOURCES_NEVER


@EACH_SERVICE_ACCOUNT
def test_secret_is_its_own_certificate_authority(service_account: str) -> None:
    found = [
        (namespace, rule["resourceNames"], rule["verbs"])
        for namespace, rule in rules(service_account)
        if "secrets" in rule.get("resources", ())
    ]
    assert found == [(SYSTEM, [AUTHORITIES[service_account]], ["get", "update"])]
    (secret,) = (each for each in DOCUMENTS[service_account] if each["kind"] == "Secret")
    assert secret["metadata"] == {"name": AUTHORITIES[service_account], "namespace": SYSTEM}
    # What the leader stores stays when the manifests are applied again.
    assert not {"data", "stringData"} & secret.keys()


def test_files_are_read_in_own_namespace_and_only_own_changed() -> None:
    """The controllers read ConfigMaps of their namespace and write only the survey's; the operator
    has no right to any."""
    assert not verbs("railwright-operator", "configmaps")
    found = [
        (namespace, rule.get("resourceNames"), rule["verbs"])
        for namespace, rule in rules("railwright-controllers")
        if "configmaps" in rule.get("resources", ())
    ]
    assert found == [(SYSTEM, None, ["list", "watch"]), (SYSTEM, [names.PROBES], ["patch"])]
    (kept,) = [
        document
        for documents in DOCUMENTS.values()
        for document in documents
        if document["kind"] == "ConfigMap"
    ]
    assert kept["metadata"]["name"] == names.PROBES
    assert kept["metadata"]["labels"] == {names.LABEL_FABRIC: names.SINGLETON}


@EACH_SERVICE_ACCOUNT
def test_lease_is_that_of_the_service_account_alone(service_account: str) -> None:
    """Neither process can take the Lease of the other."""
    found = [
        (rule.get("resourceNames"), rule["verbs"])
        for namespace, rule in rules(service_account)
        if "leases" in rule.get("resources", ()) and namespace == SYSTEM
    ]
    assert found == [(None, ["create"]), ([LEASES[service_account]], ["get", "update"])]


@EACH_SERVICE_ACCOUNT
def test_pods_and_nodes_are_never_changed(service_account: str) -> None:
    changes = {"update", "patch"}
    core = [(resource, verb) for group, resource, verb in rights(service_account) if group == ""]
    assert {resource for resource, verb in core if verb in changes} <= {"configmaps", "secrets"}
    assert verbs(service_account, "nodes") == {"list", "watch"}
    if service_account == "railwright-operator":
        assert verbs(service_account, "pods/binding") == {"create"}
    else:
        assert verbs(service_account, "pods") == {"list", "watch"}


def test_no_kind_is_written_by_both_service_accounts() -> None:
    """The operator writes what it decides, the controllers write what they discover."""
    written = [
        {
            (group, resource)
            for group, resource, verb in rights(service_account)
            if verb not in READING
        }
        - {("coordination.k8s.io", "leases"), ("", "secrets")}
        - REVIEWS
        for service_account in SERVICE_ACCOUNTS
    ]
    assert not set.intersection(*written)
    assert {resource for group, resource in written[1] if group == names.GROUP} == {
        "fabrics",
        "fabrics/status",
        "nodehealths",
    }


def test_training_jobs_are_created_by_users_alone() -> None:
    assert verbs("railwright-operator", "trainingjobs") == {"get", "list", "watch", "delete"}
    assert not verbs("railwright-controllers", "trainingjobs")


@EACH_SERVICE_ACCOUNT
def test_no_right_is_written_twice(service_account: str) -> None:
    for role in roles(service_account):
        seen: set[tuple[str, str]] = set()
        for rule in role["rules"]:
            if "resourceNames" in rule or "nonResourceURLs" in rule:
                continue  # One object of a kind whose others it has less of, or of no kind.
            pairs = {(group, name) for group in rule["apiGroups"] for name in rule["resources"]}
            assert not seen & pairs, role["metadata"]
            seen |= pairs


@EACH_SERVICE_ACCOUNT
def test_every_role_is_bound_to_its_service_account_alone(service_account: str) -> None:
    applied = DOCUMENTS[service_account]
    if service_account == "railwright-operator":
        applied = [*applied, *documents("rights/all-namespaces.yaml")]
    bindings = [one for one in applied if one["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    assert len(bindings) == len(roles(service_account))
    subject = {"kind": "ServiceAccount", "name": service_account, "namespace": SYSTEM}
    assert all(binding["subjects"] == [subject] for binding in bindings)
    bound = {
        (one["roleRef"]["kind"], one["roleRef"]["name"], one["metadata"].get("namespace"))
        for one in bindings
    }
    defined = {
        (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace"))
        for one in roles(service_account)
    }
    assert bound == defined


def test_rights_of_one_namespace_are_those_of_all() -> None:
    (everywhere,) = documents("rights/all-namespaces.yaml")
    (one,) = documents("namespaces/rights.yaml")
    assert (everywhere["kind"], one["kind"]) == ("ClusterRoleBinding", "RoleBinding")
    assert "namespace" not in one["metadata"], "kubectl apply -n names it"
    assert one["roleRef"] == everywhere["roleRef"]
    assert one["subjects"] == everywhere["subjects"]
    assert one["roleRef"]["name"] == JOBS


def test_rights_in_all_namespaces_only_read_what_is_of_users() -> None:
    """So that the rights of single namespaces are all that there are to write in any."""
    written = {
        (service_account, resource)
        for service_account in SERVICE_ACCOUNTS
        for role in roles(service_account)
        if role["metadata"]["name"] == service_account and role["kind"] == "ClusterRole"
        for rule in role["rules"]
        for resource in rule.get("resources", ())
        if not set(rule["verbs"]) <= READING
    }
    questions = {(name, each) for name in SERVICE_ACCOUNTS for _, each in REVIEWS}
    assert written - questions == {
        ("railwright-operator", "queues"),
        ("railwright-operator", "queues/status"),
        ("railwright-operator", "ledgers"),
        ("railwright-controllers", "fabrics"),
        ("railwright-controllers", "fabrics/status"),
        ("railwright-controllers", "nodehealths"),
    }


@EACH_SERVICE_ACCOUNT
def test_documentation_names_all_that_each_service_account_reads(service_account: str) -> None:
    """``docs/security.md`` has a line for each."""
    page = (tree.ROOT / "docs/security.md").read_text("utf-8")
    verb = "reads" if service_account == "railwright-operator" else "read"
    heading = f"## What the {service_account.removeprefix('railwright-')} {verb}"
    section = page.partition(f"{heading}\n")[2].partition("\n## ")[0]
    lines = [line.partition(":")[0] for line in section.splitlines() if line.startswith("- `")]
    named = set(re.findall(r"`([a-z]+)`", " ".join(lines)))
    readable = {
        resource
        for role in roles(service_account)
        if role["metadata"]["name"] == service_account
        for rule in role["rules"]
        for resource in rule.get("resources", ())
        if READING & set(rule["verbs"])
    }
    assert named == readable


@EACH_SERVICE_ACCOUNT
def test_questions_are_about_tokens_and_rights(service_account: str) -> None:
    """So a process learns who asks for its metrics, and gains no right by it."""
    found = {each for each in rights(service_account) if each[0].endswith("tion.k8s.io")}
    leases = {each for each in found if each[1] == "leases"}
    assert found - leases == {(group, name, "create") for group, name in REVIEWS}


def test_account_of_metrics_may_read_them_alone() -> None:
    service_account, role, binding, secret = documents("rights/metrics.yaml")
    name = service_account["metadata"]["name"]
    assert service_account["automountServiceAccountToken"] is False
    assert role["rules"] == [{"nonResourceURLs": [PATH], "verbs": ["get"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"] == name
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": SYSTEM}]
    assert secret["type"] == "kubernetes.io/service-account-token"
    assert secret["metadata"]["annotations"] == {"kubernetes.io/service-account.name": name}
    assert "data" not in secret


def test_agents_have_no_rights_but_a_token() -> None:
    text = (tree.ROOT / "deploy/agents/agent.yaml").read_text(encoding="utf-8")
    service_account, agents, _ = yaml.safe_load_all(text)
    assert service_account["kind"] == "ServiceAccount"
    assert service_account["metadata"]["name"] == AGENT
    assert service_account["automountServiceAccountToken"] is False
    spec = agents["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == AGENT
    assert spec["automountServiceAccountToken"] is False
    token, trusted = (
        source
        for each in spec["volumes"]
        for source in each.get("projected", {}).get("sources", ())
    )
    assert token["serviceAccountToken"]["audience"] == names.GROUP
    items = [{"key": tls.TRUSTED, "path": tls.TRUSTED}]
    assert trusted == {"secret": {"name": AUTHORITIES["railwright-controllers"], "items": items}}
    (container,) = spec["containers"]
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert not context["allowPrivilegeEscalation"]
    assert not [volume for volume in spec["volumes"] if "hostPath" in volume]
    bound = [each for documents in DOCUMENTS.values() for each in documents if "subjects" in each]
    assert bound
    assert not [each for each in bound if AGENT in str(each["subjects"])]


def test_network_policies_admit_jobs_and_agents_only() -> None:
    """Jobs reach the operator alone, and agents the controllers alone, on one port each."""
    agents = documents("agents/agent.yaml")[-1]
    policies = [
        document
        for document in (*DOCUMENTS[SERVICE_ACCOUNTS[0]], *DOCUMENTS[SERVICE_ACCOUNTS[1]], agents)
        if document["kind"] == "NetworkPolicy"
    ]
    ours = {"matchExpressions": [{"key": names.LABEL_JOB_UID, "operator": "Exists"}]}
    jobs = {"namespaceSelector": {}, "podSelector": ours}
    address = agents["spec"]["ingress"][0]["from"][0]
    assert {*address} == {"ipBlock"}
    found = [
        (
            policy["metadata"]["namespace"],
            policy["spec"]["podSelector"]["matchLabels"],
            policy["spec"]["policyTypes"],
            [(rule["from"], rule["ports"]) for rule in policy["spec"]["ingress"]],
        )
        for policy in policies
    ]
    operator, controllers = ({"app": service_account} for service_account in SERVICE_ACCOUNTS)
    ports = [[{"protocol": "TCP", "port": port}] for port in (HEARTBEAT_PORT, AGENT_PORT)]
    assert found == [
        (SYSTEM, operator, ["Ingress"], [([jobs], ports[0])]),
        (SYSTEM, controllers, ["Ingress"], []),
        (SYSTEM, controllers, ["Ingress"], [([address], ports[1])]),
    ]


@EACH_SERVICE_ACCOUNT
def test_renewals_of_the_lease_wait_behind_nothing(service_account: str) -> None:
    (spec,) = (
        each["spec"]
        for each in DOCUMENTS[service_account]
        if each["kind"] == "FlowSchema" and each["metadata"]["name"] == f"{service_account}-lease"
    )
    assert spec["priorityLevelConfiguration"] == {"name": "leader-election"}
    (rule,) = spec["rules"]
    subject = {"name": service_account, "namespace": SYSTEM}
    assert rule["subjects"] == [{"kind": "ServiceAccount", "serviceAccount": subject}]
    (resources,) = rule["resourceRules"]
    assert (resources["resources"], resources["namespaces"]) == (["leases"], [SYSTEM])
    assert {*resources["verbs"]} == {"get", "create", "update"}
