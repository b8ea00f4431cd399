"""The manifests of deploy/ and crds/, as kubectl applies them without Helm."""

from __future__ import annotations

from pathlib import Path

import yaml

from integration.chart import KIND, SYSTEM, keyed, of_kind, rendered
from railwright_testbed import ControlPlane, helm

ROOT = Path(__file__).resolve().parents[2]
KEEP = {"helm.sh/resource-policy": "keep"}
FOLDERS = ("", "rights", "processes", "agents")


def test_chart_has_the_objects_of_the_manifests(control_plane: ControlPlane) -> None:
    """Nothing but labels, whom the network policies admit, and the namespace differs."""
    texts = [control_plane.kubectl("kustomize", str(helm.CHART / name)) for name in ("", "agents")]
    manifests = keyed(each for text in texts for each in yaml.safe_load_all(text))
    del manifests["Namespace", "", SYSTEM]
    release = rendered("--set=dashboards.enabled=false")
    for key, each in release.items():
        if key[0] == KIND:
            assert each["metadata"].pop("annotations") == KEEP
            continue
        labels = each["metadata"].pop("labels")
        assert labels.pop("app.kubernetes.io/managed-by") == "Helm"
        # Of these, manifests of roles have the version.
        stated = manifests[key]["metadata"].get("labels", {})
        rest = {
            name: text
            for name, text in labels.items()
            if name in stated or "app.kubernetes.io/" not in name
        }
        each["metadata"] |= {"labels": rest} if rest else {}
    for objects in (release, manifests):
        for policy in of_kind(objects, "NetworkPolicy").values():
            del policy["spec"]["ingress"]
    assert release == manifests


def test_kustomization_of_a_user_names_all_images(control_plane: ControlPlane) -> None:
    """The launcher's too, which is in a variable."""
    text = control_plane.kubectl("kustomize", str(ROOT / "examples/install"))
    objects = keyed(yaml.safe_load_all(text))
    workloads = of_kind(objects, "Deployment") | of_kind(objects, "DaemonSet")
    containers = [each["spec"]["template"]["spec"]["containers"][0] for each in workloads.values()]
    (launcher,) = (
        each["value"]
        for container in containers
        for each in container.get("env", ())
        if each["name"] == "RAILWRIGHT_LAUNCHER_IMAGE"
    )
    assert {launcher, *(each["image"] for each in containers)} == {
        f"registry.example.com/team/railwright-{name}:0.1.0"
        for name in ("operator", "controllers", "agent", "launcher")
    }
    assert len(of_kind(objects, KIND)) == 7


def test_folder_is_listed_by_its_kustomization() -> None:
    for folder in FOLDERS:
        place = helm.CHART / folder
        named = set(yaml.safe_load((place / "kustomization.yaml").read_text())["resources"])
        files = {file.name for file in place.glob("*.yaml")} - {"kustomization.yaml"}
        expected = {"../crds", "rights", "processes"} if folder == "" else files
        assert named == expected, folder
    kinds = yaml.safe_load((ROOT / "crds/Kustomization").read_text())["resources"]
    assert {*kinds} == {file.name for file in (ROOT / "crds").glob("*.yaml")}
