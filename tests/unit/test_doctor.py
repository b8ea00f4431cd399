"""What ``railwright doctor`` finds in objects of an installation: their versions and bindings."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
import yaml

from railwright_api.kinds import DEFINITIONS
from railwright_cli import clock_checks, doctor
from railwright_cli.api_server import ApiServer
from railwright_cli.installation import LEADERS, CheckedSite, Finding
from railwright_kube.leadership import LeaseTimings

ROOT = Path(__file__).resolve().parents[2]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VERSION = importlib.metadata.version("railwright")
OPERATOR = "/apis/apps/v1/namespaces/railwright-system/deployments/railwright-operator"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


class StoredObjects:
    """An API server with these objects, by path. While a check sleeps, ``leaders`` renew their
    Leases, by clocks that differ."""

    def __init__(self, objects: Mapping[str, Any], leaders: Iterable[str] = ()) -> None:
        self.objects, self.leaders = dict(objects), leaders
        self.now, self.sleeps = datetime.now(UTC), 0

    def time(self) -> datetime:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.sleeps += 1
        for name in self.leaders:
            spec = self.objects[f"{LEASES}/{name}"]["spec"]
            renewed = datetime.fromisoformat(spec["renewTime"]) + timedelta(seconds=seconds)
            spec["renewTime"] = renewed.isoformat()

    def find(self, path: str, kind: type[Any]) -> Any:
        raw = self.objects.get(path)
        return None if raw is None else msgspec.convert(raw, kind)

    def items(
        self, path: str, kind: type[Any], query: Mapping[str, str] | None = None
    ) -> list[Any]:
        """Those of all namespaces with the name that the query selects; without a query, a list."""
        if query is None:
            return msgspec.convert(self.objects.get(path, []), list[kind])  # type: ignore[valid-type]
        name, plural = query["fieldSelector"].partition("=")[2], path.rpartition("/")[2]
        return [
            msgspec.convert(raw, kind)
            for its, raw in self.objects.items()
            if its.split("/")[-2:] == [plural, name]
        ]


def _findings(check: doctor.Check, objects: Mapping[str, Any]) -> list[Finding]:
    return _seen(check, StoredObjects(objects))


def _seen(check: doctor.Check, stored: StoredObjects) -> list[Finding]:
    server = cast("ApiServer", stored)
    return [*check(CheckedSite(server, "railwright-system", stored.now, stored.sleep))]


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
        ("0.7.2", "0.7.2-2", "ok"),
        ("0.7.2", "v0.7.10", "failed"),
        ("", "0.7.2", "failed"),
        ("0.10.0", "0.9.1", "warning"),
        (VERSION, None, "ok"),
        (VERSION, "latest", "ok"),
        ("next", "next", "ok"),
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
    """Each of them is missed. One for a service account of another namespace is none, nor is one
    of another role."""
    objects = _bindings()
    (found,) = _findings(doctor.CHECKS["bindings"], objects)
    assert (found.result, len(objects)) == ("ok", len(doctor.BINDINGS) + 1)
    for path, binding in objects.items():
        others = {its: raw for its, raw in objects.items() if its != path}
        subject = {**binding["subjects"][0], "namespace": "elsewhere"}
        wrong: list[dict[str, Any]] = [
            {"subjects": [subject]},
            {"roleRef": {**binding["roleRef"], "name": "view"}},
            {"roleRef": {**binding["roleRef"], "kind": "Other"}},
        ]
        for changed in (others, *(others | {path: binding | each} for each in wrong)):
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


def test_roles_of_the_manifests_have_the_version_of_the_package() -> None:
    (found,) = _findings(doctor.CHECKS["roles"], _roles())
    assert (found.result, found.text) == ("ok", f"6 roles of version {VERSION}")


def test_older_or_missing_role_is_named() -> None:
    """Each of them, such as one that an upgrade of the images alone left as it was."""
    roles = _roles()
    for path, role in roles.items():
        others = {its: raw for its, raw in roles.items() if its != path}
        older = {**role, "metadata": {"labels": {doctor.LABEL_VERSION: "0.0.9"}}}
        name = path.removeprefix(f"{RBAC}/")
        for changed, text in (
            (others, f"missing: {name}"),
            (others | {path: older}, f"{name}: version 0.0.9, the operator's is {VERSION}"),
        ):
            (found,) = (
                each
                for each in _findings(doctor.CHECKS["roles"], changed)
                if each.result == "failed"
            )
            assert found.text == text
            assert found.advice.endswith(doctor.RIGHTS)


def test_missing_kinds_are_named() -> None:
    """No kind is there, or one is missing."""
    path = "/apis/railwright.dev/v1alpha1"
    plurals = [each.plural for each in DEFINITIONS]
    for served in ([], [each for each in plurals if each != "ledgers"], plurals):
        resources = {path: {"resources": [{"name": each} for each in served]}} if served else {}
        (found,) = _findings(doctor.CHECKS["kinds"], resources)
        missing = sorted({*plurals} - {*served})
        assert found.result == ("failed" if missing else "ok")
        if missing:
            assert found.text == f"missing: {', '.join(missing)}"
            assert "kubectl apply --server-side -f crds" in found.advice


FABRIC = "/apis/railwright.dev/v1alpha1/fabrics/default"
DAEMON_SET = "/apis/apps/v1/namespaces/railwright-system/daemonsets/railwright-agent"


@pytest.mark.parametrize(
    ("changed", "result", "text"),
    [
        ({}, "ok", "the network was checked "),
        ({"freshness": {}}, "failed", "the network was never discovered"),
        (
            {"freshness": {"checked": "2026-01-01T00:00:00Z"}},
            "failed",
            "the network was checked ",
        ),
        ({"domains": []}, "warning", "the network has no levels: "),
        ({"agents": {"nodes": 9, "silent": 2}}, "warning", "2 of 9 node agents silent"),
        ({"agents": {}}, "warning", "0 of 9 node agents reported: "),
        ({"problemCount": 1}, "warning", "1 problem"),
        ({"conflictCount": 3}, "warning", "3 conflicts of sources"),
    ],
    ids=str,
)
def test_network_is_checked(changed: dict[str, Any], result: str, text: str) -> None:
    checked = (datetime.now(UTC) - timedelta(seconds=5)).isoformat()
    status = {"freshness": {"checked": checked}, "domains": [{"level": "rack"}]} | changed
    agents = {"status": {"desiredNumberScheduled": 9, "numberReady": 9}}
    objects = {FABRIC: {"status": {"agents": {"nodes": 9}} | status}, DAEMON_SET: agents}
    *before, last = _findings(doctor.CHECKS["fabric"], objects)
    assert (last.result, last.text[: len(text)]) == (result, text)
    assert all(each.result == "ok" for each in before)
    assert bool(last.advice)


LEASES = "/apis/coordination.k8s.io/v1/namespaces/railwright-system/leases"


@pytest.mark.parametrize(
    ("silence_s", "result", "text"),
    [
        (None, "failed", "railwright-operator has never led"),
        (5, "ok", "pod-1 leads"),
        (3600, "failed", "nothing leads: railwright-operator renewed its Lease 1h ago"),
    ],
)
def test_lost_leader_is_found(silence_s: float | None, result: str, text: str) -> None:
    objects: dict[str, Any] = {}
    if silence_s is not None:
        renewed = (datetime.now(UTC) - timedelta(seconds=silence_s)).isoformat()
        spec = {"holderIdentity": "pod-1", "renewTime": renewed}
        objects[f"{LEASES}/railwright-operator"] = {"metadata": {}, "spec": spec}
    found, controllers = _findings(doctor.CHECKS["leaders"], objects)
    assert (found.result, found.text) == (result, text)
    advice = "kubectl logs -n railwright-system deploy/railwright-operator"
    assert found.advice == ("" if result == "ok" else advice)
    assert controllers.text == "railwright-controllers has never led"


@pytest.mark.parametrize(
    ("ahead_s", "renews", "result", "text"),
    [
        (-20, True, "warning", "pod-1 leads, but its clock is 20s behind"),
        (-20, False, "failed", "nothing leads: {} renewed its Lease 25s ago"),
        (600, True, "warning", "pod-1 leads, but its clock is 10m ahead"),
        (605, False, "failed", "nothing leads: {} renewed its Lease 10m in the future"),
        (4, True, "ok", "pod-1 leads"),
        (7, False, "failed", "nothing leads: {} renewed its Lease 2s in the future"),
    ],
)
def test_leader_with_a_wrong_clock_leads_if_it_renews(
    ahead_s: float, renews: bool, result: str, text: str
) -> None:
    """All Leases are read again after one wait, in which a leader renews its Lease twice."""
    stored = StoredObjects({}, LEADERS if renews else ())
    renewed = (stored.now + timedelta(seconds=ahead_s)).isoformat()
    for name in LEADERS:
        spec = {"holderIdentity": "pod-1", "renewTime": renewed}
        stored.objects[f"{LEASES}/{name}"] = {"metadata": {}, "spec": spec}
    found = _seen(doctor.CHECKS["leaders"], stored)
    expected = [(result, text.format(name)) for name in LEADERS]
    assert [(each.result, each.text) for each in found] == expected
    assert all(("NTP" in each.advice) == (result == "warning") for each in found)
    assert stored.sleeps == (result != "ok")
    assert 2 * LeaseTimings().retry_s < clock_checks.RENEWAL_S


def test_jobs_that_met_a_fault_of_the_operator_are_named() -> None:
    statuses = [{"reason": "InternalError", "message": "KeyError: x"}, {"reason": "Running"}]
    jobs = [
        {"metadata": {"namespace": "team", "name": f"job-{at}"}, "status": status}
        for at, status in enumerate(statuses)
    ]
    path = "/apis/railwright.dev/v1alpha1/trainingjobs"
    (found,) = _findings(doctor.CHECKS["jobs"], {path: jobs})
    assert (found.result, found.advice) == ("failed", "report it as a bug")
    assert found.text == "team/job-0 met a fault of the operator: KeyError: x"
    (found,) = _findings(doctor.CHECKS["jobs"], {path: jobs[1:]})
    assert found.text == "1 job, none met a fault of the operator"


def _bindings() -> dict[str, Any]:
    """The bindings of the operator and the controllers in deploy/rights, by path."""
    return {
        path: each
        for path, each in _rights()
        if {its["name"] for its in each.get("subjects", ())} & {*LEADERS}
    }


def _roles() -> dict[str, Any]:
    """The roles of these bindings, by path."""
    files = ("operator.yaml", "controllers.yaml")
    return {path: each for path, each in _rights(*files) if each["kind"].endswith("Role")}


def _rights(*files: str) -> Iterator[tuple[str, Any]]:
    """The roles and bindings in these files, or all files, of deploy/rights, with their paths."""
    folder = ROOT / "deploy/rights"
    for file in map(folder.joinpath, files) if files else sorted(folder.glob("*.yaml")):
        for each in yaml.safe_load_all(file.read_text()):
            if "Role" not in str((each or {}).get("kind")):
                continue
            metadata = each["metadata"]
            place = f"/namespaces/{metadata['namespace']}" if "namespace" in metadata else ""
            yield f"{RBAC}{place}/{each['kind'].lower()}s/{metadata['name']}", each
