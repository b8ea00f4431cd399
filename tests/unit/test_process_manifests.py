"""The manifests of the processes agree with their options, their accounts and each other."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from architecture import tree
from railwright_controllers import settings as controllers_settings
from railwright_operator import settings

Document = dict[str, Any]

DEPLOY = tree.ROOT / "deploy"
SYSTEM = "railwright-system"
SERVICE_ACCOUNTS = ("railwright-operator", "railwright-controllers")
HEARTBEAT_PORT, AGENT_PORT = 8470, 8480


def documents(name: str) -> list[Document]:
    """The objects of a file that an administrator applies."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def example(service_account: str) -> tuple[Document, Document]:
    """The Deployment and the Service of this name."""
    name = service_account.removeprefix("railwright-")
    deployment, service, *_ = documents(f"processes/{name}.yaml")
    assert (deployment["kind"], service["kind"]) == ("Deployment", "Service")
    assert {each["metadata"]["name"] for each in (deployment, service)} == {service_account}
    return deployment, service


OF_THE_POD = "192.0.2.7"
"""In place of what the kubelet fills in: the pod's name and its address."""


def options(container: Document) -> dict[str, str]:
    """The environment of a container of the example."""
    stated = {each["name"]: each.get("value", OF_THE_POD) for each in container["env"]}
    return stated | {"RAILWRIGHT_NAMESPACE": SYSTEM}


@pytest.mark.parametrize(
    ("service_account", "port"), [*zip(SERVICE_ACCOUNTS, (HEARTBEAT_PORT, AGENT_PORT), strict=True)]
)
def test_example_deployment_is_the_one_that_is_named(service_account: str, port: int) -> None:
    """By its account, its network policy, and the address of its Service."""
    deployment, service = example(service_account)
    spec = deployment["spec"]["template"]["spec"]
    assert deployment["metadata"]["namespace"] == service["metadata"]["namespace"] == SYSTEM
    assert spec["serviceAccountName"] == service_account
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert deployment["spec"]["template"]["metadata"]["labels"] == {"app": service_account}
    assert deployment["spec"]["selector"]["matchLabels"] == {"app": service_account}
    assert service["spec"]["selector"] == {"app": service_account}
    assert [each["port"] for each in service["spec"]["ports"]] == [port]
    (container,) = spec["containers"]
    assert f"/{service_account}:" in container["image"]
    assert "command" not in container
    context = container["securityContext"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["readOnlyRootFilesystem"] is True
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    of_pods = service["spec"]["ports"][0]["targetPort"]
    assert ports == {of_pods: port, "probes": port + 1, "metrics": port + 2}
    assert "RAILWRIGHT_POD_IP" in options(container)


def test_example_has_the_addresses_of_launchers_and_agents() -> None:
    operator, controllers = (
        options(example(service_account)[0]["spec"]["template"]["spec"]["containers"][0])
        for service_account in SERVICE_ACCOUNTS
    )
    chosen = settings.from_environment(operator)
    assert chosen.url == f"https://{SERVICE_ACCOUNTS[0]}.{SYSTEM}:{HEARTBEAT_PORT}"
    assert chosen.address[1] == HEARTBEAT_PORT
    assert chosen.reached_at == f"{OF_THE_POD}:{HEARTBEAT_PORT}"
    others = controllers_settings.from_environment(controllers)
    assert others.address[1] == AGENT_PORT
    assert others.reached_at == f"{OF_THE_POD}:{AGENT_PORT}"
    assert chosen.namespace == others.namespace == SYSTEM
    assert others.url == f"https://{SERVICE_ACCOUNTS[1]}.{SYSTEM}:{AGENT_PORT}"
    agents = (DEPLOY / "agents/agent.yaml").read_text(encoding="utf-8")
    assert f"--controllers={others.url}\n" in agents


@pytest.mark.parametrize("service_account", SERVICE_ACCOUNTS)
def test_example_of_scrapes_has_the_names_of_the_manifests(service_account: str) -> None:
    text = (tree.ROOT / "examples/prometheus.yaml").read_text(encoding="utf-8")
    (scrape,) = (
        each
        for each in yaml.safe_load(text)["scrape_configs"]
        if each["job_name"] == service_account
    )
    deployment, service = example(service_account)
    metadata = service["metadata"]
    assert scrape["tls_config"]["server_name"] == f"{metadata['name']}.{metadata['namespace']}"
    assert scrape["scheme"] == "https"
    (pods,) = scrape["kubernetes_sd_configs"]
    assert pods["namespaces"] == {"names": [SYSTEM]}
    assert pods["selectors"] == [{"role": "pod", "label": f"app={service_account}"}]
    keep = scrape["relabel_configs"][0]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert keep["regex"] in [port["name"] for port in container["ports"]]
