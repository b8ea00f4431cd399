"""The chart: the manifests of deploy/ and crds/ with the values of a release."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from fixtures import scraped_processes
from integration.chart import KIND, REGISTRY, SYSTEM, keyed, of_kind, rendered
from railwright_dashboards import rules
from railwright_testbed import ControlPlane, TestbedError, helm

ROOT = Path(__file__).resolve().parents[2]
CERTIFICATE = "--api-versions=cert-manager.io/v1/Certificate"


def test_chart_is_well_formed() -> None:
    helm.run("lint", "--strict", str(helm.CHART), REGISTRY)


def test_release_in_any_namespace_is_accepted(control_plane: ControlPlane, namespace: str) -> None:
    """The policies, accounts and addresses follow the namespace. PodMonitors are of a kind that
    this cluster does not have."""
    options = ("--set=namespaces={default}", "--set=agent.nodeCidrs={10.0.0.0/16,fd00::/8}")
    release = rendered(*options, namespace=namespace)
    assert SYSTEM not in yaml.safe_dump_all(release.values())
    objects = [each for (kind, _, _), each in release.items() if kind != KIND]
    # Kinds that exist are not changed for the other tests.
    written = yaml.safe_dump_all(objects)
    dry = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
    answer = control_plane.kubectl(*dry, stdin=written)
    assert answer.count("(server dry run)") == len(objects)


def test_values_change_the_processes() -> None:
    options = (
        "--set=images.registry=registry.test/team",
        "--set=images.tag=1.2.3",
        "--set=images.pullSecrets[0].name=key",
        "--set=operator.replicas=3",
        "--set=operator.pod.nodeSelector.pool=system",
        "--set=controllers.resources.limits.memory=2Gi",
    )
    release = rendered(*options)
    workloads = of_kind(release, "Deployment") | of_kind(release, "DaemonSet")
    specs = {name: each["spec"]["template"]["spec"] for name, each in workloads.items()}
    for name, spec in specs.items():
        assert spec["containers"][0]["image"] == f"registry.test/team/{name}:1.2.3"
        assert spec["imagePullSecrets"] == [{"name": "key"}]
    operator = specs["railwright-operator"]
    launcher = {each["name"]: each.get("value") for each in operator["containers"][0]["env"]}
    image = launcher["RAILWRIGHT_LAUNCHER_IMAGE"]
    assert image == "registry.test/team/railwright-launcher:1.2.3"
    assert operator["nodeSelector"] == {"pool": "system"}
    assert "nodeSelector" not in specs["railwright-controllers"]
    assert workloads["railwright-operator"]["spec"]["replicas"] == 3
    limits = specs["railwright-controllers"]["containers"][0]["resources"]["limits"]
    assert limits == {"memory": "2Gi"}


def test_pods_have_the_environment_and_labels_of_values() -> None:
    """What the manifests have of the same name gives way, but for the label of the selector."""
    options = (
        '--set-json=operator.env=[{"name":"RAILWRIGHT_HEARTBEAT_URL","value":"https://mesh"}]',
        '--set-json=operator.labels={"team":"a","app":"other"}',
        "--set=operator.annotations.team=a",
        "--set=operator.pod.securityContext.fsGroup=2000",
        "--set=agent.args={--benchmark}",
        '--set-json=agent.pod.nodeSelector={"gpu":"true"}',
        '--set-json=agent.volumes=[{"name":"site","hostPath":{"path":"/etc/site"}}]',
        '--set-json=agent.volumeMounts=[{"name":"site","mountPath":"/etc/site"}]',
    )
    release = rendered(*options)
    template = of_kind(release, "Deployment")["railwright-operator"]["spec"]["template"]
    assert template["metadata"]["labels"] == {"app": "railwright-operator", "team": "a"}
    assert template["metadata"]["annotations"] == {"team": "a"}
    security = template["spec"]["securityContext"]
    assert (security["fsGroup"], security["runAsNonRoot"]) == (2000, True)
    environment = [each["name"] for each in template["spec"]["containers"][0]["env"]]
    assert len(environment) == len({*environment}) > 1
    (chosen,) = (
        each["value"]
        for each in template["spec"]["containers"][0]["env"]
        if each["name"] == "RAILWRIGHT_HEARTBEAT_URL"
    )
    assert chosen == "https://mesh"
    agent = of_kind(release, "DaemonSet")["railwright-agent"]["spec"]["template"]["spec"]
    assert agent["nodeSelector"] == {"kubernetes.io/os": "linux", "gpu": "true"}
    assert agent["containers"][0]["args"][-1] == "--benchmark"
    assert len(agent["containers"][0]["args"]) > 1
    for its in (agent["volumes"], agent["containers"][0]["volumeMounts"]):
        assert (its[-1]["name"], len(its)) == ("site", 3)


def test_all_objects_have_the_common_labels() -> None:
    kinds = [
        f"--api-versions=monitoring.coreos.com/v1/{k}" for k in ("PodMonitor", "PrometheusRule")
    ]
    kinds += [CERTIFICATE, "--set=certManager.enabled=true", "--set=users.positions={a}"]
    labels = ("--set=commonLabels.team=blue", "--set=commonLabels.app=other", *kinds)
    objects = rendered(*labels, "--set=alerts.labels.team=red")
    alone = rendered("--set=alerts.labels.team=red", *kinds)
    assert objects.keys() == alone.keys()
    for key, each in objects.items():
        expected = "red" if key[0] == "PrometheusRule" else "blue"
        assert each["metadata"]["labels"]["team"] == expected, key
    workloads = of_kind(objects, "Deployment") | of_kind(objects, "DaemonSet")
    for name, each in workloads.items():
        labels_of_pods = each["spec"]["template"]["metadata"]["labels"]
        # What selects the pods is not to be replaced.
        assert (labels_of_pods["team"], labels_of_pods["app"]) == ("blue", name)


def test_kinds_can_be_left_to_others() -> None:
    with_kinds, without = rendered(), rendered("--set=crds.enabled=false")
    kinds = {key for key in with_kinds if key[0] == "CustomResourceDefinition"}
    assert len(kinds) == 7
    assert without.keys() == with_kinds.keys() - kinds


def test_digests_pin_images_of_pods_and_launchers() -> None:
    first, second = f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"
    digests = (f"--set=images.digests.operator={first}", f"--set=images.digests.launcher={second}")
    release = rendered(*digests, "--set=images.tag=1.2.3")
    deployments = of_kind(release, "Deployment")
    containers = {
        name: each["spec"]["template"]["spec"]["containers"][0]
        for name, each in deployments.items()
    }
    operator = containers["railwright-operator"]
    assert operator["image"] == f"example.com/railwright-operator:1.2.3@{first}"
    launcher = {each["name"]: each.get("value") for each in operator["env"]}
    assert launcher["RAILWRIGHT_LAUNCHER_IMAGE"] == (
        f"example.com/railwright-launcher:1.2.3@{second}"
    )
    controllers = containers["railwright-controllers"]
    assert controllers["image"] == "example.com/railwright-controllers:1.2.3"


def test_version_of_a_build_is_a_valid_tag_and_label(tmp_path: Path) -> None:
    """Semantic versions may have a plus sign; names of images and labels may not."""
    copied = shutil.copytree(helm.CHART, tmp_path / "chart")
    file = copied / "Chart.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"appVersion": "1.2.3+4"}))
    text = helm.run("template", "railwright", str(copied), REGISTRY)
    operator = of_kind(keyed(yaml.safe_load_all(text)), "Deployment")["railwright-operator"]
    (container,) = operator["spec"]["template"]["spec"]["containers"]
    assert container["image"].endswith(":1.2.3_4")
    assert operator["metadata"]["labels"]["app.kubernetes.io/version"] == "1.2.3_4"


@pytest.mark.parametrize("name", ["2024", "no", "1e5", "null"])
def test_namespace_may_look_like_another_type(name: str) -> None:
    """One for jobs, and its own."""
    with_jobs = rendered(f"--set-json=namespaces={json.dumps([name])}")
    assert ("RoleBinding", name, "railwright-operator-jobs") in with_jobs
    assert ("Deployment", name, "railwright-operator") in rendered(namespace=name)


@pytest.mark.parametrize("name", ["kube-system", SYSTEM])
def test_namespace_without_jobs_is_refused(name: str) -> None:
    with pytest.raises(TestbedError, match=f"namespaces has {name}: no job may run there"):
        rendered(f"--set=namespaces={{{name}}}")


def test_named_namespaces_replace_the_right_in_all() -> None:
    everywhere, some = rendered(), rendered("--set=namespaces={team-a,team-b}")
    role = "railwright-operator-jobs"
    assert ("ClusterRoleBinding", "", role) in everywhere
    assert ("ClusterRoleBinding", "", role) not in some
    bound = {key for key in some if key[0] == "RoleBinding" and key[2] == role}
    assert bound == {("RoleBinding", team, role) for team in ("team-a", "team-b")}
    for key in bound:
        assert some[key]["subjects"][0]["namespace"] == SYSTEM


def test_groups_of_users_get_roles_of_the_cluster() -> None:
    groups = '["system:authenticated","no"]'
    release = rendered(f"--set-json=users.clusterView={groups}", "--set=users.positions={a}")
    roles, usual = of_kind(release, "ClusterRole"), of_kind(rendered(), "ClusterRoleBinding")
    bound = {
        each["roleRef"]["name"]: [subject["name"] for subject in each["subjects"]]
        for name, each in of_kind(release, "ClusterRoleBinding").items()
        if name not in usual
    }
    assert bound == {
        "railwright-cluster-view": ["system:authenticated", "no"],
        "railwright-positions": ["a"],
    }
    assert bound.keys() <= roles.keys()


def test_agents_and_policies_can_be_left_out() -> None:
    without = rendered("--set=agent.enabled=false", "--set=networkPolicy.enabled=false")
    assert not of_kind(without, "DaemonSet")
    assert not of_kind(without, "NetworkPolicy")
    assert "railwright-agent" not in of_kind(without, "ServiceAccount")


def test_network_policies_admit_named_clients() -> None:
    jobs = "--set=networkPolicy.jobsFrom[0].ipBlock.cidr=10.1.0.0/16"
    peer = '--set-json=networkPolicy.metricsFrom=[{"podSelector":{"matchLabels":{"a":"b"}}}]'
    policies = of_kind(rendered(jobs, peer, "--set=agent.nodeCidrs={10.0.0.0/16}"), "NetworkPolicy")
    ingress = {name: each["spec"]["ingress"] for name, each in policies.items()}
    metrics = {
        "from": [{"podSelector": {"matchLabels": {"a": "b"}}}],
        "ports": [{"protocol": "TCP", "port": "metrics"}],
    }
    assert ingress["railwright-controllers"] == [metrics]
    assert ingress["railwright-operator"][1:] == [metrics]
    assert ingress["railwright-operator"][0]["from"][1:] == [{"ipBlock": {"cidr": "10.1.0.0/16"}}]
    (agents,) = ingress["railwright-agents"]
    assert agents["from"] == [{"ipBlock": {"cidr": "10.0.0.0/16"}}]
    (anyone,) = of_kind(rendered(), "NetworkPolicy")["railwright-agents"]["spec"]["ingress"]
    assert anyone["from"] == []


def test_alerts_need_their_kind() -> None:
    has_kind = (
        "--api-versions=monitoring.coreos.com/v1/PrometheusRule",
        "--set=alerts.labels.release=prom",
    )
    (rule,) = of_kind(rendered(*has_kind), "PrometheusRule").values()
    assert rule["spec"] == yaml.safe_load((ROOT / "dashboards/rules.yaml").read_text())
    assert rule["metadata"]["labels"] == {"release": "prom"}
    assert not of_kind(rendered(), "PrometheusRule")
    assert not of_kind(rendered(has_kind[0], "--set=alerts.enabled=false"), "PrometheusRule")
    without_agents = (*has_kind, "--set=agent.enabled=false")
    (rule,) = of_kind(rendered(*without_agents), "PrometheusRule").values()
    left = {each.get("alert") for group in rule["spec"]["groups"] for each in group["rules"]} - {
        None
    }
    agents = {"RailwrightAgentsSilent", "RailwrightAgentsMissing"}
    assert {alert.name for alert in rules.ALERTS} - left == agents


def test_certificates_may_have_an_issuer_of_the_site() -> None:
    """A common name has 64 characters at most."""
    issuer = ("--set=certManager.issuerRef.name=ours", "--set=certManager.issuerRef.kind=Both")
    release = rendered("--set=certManager.enabled=true", CERTIFICATE, *issuer, namespace="n" * 63)
    assert not of_kind(release, "Issuer")
    for name, each in of_kind(release, "Certificate").items():
        assert each["spec"]["issuerRef"] == {"name": "ours", "kind": "Both"}
        assert each["spec"]["commonName"] == f"railwright {name}.{'n' * 63}"[:64]
        assert ("Secret", "n" * 63, each["spec"]["secretName"]) in release


@pytest.mark.parametrize("end", ["", "/"])
def test_runbooks_have_the_url_of_the_site(end: str) -> None:
    """They are pages of the site that ``make docs`` builds, with a folder for each."""
    kind = "--api-versions=monitoring.coreos.com/v1/PrometheusRule"
    url = "https://docs.example.com/railwright"
    release = rendered(kind, f"--set=alerts.docsURL={url}{end}")
    (rule,) = of_kind(release, "PrometheusRule").values()
    every = [each for group in rule["spec"]["groups"] for each in group["rules"]]
    alerts = [each for each in every if "alert" in each]
    assert {each["alert"] for each in alerts} == {alert.name for alert in rules.ALERTS}
    for each in alerts:
        found = each["annotations"].pop("runbook_url")
        assert found == f"{url}/runbooks/{each['alert']}/"
        assert each["annotations"]["runbook"] == f"docs/runbooks/{each['alert']}.md"
    assert rule["spec"] == yaml.safe_load((ROOT / "dashboards/rules.yaml").read_text())


def test_dashboards_are_config_maps_of_the_sidecar(control_plane: ControlPlane) -> None:
    """The chart and the kustomization of dashboards/ make the same ones."""
    release = rendered("--set=dashboards.annotations.grafana_folder=Railwright")
    maps = {
        name: each
        for name, each in of_kind(release, "ConfigMap").items()
        if name.endswith("-dashboard")
    }
    text = control_plane.kubectl("kustomize", str(ROOT / "dashboards"))
    plain = {each["metadata"]["name"]: each for each in yaml.safe_load_all(text)}
    assert {name: each["data"] for name, each in maps.items()} == {
        name: each["data"] for name, each in plain.items()
    }
    assert len(maps) == 6
    for each in (*maps.values(), *plain.values()):
        assert each["metadata"]["labels"] == {"grafana_dashboard": "1"}
    for each in maps.values():
        assert each["metadata"]["annotations"] == {"grafana_folder": "Railwright"}
    without = rendered("--set=dashboards.enabled=false")
    assert not of_kind(without, "ConfigMap").keys() & maps.keys()


def test_pod_monitors_need_their_kind() -> None:
    has_kind = (
        "--api-versions=monitoring.coreos.com/v1/PodMonitor",
        "--set=podMonitor.labels.release=prom",
    )
    monitors = of_kind(rendered(*has_kind), "PodMonitor")
    assert {*monitors} == {"railwright-operator", "railwright-controllers"}
    workloads = of_kind(rendered(), "Deployment")
    for name, monitor in monitors.items():
        assert monitor["metadata"]["labels"] == {"release": "prom"}
        assert monitor["spec"]["sampleLimit"] > scraped_processes.SERIES_MAX
        labels = workloads[name]["spec"]["template"]["metadata"]["labels"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        (container,) = workloads[name]["spec"]["template"]["spec"]["containers"]
        assert endpoint["port"] in [port["name"] for port in container["ports"]]
    assert not of_kind(rendered(), "PodMonitor")


@pytest.mark.parametrize(
    ("url", "tls"),
    [
        (None, f"railwright-operator.{SYSTEM}"),
        ("https://mesh.example:1", "mesh.example"),
        ("http://mesh.example:1", None),
    ],
)
def test_pod_monitors_verify_and_have_a_token(url: str | None, tls: str | None) -> None:
    """The name is that of the certificate. A service mesh encrypts where the URL has no https."""
    options = ["--api-versions=monitoring.coreos.com/v1/PodMonitor"]
    if url is not None:
        variable = [{"name": "RAILWRIGHT_HEARTBEAT_URL", "value": url}]
        options.append(f"--set-json=operator.env={json.dumps(variable)}")
    release = rendered(*options)
    monitor = of_kind(release, "PodMonitor")["railwright-operator"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics"
    token = endpoint["authorization"]["credentials"]
    assert token == {"name": "railwright-metrics", "key": "token"}
    assert release["Secret", SYSTEM, token["name"]]["type"].endswith("/service-account-token")
    assert endpoint["scheme"] == ("https" if tls else "http")
    trusted = {"secret": {"name": "railwright-operator-tls", "key": "ca.crt"}}
    assert endpoint.get("tlsConfig") == ({"ca": trusted, "serverName": tls} if tls else None)


def test_account_of_monitors_can_be_left_out() -> None:
    """The ClusterRole stays, for a Prometheus with an account of its own."""
    name = "railwright-metrics"
    usual, without = rendered(), rendered("--set=podMonitor.enabled=false")
    kinds = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Secret"}
    assert {kind for kind in kinds if name in of_kind(usual, kind)} == kinds
    assert {kind for kind in kinds if name in of_kind(without, kind)} == {"ClusterRole"}


def test_monitors_need_the_text_of_a_url() -> None:
    source = {"configMapKeyRef": {"name": "a", "key": "b"}}
    variable = [{"name": "RAILWRIGHT_HEARTBEAT_URL", "valueFrom": source}]
    has_kind = "--api-versions=monitoring.coreos.com/v1/PodMonitor"
    with pytest.raises(TestbedError, match="RAILWRIGHT_HEARTBEAT_URL needs a value"):
        rendered(has_kind, f"--set-json=operator.env={json.dumps(variable)}")


@pytest.mark.parametrize("name", ["kinds", "dashboards"])
def test_chart_without_linked_files_is_refused(name: str, tmp_path: Path) -> None:
    """Some tools that copy folders leave out symbolic links."""
    copied = shutil.copytree(helm.CHART, tmp_path / "chart")
    shutil.rmtree(copied / name)
    with pytest.raises(TestbedError, match=f"deploy/{name} has no "):
        helm.run("template", "railwright", str(copied), REGISTRY)
