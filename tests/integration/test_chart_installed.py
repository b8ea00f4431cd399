"""A release of the chart on an API server that has kinds of other projects."""

from __future__ import annotations

import base64
import copy
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from railwright_process import authority
from railwright_testbed import ControlPlane, binaries, deployment, foreign_kinds, helm
from railwright_testbed.control_plane import KubectlError
from railwright_testbed.errors import TestbedError

SYSTEM = "railwright-system"
MONITORING, CERT_MANAGER = "monitoring.coreos.com", "cert-manager.io"
VALUES = (
    "--set=images.registry=example.com",
    "--set=podMonitor.labels.release=prom",
    "--set=alerts.labels.release=prom",
    "--set=commonLabels.team=blue",
    "--set=agent.nodeCidrs={10.0.0.0/16}",
)
MONITORS = {
    ("PodMonitor", "railwright-controllers"),
    ("PodMonitor", "railwright-operator"),
    ("PrometheusRule", "railwright"),
}

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Release:
    """What Helm sent before and after the cluster had the kinds."""

    plane: ControlPlane
    before: list[Document]
    after: list[Document]

    def strict(self, objects: list[Document]) -> list[Document]:
        """Apply them as a dry run; what the API server would store. Raises KubectlError."""
        options = ("--dry-run=server", "--validate=strict", "--force-conflicts", "-o=json")
        text = yaml.safe_dump_all(objects)
        return answered(self.plane.kubectl("apply", "--server-side", *options, "-f-", stdin=text))

    def upgrade(self, *values: str) -> list[Document]:
        """Upgrade it with these values; what Helm sent."""
        changed = (*VALUES, *(f"--set={each}" for each in values))
        return _sent(self.plane, "upgrade", *changed)

    def authority(self, server: str) -> authority.Authority:
        """The one in the Secret of this server. Raises AuthorityError if it cannot sign."""
        secret = ("-n", SYSTEM, "get", "secret", f"railwright-{server}-tls", "-o=json")
        data = json.loads(self.plane.kubectl(*secret))["data"]
        pems = (base64.b64decode(data[name]) for name in ("tls.crt", "tls.key", "ca.crt"))
        return authority.read(*pems, now_s=time.time())

    def monitor(self, **spec: Any) -> Document:
        """A PodMonitor of the chart with these changes."""
        (found, *_) = (each for each in self.after if each["kind"] == "PodMonitor")
        changed = copy.deepcopy(found)
        changed["spec"] |= spec
        return changed


def answered(text: str) -> list[Document]:
    """The objects that kubectl prints."""
    items: list[Document] = json.loads(text)["items"]
    return items


def of_group(objects: list[Document], group: str) -> dict[tuple[str, str], Document]:
    """The objects of an API group, by kind and name."""
    return {
        (each["kind"], each["metadata"]["name"]): each
        for each in objects
        if each["apiVersion"].rpartition("/")[0] == group
    }


def lost(sent: Any, stored: Any, path: str) -> Iterator[str]:
    """Where the API server has another value than was sent. It may add fields, and leaves out a
    schema's empty ``properties``, which say nothing."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        for name, value in sent.items():
            yield from lost(value, stored.get(name), f"{path}.{name}")
    elif isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        for index, (ours, its) in enumerate(zip(sent, stored, strict=True)):
            yield from lost(ours, its, f"{path}[{index}]")
    elif sent != stored and not (path.endswith(".properties") and sent == {}):
        yield f"{path}: {sent!r} became {stored!r}"


def all_lost(sent: list[Document], stored: list[Document]) -> list[str]:
    """The same of several objects, in one order."""
    pairs = zip(sent, stored, strict=True)
    return [text for ours, its in pairs for text in lost(ours, its, ours["metadata"]["name"])]


@pytest.fixture(scope="module")
def release() -> Iterator[Release]:
    """The release is there first; it is upgraded without a change of its values."""
    with ControlPlane.start(name="chart") as plane:
        plane.kubectl("create", "namespace", SYSTEM)
        before = _sent(plane, "install", *VALUES)
        foreign_kinds.install(plane, foreign_kinds.MONITORING)
        yield Release(plane, before, _sent(plane, "upgrade", *VALUES))


def _sent(plane: ControlPlane, verb: str, *values: str) -> list[Document]:
    """What Helm sends to install or upgrade the release."""
    helm.run(verb, "railwright", str(helm.CHART), "-n", SYSTEM, *values, plane=plane)
    manifest = helm.run("get", "manifest", "railwright", "-n", SYSTEM, plane=plane)
    return [each for each in yaml.safe_load_all(manifest) if each]


def test_release_gets_monitors_once_their_kinds_are_there(release: Release) -> None:
    """The API server says so, and no value."""
    assert of_group(release.before, MONITORING) == {}
    assert of_group(release.after, MONITORING).keys() == MONITORS
    assert len(release.after) == len(release.before) + len(MONITORS)


def test_all_that_the_chart_sends_is_stored(release: Release) -> None:
    assert len(release.strict(release.after)) == len(release.after)
    text = yaml.safe_dump_all(release.after)
    stored = answered(release.plane.kubectl("get", "-f-", "-o=json", stdin=text))
    assert all_lost(release.after, stored) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampleLimits": 1}, "field not declared in schema"),
        ({"sampleLimit": "many"}, "expected numeric"),
        ({"podMetricsEndpoints": [{"port": "probes", "interval": "30s1m"}]}, "should match"),
    ],
)
def test_kinds_of_monitors_are_in_force(release: Release, change: Document, message: str) -> None:
    """What shows that the acceptance of the chart's own means something."""
    with pytest.raises(KubectlError, match=message):
        release.strict([release.monitor(**change)])


