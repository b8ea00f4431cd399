"""Whom the network policies of the installation and of the example of a tenant admit."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import yaml

from architecture import tree
from fixtures.network_policies import End, admits
from railwright_api import names

DEPLOY = tree.ROOT / "deploy"
SYSTEM, TENANT = "railwright-system", "team-a"
HEARTBEATS, REPORTS, RENDEZVOUS = 8470, 8480, 29_500
JOB = {names.LABEL_JOB_UID: "u"}

OPERATOR = End(SYSTEM, {"app": "railwright-operator"})
CONTROLLERS = End(SYSTEM, {"app": "railwright-controllers"})
AGENT = End(SYSTEM, {"app": "railwright-agent"}, address="192.0.2.7", on_host=True)
RANK = End(TENANT, JOB)
OTHERS_RANK = End("team-b", JOB)
STRANGER = End("team-b", {"app": "railwright-operator"})
NEIGHBOUR = End(TENANT, {"app": "notebook"})


@functools.cache
def policies() -> list[Any]:
    """All that the manifests and the example of a tenant have."""
    files = [tree.ROOT / "examples/tenant.yaml"]
    files += (file for part in ("agents", "rights") for file in DEPLOY.glob(f"{part}/*.yaml"))
    documents = (
        document
        for file in files
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    )
    return [each for each in documents if each and each.get("kind") == "NetworkPolicy"]


@pytest.mark.parametrize(
    ("source", "target", "port"),
    [
        (RANK, OPERATOR, HEARTBEATS),
        (OTHERS_RANK, OPERATOR, HEARTBEATS),
        (AGENT, CONTROLLERS, REPORTS),
        (RANK, RANK, RENDEZVOUS),
        (NEIGHBOUR, RANK, RENDEZVOUS),
    ],
)
def test_policies_admit_what_the_product_needs(source: End, target: End, port: int) -> None:
    assert admits(policies(), source, target, port)


@pytest.mark.parametrize("source", [STRANGER, NEIGHBOUR, OPERATOR, CONTROLLERS, AGENT])
@pytest.mark.parametrize("port", [HEARTBEATS, 8471, 8472, 22])
def test_operator_admits_nobody_but_jobs(source: End, port: int) -> None:
    assert not admits(policies(), source, OPERATOR, port)


@pytest.mark.parametrize("source", [RANK, STRANGER, NEIGHBOUR, OPERATOR])
@pytest.mark.parametrize("port", [REPORTS, 8481, 8482, 22])
def test_controllers_admit_nobody_but_agents(source: End, port: int) -> None:
    assert not admits(policies(), source, CONTROLLERS, port)


@pytest.mark.parametrize("port", [8471, 8472, REPORTS])
def test_job_reaches_no_port_but_that_of_heartbeats(port: int) -> None:
    assert not admits(policies(), RANK, OPERATOR, port)


@pytest.mark.parametrize("source", [OTHERS_RANK, STRANGER, OPERATOR, AGENT])
def test_other_namespaces_reach_no_rank_of_a_tenant(source: End) -> None:
    assert not admits(policies(), source, RANK, RENDEZVOUS)


def policy(*rules: Any, selector: Any = None) -> Any:
    """A policy of the namespace ``n`` with these rules."""
    spec = {"podSelector": selector or {}, "policyTypes": ["Ingress"], "ingress": [*rules]}
    return {"metadata": {"namespace": "n"}, "spec": spec}


@pytest.mark.parametrize(
    ("rule", "is_admitted"),
    [
        ({}, True),
        ({"from": []}, True),
        ({"from": [{"podSelector": {}}]}, False),
        ({"from": [{"namespaceSelector": {}}]}, True),
        ({"from": [{"namespaceSelector": {"matchLabels": {"team": "b"}}}]}, False),
        ({"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}, True),
        ({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}]}, False),
        ({"ports": [{"port": 80}]}, True),
        ({"ports": [{"port": 81}]}, False),
        ({"ports": [{"port": 70, "endPort": 90}]}, True),
        ({"ports": [{"port": "web"}]}, True),
        ({"ports": [{"port": 80, "protocol": "UDP"}]}, False),
    ],
)
def test_rule_is_read_as_its_reference_says(rule: Any, is_admitted: bool) -> None:
    """A pod of a namespace with the label team=a, at 10.1.2.3, connects to port 80."""
    source = End("m", {"app": "x"}, address="10.1.2.3", namespace_labels={"team": "a"})
    target = End("n", ports={"web": 80})
    assert admits([policy(rule)], source, target, 80) is is_admitted


def test_pod_that_no_policy_selects_admits_all() -> None:
    source, target = End("m"), End("n", {"app": "x"})
    chosen = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]}
    other = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}
    assert not admits([policy(selector=chosen)], source, target, 80)
    assert admits([policy(selector=other)], source, target, 80)
    assert admits([policy(selector=chosen)], source, End("m", {"app": "x"}), 80)
