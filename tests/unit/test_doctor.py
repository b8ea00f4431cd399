"""What ``railwright doctor`` finds in objects of an installation: their versions and bindings."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml

from railwright_api.kinds import DEFINITIONS
from railwright_cli import doctor
from railwright_cli.api_server import ApiServer
from railwright_cli.doctor import CheckedSite, Finding

ROOT = Path(__file__).resolve().parents[2]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VERSION = importlib.metadata.version("railwright")
OPERATOR = "/apis/apps/v1/namespaces/railwright-system/deployments/railwright-operator"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class StoredObjects:
    """An API server with these objects, by path."""

    def __init__(self, objects: Mapping[str, Any]) -> None:
        self.objects = dict(objects)

    def find(self, path: str, kind: type[Any]) -> Any:
        raw = self.objects.get(path)
        return None if raw is None else msgspec.convert(raw, kind)

    def items(self, path: str, kind: type[Any], query: Mapping[str, str]) -> list[Any]:
        """Those of all namespaces with the name that the query selects."""
        name, plural = query["fieldSelector"].partition("=")[2], path.rpartition("/")[2]
        return [
            msgspec.convert(raw, kind)
            for its, raw in self.objects.items()
            if its.split("/")[-2:] == [plural, name]
        ]


def _findings(check: doctor.Check, objects: Mapping[str, Any]) -> list[Finding]:
    server = cast("ApiServer", StoredObjects(objects))
    return [*check(CheckedSite(server, "railwright-system", datetime.now(UTC)))]


def _installed(kinds: str, operator: str | None) -> dict[str, Any]:
    """Kinds of this version, or without a label, and an operator whose image has this tag."""
    labels = {doctor.LABEL_VERSION: kinds} if kinds else {}
    found: dict[str, Any] = {
        f"{CRDS}/{each.plural}.railwright.dev": {"metadata": {"name": "x", "labels": labels}}
        for each in DEFINITIONS
    }
    if operator is not None:
        pod = {"containers": [{"name": "it", "image": f"example.com/it:{operator}"}]}
        found[OPERATOR] = {"spec": {"template": {"spec": pod}}}
    return found


@pytest.mark.parametrize(
    ("kinds", "operator", "result"),
    [
        ("0.7.2", "0.7.2", "ok"),
        ("0.7.2", "v0.7.2", "ok"),
        ("0.7.2", "v0.7.10", "failed"),
        ("", "0.7.2", "failed"),
        ("0.10.0", "0.9.1", "warning"),
        (VERSION, None, "ok"),
        (VERSION, "latest", "ok"),
        ("0.0.9", "latest", "failed"),
    ],
)
def test_kinds_of_another_version_than_the_operator_are_found(
    kinds: str, operator: str | None, result: str
) -> None:
    (found,) = _findings(doctor.CHECKS["schemas"], _installed(kinds, operator))
    assert found.result == result, found
    if result != "ok":
        assert f"version {kinds or 'unknown'}, the operator's is " in found.text
        assert "kubectl apply --server-side -f crds, or the Helm chart" in found.advice


def test_single_old_kind_is_named() -> None:
    objects = _installed("0.7.2", "0.7.2")
    objects[f"{CRDS}/queues.railwright.dev"]["metadata"] = {"name": "x"}
    found = {each.result: each.text for each in _findings(doctor.CHECKS["schemas"], objects)}
    assert found["ok"] == f"{len(DEFINITIONS) - 1} kinds of version 0.7.2"
    assert found["failed"] == "queues: version unknown, the operator's is 0.7.2"


def test_generated_kinds_have_the_version_of_the_package() -> None:
    stored = yaml.safe_load((ROOT / "crds/queues.yaml").read_text())
    objects = {f"{CRDS}/queues.railwright.dev": stored}
    (found,) = _findings(doctor.CHECKS["schemas"], objects)
    assert found.result == "ok"


def test_bindings_are_those_that_the_manifests_make() -> None:
    """Each of them is missed, and one for a service account of another namespace is none."""
    objects = _bindings()
    (found,) = _findings(doctor.CHECKS["bindings"], objects)
    assert (found.result, len(objects)) == ("ok", len(doctor.BINDINGS) + 1)
    for path, binding in objects.items():
        others = {its: raw for its, raw in objects.items() if its != path}
        subject = {**binding["subjects"][0], "namespace": "elsewhere"}
        for changed in (others, others | {path: {**binding, "subjects": [subject]}}):
            (found,) = _findings(doctor.CHECKS["bindings"], changed)
            assert found.result == "failed"
            assert path.rpartition("/")[2] in found.text
            assert found.advice == "apply deploy/rights, or the Helm chart: docs/install.md"


def test_binding_of_one_namespace_of_jobs_is_enough() -> None:
    objects = _bindings()
    whole = objects.pop(f"{RBAC}/clusterrolebindings/{doctor.JOBS_BINDING}")
    objects[f"{RBAC}/namespaces/team/rolebindings/{doctor.JOBS_BINDING}"] = whole
    (found,) = _findings(doctor.CHECKS["bindings"], objects)
    assert found.result == "ok"


def _bindings() -> dict[str, Any]:
    """The bindings of the operator and the controllers in deploy/rights, by path."""
    found: dict[str, Any] = {}
    for file in sorted((ROOT / "deploy/rights").glob("*.yaml")):
        for each in yaml.safe_load_all(file.read_text()):
            if not str((each or {}).get("kind")).endswith("RoleBinding"):
                continue
            if {its["name"] for its in each["subjects"]} & {*doctor.LEADERS}:
                metadata = each["metadata"]
                place = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
                plural = f"{each['kind'].lower()}s"
                found[f"{RBAC}{place}/{plural}/{metadata['name']}"] = each
    return found