def test_values_of_monitors_may_be_null(release: Release) -> None:
    nothing = [f"--set={each}=null" for each in ("podMonitor.interval", "podMonitor.labels")]
    changed = (*VALUES, *nothing, "--set=alerts.labels=null", "--dry-run=server", "-o=json")
    chart = ("railwright", str(helm.CHART), "-n", SYSTEM)
    found = json.loads(helm.run("upgrade", *chart, *changed, plane=release.plane))
    objects = [each for each in yaml.safe_load_all(found["manifest"]) if each]
    monitors = of_group(objects, MONITORING)
    assert monitors.keys() == MONITORS
    release.strict([*monitors.values()])


def test_certificates_need_their_kind(release: Release) -> None:
    with pytest.raises(TestbedError, match="Install cert-manager first"):
        release.upgrade("certManager.enabled=true")


@pytest.fixture
def uninstalled(release: Release) -> Iterator[None]:
    """No release, for this test."""
    deployment.uninstall(release.plane)
    yield
    deployment.uninstall(release.plane)
    release.plane.kubectl("-n", SYSTEM, "delete", "configmap", "other", "--ignore-not-found")
    _sent(release.plane, "install", *VALUES)


@pytest.mark.usefixtures("uninstalled")
def test_uninstalled_release_leaves_what_is_meant_to_stay(release: Release) -> None:
    """Whatever else stays is found by its UID, under any name."""
    plane = release.plane
    before = deployment.objects(plane)
    _sent(plane, "install", *VALUES)
    installed = deployment.left(plane, before, deadline_s=0)
    assert f"Service {SYSTEM}/railwright-operator" in installed
    plane.kubectl("-n", SYSTEM, "create", "configmap", "other")
    deployment.uninstall(plane)
    assert deployment.left(plane, before, deadline_s=5) == [f"ConfigMap {SYSTEM}/other"]


@pytest.fixture
def cert_manager(release: Release) -> Iterator[None]:
    """The controllers of the real cert-manager."""
    foreign_kinds.install(release.plane, foreign_kinds.CERT_MANAGER)
    (program,) = binaries.find(binaries.CERT_MANAGER).values()
    environment = {"KUBECONFIG": str(release.plane.kubeconfig)}
    process = release.plane.run("cert-manager", [str(program)], environment=environment)
    yield
    process.end()


@pytest.mark.usefixtures("cert_manager")
def test_cert_manager_keeps_one_authority_and_makes_another(release: Release) -> None:
    """A running operator has stored its authority, and the controllers have not."""
    host = f"railwright-operator.{SYSTEM}"
    made = authority.new(host, time.time())
    data = {"tls.crt": made.certificate, "tls.key": made.key, "ca.crt": made.trusted}
    text = {name: base64.b64encode(value).decode() for name, value in data.items()}
    stored = json.dumps({"data": text})
    release.plane.kubectl("-n", SYSTEM, "patch", "secret/railwright-operator-tls", "-p", stored)
    sent = release.upgrade("certManager.enabled=true")
    assert of_group(sent, CERT_MANAGER).keys() == {
        ("Issuer", "railwright"),
        ("Certificate", "railwright-operator"),
        ("Certificate", "railwright-controllers"),
    }
    assert all_lost(sent, release.strict(sent)) == []
    ready = ("--for=condition=Ready", "certificate", "--all", "--timeout=60s")
    release.plane.kubectl("-n", SYSTEM, "wait", *ready)
    assert release.authority("operator") == made
    assert release.authority("controllers").trusted != made.trusted
