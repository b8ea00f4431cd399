"""The operator's rights as written: no wildcard, nothing it could become another with."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from architecture import tree
from railwright_api import names
from railwright_kube import paths
from railwright_operator import settings
from railwright_operator.wiring import AGENT

Document = dict[str, Any]

DEPLOY = tree.ROOT / "deploy"


def documents(name: str) -> list[Document]:
    """The objects of a file that an administrator applies."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


DOCUMENTS = documents("operator.yaml")
JOBS = "railwright-operator-jobs"
READING = {"get", "list", "watch"}

VERBS = {"get", "list", "watch", "create", "update", "patch", "delete"}
HEARTBEAT_PORT = 8470
OPERATOR = "'system:serviceaccount:railwright-system:railwright-operator'"
OPERATOR_ACCOUNT = f"request.userInfo.username == {OPERATOR}"
OTHER_ACCOUNT = f"request.userInfo.username != {OPERATOR}"
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


def roles() -> list[Document]:
    """Every Role and ClusterRole of the file."""
    return [document for document in DOCUMENTS if document["kind"] in ("Role", "ClusterRole")]


def rights() -> list[tuple[str, str, str]]:
    """(group, resource, verb) of every right."""
    return [
        (group, resource, verb)
        for role in roles()
        for rule in role["rules"]
        for group in rule.get("apiGroups", ())
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def test_rights_are_named_one_by_one() -> None:
    assert rights()
    assert not [right for right in rights() if "*" in "".join(right)]
    assert {verb for _, _, verb in rights()} <= VERBS
    rules = [rule for role in roles() for rule in role["rules"] if "nonResourceURLs" in rule]
    assert [(rule["nonResourceURLs"], rule["verbs"]) for rule in rules] == [(KEY_PATHS, ["get"])]


def test_nothing_is_granted_that_leads_to_more_rights() -> None:
    assert not {resource for _, resource, _ in rights()} & RESOURCES_NEVER


def test_files_are_read_in_own_namespace_and_only_own_changed() -> None:
    """The role reads ConfigMaps of its namespace and writes only the survey's."""
    rules = [
        (role["kind"], role["metadata"].get("namespace"), rule.get("resourceNames"), rule["verbs"])
        for role in roles()
        for rule in role["rules"]
        if "configmaps" in rule.get("resources", ())
    ]
    assert rules == [
        ("Role", "railwright-system", None, ["list", "watch"]),
        ("Role", "railwright-system", [names.PROBES], ["patch"]),
    ]
    (kept,) = [document for document in DOCUMENTS if document["kind"] == "ConfigMap"]
    assert kept["metadata"]["name"] == names.PROBES
    assert kept["metadata"]["labels"] == {names.LABEL_FABRIC: names.SINGLETON}


def test_pods_and_nodes_are_never_changed() -> None:
    changes = {"update", "patch"}
    core = [(resource, verb) for group, resource, verb in rights() if group == ""]
    assert [each for each in core if each[1] in changes] == [("configmaps", "patch")]
    assert {verb for resource, verb in core if resource == "nodes"} == {"list", "watch"}
    assert [verb for resource, verb in core if resource == "pods/binding"] == ["create"]


def test_no_right_is_written_twice() -> None:
    for role in roles():
        seen: set[tuple[str, str]] = set()
        for rule in role["rules"]:
            if "resourceNames" in rule or "nonResourceURLs" in rule:
                continue  # One object of a kind whose others it has less of, or of no kind.
            pairs = {(group, name) for group in rule["apiGroups"] for name in rule["resources"]}
            assert not seen & pairs, role["metadata"]
            seen |= pairs


def test_every_role_is_bound_to_the_operator_alone() -> None:
    applied = [*DOCUMENTS, *documents("all-namespaces.yaml")]
    bindings = [one for one in applied if one["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    assert len(bindings) == len(roles())
    service_account = {
        "kind": "ServiceAccount",
        "name": "railwright-operator",
        "namespace": "railwright-system",
    }
    assert all(binding["subjects"] == [service_account] for binding in bindings)
    bound = {
        (one["roleRef"]["kind"], one["roleRef"]["name"], one["metadata"].get("namespace"))
        for one in bindings
    }
    defined = {
        (one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")) for one in roles()
    }
    assert bound == defined


def test_rights_of_one_namespace_are_those_of_all() -> None:
    (everywhere,) = documents("all-namespaces.yaml")
    (one,) = documents("namespaces/rights.yaml")
    assert (everywhere["kind"], one["kind"]) == ("ClusterRoleBinding", "RoleBinding")
    assert "namespace" not in one["metadata"], "kubectl apply -n names it"
    assert one["roleRef"] == everywhere["roleRef"]
    assert one["subjects"] == everywhere["subjects"]
    assert one["roleRef"]["name"] == JOBS


def test_rights_in_all_namespaces_only_read_what_is_of_users() -> None:
    """So that the rights of single namespaces are all that there are to write in any."""
    (role,) = [
        role
        for role in roles()
        if role["metadata"]["name"] == "railwright-operator" and role["kind"] == "ClusterRole"
    ]
    written = {
        resource
        for rule in role["rules"]
        for resource in rule.get("resources", ())
        if not set(rule["verbs"]) <= READING
    }
    assert written == {
        "queues",
        "fabrics",
        "queues/status",
        "fabrics/status",
        "ledgers",
        "nodehealths",
    }


def test_documentation_names_all_that_the_operator_reads() -> None:
    """``docs/security.md`` has a line for each."""
    page = (
        (tree.ROOT / "docs/security.md")
        .read_text("utf-8")
        .partition("## What the operator reads")[2]
    )
    lines = [line.partition(":")[0] for line in page.splitlines() if line.startswith("- `")]
    named = set(re.findall(r"`([a-z]+)`", " ".join(lines)))
    readable = {
        resource
        for role in roles()
        if role["metadata"]["name"] == "railwright-operator"
        for rule in role["rules"]
        for resource in rule.get("resources", ())
        if READING & set(rule["verbs"])
    }
    assert named == readable


def test_agents_have_no_rights_but_an_operator_token() -> None:
    text = (tree.ROOT / "deploy/agents/agent.yaml").read_text(encoding="utf-8")
    service_account, agents, _ = yaml.safe_load_all(text)
    assert service_account["kind"] == "ServiceAccount"
    assert service_account["metadata"]["name"] == AGENT
    assert service_account["automountServiceAccountToken"] is False
    spec = agents["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == AGENT
    assert spec["automountServiceAccountToken"] is False
    (token,) = [
        source["serviceAccountToken"]
        for volume in spec["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
    ]
    assert token["audience"] == names.GROUP
    (container,) = spec["containers"]
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert not context["allowPrivilegeEscalation"]
    assert not [volume for volume in spec["volumes"] if "hostPath" in volume]
    assert not [each for each in DOCUMENTS if AGENT in str(each.get("subjects"))]


def test_network_policies_admit_jobs_and_agents_only() -> None:
    policies = [
        *(document for document in DOCUMENTS if document["kind"] == "NetworkPolicy"),
        [*yaml.safe_load_all((tree.ROOT / "deploy/agents/agent.yaml").read_text("utf-8"))][-1],
    ]
    for policy in policies:
        assert policy["kind"] == "NetworkPolicy"
        assert policy["metadata"]["namespace"] == "railwright-system"
        assert policy["spec"]["podSelector"] == {"matchLabels": {"app": "railwright-operator"}}
        assert policy["spec"]["policyTypes"] == ["Ingress"]
        (rule,) = policy["spec"]["ingress"]
        assert rule["ports"] == [{"protocol": "TCP", "port": HEARTBEAT_PORT}]
    launchers, agents = (policy["spec"]["ingress"][0]["from"] for policy in policies)
    ours = {"matchExpressions": [{"key": names.LABEL_JOB_UID, "operator": "Exists"}]}
    assert launchers == [{"namespaceSelector": {}, "podSelector": ours}]
    assert [{*peer} for peer in agents] == [{"ipBlock"}]


def test_example_deployment_is_the_one_that_is_named() -> None:
    """By its Lease, its policies, and the addresses for launchers and agents."""
    example = (tree.ROOT / "examples/operator.yaml").read_text(encoding="utf-8")
    deployment, service = yaml.safe_load_all(example)
    name = f"railwright-operator.{deployment['metadata']['namespace']}"
    url = f"http://{name}:{HEARTBEAT_PORT}"
    spec = deployment["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == "railwright-operator"
    assert deployment["spec"]["template"]["metadata"]["labels"] == service["spec"]["selector"]
    assert service["spec"]["selector"] == {"app": "railwright-operator"}
    assert [port["port"] for port in service["spec"]["ports"]] == [HEARTBEAT_PORT]
    (container,) = spec["containers"]
    options = {each["name"]: each.get("value", "the pod's") for each in container["env"]}
    chosen = settings.from_environment(options)
    assert chosen.heartbeat_url == url
    assert chosen.heartbeat_address[1] == HEARTBEAT_PORT
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"heartbeats": HEARTBEAT_PORT, "probes": chosen.probe_address[1]}
    assert chosen.namespace == deployment["metadata"]["namespace"]
    agents = (tree.ROOT / "deploy/agents/agent.yaml").read_text(encoding="utf-8")
    assert f"--operator={url}\n" in agents


def conditional() -> list[Document]:
    """The policies of which a match condition decides, and the validations find the message."""
    return [
        document["spec"]
        for document in documents("operator-limits.yaml")
        if document["kind"] == "ValidatingAdmissionPolicy"
        and "breaks-a-rule" in [each["name"] for each in document["spec"]["matchConditions"]]
    ]


def test_policy_with_rules_as_conditions_ends_in_refusal() -> None:
    """A request that none of the other validations refuses is refused by the last."""
    policies = conditional()
    assert len(policies) == 2
    assert {spec["failurePolicy"] for spec in policies} == {"Fail"}
    assert {spec["validations"][-1]["expression"] for spec in policies} == {"false"}


@pytest.mark.parametrize(
    ("resource", "condition"),
    [
        (
            "pods",
            f"{OTHER_ACCOUNT} ? request.operation == 'CREATE' && '{names.LABEL_JOB_UID}' in "
            "object.metadata.?labels.orValue({}) : "
            "![request.operation == 'DELETE' ? oldObject : object].all(pod, RULES)",
        ),
        ("pods/binding", f"{OPERATOR_ACCOUNT} && !( RULES)"),
    ],
)
def test_condition_repeats_the_rules_of_validations(resource: str, condition: str) -> None:
    """A rule in one of both alone would not be in force, or refuse without its message."""
    (spec,) = (
        spec
        for spec in conditional()
        if spec["matchConstraints"]["resourceRules"][0]["resources"] == [resource]
    )
    expressions = [" ".join(each["expression"].split()) for each in spec["validations"]]
    rules = [each for each in expressions if each not in (OPERATOR_ACCOUNT, "false")]
    assert len(rules) == 4
    joined = " && ".join(f"({rule})" for rule in rules).replace("variables.pod.", "pod.")
    (decides,) = spec["matchConditions"]
    assert " ".join(decides["expression"].split()).replace(joined, "RULES") == condition
