"""What the demo refuses on somebody's cluster, and what it removes there: its own objects alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from railwright_cli.api_server import ApiServer
from railwright_demo import installation
from railwright_demo.errors import DemoRefused
from railwright_demo.installation import Installation
from railwright_demo.manifests import NAMESPACE, SYSTEM
from railwright_testbed import ControlPlane, waiting
from railwright_testbed.api_client import Json

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "example.com/team/railwright-operator:0.1.0"
DEADLINE_S = 60.0
EXIT_REFUSED = 3
READER = "system:serviceaccount:default:default"
COLUMNS = "custom-columns=KIND:.kind,NS:.metadata.namespace,NAME:.metadata.name,UID:.metadata.uid"
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "disks"},
    "provisioner": "kubernetes.io/no-provisioner",
}
QUEUE = {
    "apiVersion": "railwright.dev/v1alpha1",
    "kind": "Queue",
    "metadata": {"name": "of-a-user"},
    "spec": {},
}

New = Callable[[], Installation]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A cluster without Railwright."""
    with ControlPlane.start(name="own") as plane:
        waiting.until(
            lambda: _objects(plane) == _objects(plane),
            "the objects that Kubernetes itself creates",
            deadline_s=DEADLINE_S,
        )
        yield plane


@pytest.fixture
def new(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> Iterator[New]:
    """Makes an installation of an administrator. Nothing of it may be left after the test."""
    monkeypatch.setenv("KUBECONFIG", str(plane.kubeconfig))
    monkeypatch.setattr(installation, "REMOVED_S", 20.0)
    before = _objects(plane)
    made: list[Installation] = []

    def make() -> Installation:
        made.append(Installation(ApiServer(), image=IMAGE, run=f"run-{len(made)}"))
        return made[-1]

    yield make
    left = [each.remove() for each in made]
    assert left == [[] for _ in made]
    waiting.until(
        lambda: _objects(plane) == before,
        "the objects that were there before, and no others",
        deadline_s=DEADLINE_S,
        evidence=lambda: "\n".join(sorted(_objects(plane) ^ before)),
    )


def test_half_an_installation_is_removed(plane: ControlPlane, new: New) -> None:
    """An object that cannot be created ends the installation."""
    mine = new()
    mine.check()
    broken = next(raw for raw in mine.objects if raw["kind"] == "FlowSchema")
    broken["spec"]["matchingPrecedence"] = -1
    with pytest.raises(Exception, match="matchingPrecedence"):
        mine.create()
    assert "railwright-controllers" in plane.kubectl("get", "clusterroles")


def test_removal_returns_objects_that_stay(plane: ControlPlane, new: New) -> None:
    """A user's object, a finalizer that nothing fulfils, and a volume whose class retains it."""
    mine = new()
    mine.check()
    mine.create()
    assert "railwright-operator" in plane.kubectl("-n", SYSTEM, "get", "deployments")
    assert NAMESPACE in plane.kubectl("get", "namespaces")
    _apply(plane, QUEUE)
    finalizer = {"metadata": {"finalizers": ["example.com/stays"]}}
    patch = ("patch", "clusterrole", "railwright-operator", "--type=merge", "-p")
    plane.kubectl(*patch, json.dumps(finalizer))
    _apply(plane, _volume())
    names = [kind["metadata"]["name"] for kind in mine.kinds]
    kinds = [f"customresourcedefinitions.apiextensions.k8s.io/{name}" for name in names]
    role = "clusterroles.rbac.authorization.k8s.io/railwright-operator"
    assert sorted(mine.remove()) == sorted([*kinds, role, "persistentvolumes/retained"])
    assert plane.kubectl("get", "queues.railwright.dev", "-o=name").split() == [
        "queue.railwright.dev/of-a-user"
    ]
    plane.kubectl(*patch, json.dumps({"metadata": {"finalizers": None}}))
    plane.kubectl("delete", "persistentvolume/retained", *kinds)


def test_kinds_that_were_there_stay(plane: ControlPlane, new: New) -> None:
    """What the processes stored in them is removed."""
    plane.kubectl("create", "-f", str(ROOT / "crds"))
    try:
        mine = new()
        mine.check()
        mine.create()
        _apply(plane, {**QUEUE, "metadata": {"name": "default"}})
        assert mine.remove() == []
        assert plane.kubectl("get", "queues.railwright.dev", "-o=name") == ""
    finally:
        plane.kubectl("delete", "-f", str(ROOT / "crds"))


def test_object_of_another_run_is_left_alone(plane: ControlPlane, new: New) -> None:
    """The printed command removes them."""
    first, second = new(), new()
    first.create()
    assert second.remove() == []
    assert plane.kubectl("get", "namespace", NAMESPACE, SYSTEM, "-o=name").count("\n") == 2
    _apply(plane, {**QUEUE, "metadata": {"name": "default"}})
    with pytest.raises(DemoRefused, match="a demo that was killed left it") as refused:
        second.check()
    plane.kubectl(*str(refused.value).partition(": kubectl ")[2].split())


def _volume() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": "retained",
            "annotations": {"pv.kubernetes.io/provisioned-by": "example.com/disks"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/nowhere"},
            "claimRef": {"namespace": NAMESPACE, "name": "checkpoints"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        ("deploy/rights/namespace.yaml", "there is Namespace railwright-system"),
        ("deploy/rights/users.yaml", "there is ClusterRole railwright-view"),
    ],
)
def test_existing_installation_is_refused(
    plane: ControlPlane, new: New, there: str, reason: str
) -> None:
    plane.kubectl("create", "-f", str(ROOT / there))
    try:
        with pytest.raises(DemoRefused, match=reason):
            new().check()
    finally:
        plane.kubectl("delete", "-f", str(ROOT / there))


def test_existing_objects_of_users_are_refused(plane: ControlPlane, new: New) -> None:
    plane.kubectl("create", "-f", str(ROOT / "crds"))
    try:
        _apply(plane, QUEUE)
        with pytest.raises(DemoRefused, match="there is queues/of-a-user"):
            new().check()
    finally:
        plane.kubectl("delete", "-f", str(ROOT / "crds"))


def test_kind_of_another_version_is_refused(plane: ControlPlane, new: New) -> None:
    (kind,) = yaml.safe_load_all((ROOT / "crds/queues.yaml").read_text())
    kind["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = "another one"
    _apply(plane, kind)
    try:
        with pytest.raises(DemoRefused, match=r"queues.railwright.dev is there, and of another"):
            new().check()
    finally:
        plane.kubectl("delete", "-f", str(ROOT / "crds/queues.yaml"))


def test_user_without_rights_is_refused(
    plane: ControlPlane, new: New, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One who may read everything, and create nothing."""
    service_account = "--serviceaccount=default:default"
    plane.kubectl("create", "clusterrole", "reader", "--verb=get,list", "--resource=*.*")
    plane.kubectl("create", "clusterrolebinding", "reader", "--clusterrole=reader", service_account)
    kubeconfig = plane.kubeconfig_for_service_account("default", "default")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    try:
        waiting.until(
            lambda: "yes" in plane.kubectl("auth", "can-i", "list", "nodes", "--as", READER),
            "the right to read",
            deadline_s=DEADLINE_S,
        )
        with pytest.raises(DemoRefused, match="you cannot create CustomResourceDefinition fabrics"):
            Installation(ApiServer(), image=IMAGE, run="other").check()
    finally:
        plane.kubectl("delete", "clusterrolebinding,clusterrole", "reader")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ([], "the cluster has no default StorageClass: set STORAGE_CLASS to one of its classes"),
        (["--storage-class=tapes"], "there is no StorageClass tapes; there are: disks"),
        (["--storage-class=disks"], "there is no terminal to ask at: say yes with YES=1, or --yes"),
    ],
)
def test_demo_command_prints_why_it_does_not_start(
    plane: ControlPlane, options: list[str], reason: str
) -> None:
    """The last one has printed the cluster, and has checked everything."""
    ended = _demo(plane, *options, stdin=subprocess.DEVNULL)
    assert (ended.returncode, ended.stdout) == (EXIT_REFUSED, "")
    assert "the demo was not started: " in ended.stderr
    assert reason in ended.stderr


def test_no_at_the_terminal_changes_nothing(plane: ControlPlane, new: New) -> None:
    user, terminal = os.openpty()
    try:
        os.write(user, b"no\n")
        ended = _demo(plane, "--storage-class=disks", stdin=terminal)
    finally:
        os.close(user)
        os.close(terminal)
    assert ended.returncode == EXIT_REFUSED
    assert f"  context   {plane.kubectl('config', 'current-context').strip()}, " in ended.stderr
    assert "Type yes to go on: " in ended.stderr
    assert "the demo was not started: the answer was not yes" in ended.stderr
    assert SYSTEM not in plane.kubectl("get", "namespaces")


def _demo(plane: ControlPlane, *options: str, stdin: int) -> subprocess.CompletedProcess[str]:
    """The command, on a cluster with one StorageClass, disks."""
    command = [sys.executable, "-m", "railwright_demo", f"--kubeconfig={plane.kubeconfig}"]
    _apply(plane, CLASS)
    try:
        return subprocess.run(
            [*command, f"--image={IMAGE}", "--train-image=torch:1", *options],
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    finally:
        plane.kubectl("delete", "storageclass", "disks")


def _apply(plane: ControlPlane, raw: Json) -> None:
    waiting.until(lambda: _is_served(plane, raw), "the kind to be served", deadline_s=DEADLINE_S)
    plane.kubectl("create", "-f", "-", stdin=json.dumps(raw))


def _is_served(plane: ControlPlane, raw: Json) -> bool:
    group = raw["apiVersion"].rpartition("/")[0]
    listed = plane.kubectl("api-resources", f"--api-group={group}", "--no-headers")
    return raw["kind"] in listed.split()


def _objects(plane: ControlPlane) -> set[str]:
    listed = plane.kubectl("api-resources", "--verbs=list", "-o=name").split()
    resources = ",".join(each for each in listed if not each.startswith("events"))
    found = plane.kubectl("get", resources, "--all-namespaces", f"-o={COLUMNS}")
    return set(found.splitlines())
