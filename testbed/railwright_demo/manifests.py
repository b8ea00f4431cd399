"""The objects that the demo installs on a cluster: the chart's, for one namespace and without
agents, and with a label by which the demo finds them again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from railwright_api import names
from railwright_demo.errors import DemoRefused
from railwright_testbed.api_client import Json
from railwright_testbed.example_job import REPOSITORY

LABEL = f"{names.GROUP}/demo"
SYSTEM = "railwright-system"
NAMESPACE = "railwright-demo"
DEPLOY = REPOSITORY / "deploy"
EVERYWHERE = "all-namespaces.yaml"
"""Rights in all namespaces. The demo needs them in its own alone."""

IMAGE = re.compile(r"([^\s@]+)/railwright-operator:(\w[\w.-]{0,127})")
EXAMPLE_IMAGE = re.compile(r"example\.com/(railwright-[a-z]+):[0-9.]+")
EXPECTED_IMAGE = (
    "expected the image of the operator, with your registry and tag, such as "
    "IMAGE=registry.example.com/team/railwright-operator:0.1.0. The images of the controllers and "
    "of the launcher are beside it. docs/install.md builds them"
)


def kinds(run: str) -> list[Json]:
    """The custom resource definitions."""
    return [
        _labelled(each, run)
        for path in sorted((REPOSITORY / "crds").glob("*.yaml"))
        for each in _objects(path)
    ]


def objects(image: str, run: str) -> list[Json]:
    """All other objects, namespaces first. Raises DemoRefused for any but the operator's image."""
    found = IMAGE.fullmatch(image)
    if found is None:
        raise DemoRefused(f"IMAGE is {image!r}: {EXPECTED_IMAGE}")
    registry, tag = found.groups()
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    own = {"metadata": {"name": NAMESPACE, "labels": restricted}}
    rights = list(_objects(DEPLOY / "namespaces" / "rights.yaml"))
    for each in rights:
        each["metadata"]["namespace"] = NAMESPACE
    deployed = [
        each
        for path in (*_listed("rights"), *_listed("processes"))
        for each in _objects(path, images=rf"{registry}/\1:{tag}")
    ]
    namespaces = [each for each in deployed if each["kind"] == "Namespace"]
    others = [each for each in deployed if each["kind"] != "Namespace"]
    ordered = [*namespaces, {"apiVersion": "v1", "kind": "Namespace", **own}, *rights, *others]
    return [_labelled(each, run) for each in ordered]


def _listed(folder: str) -> list[Path]:
    (listed,) = _objects(DEPLOY / folder / "kustomization.yaml")
    return [DEPLOY / folder / name for name in listed["resources"] if name != EVERYWHERE]


def _objects(path: Path, *, images: str = r"\g<0>") -> Iterator[Json]:
    yield from yaml.safe_load_all(EXAMPLE_IMAGE.sub(images, path.read_text()))


def _labelled(raw: Json, run: str) -> Json:
    raw["metadata"].setdefault("labels", {})[LABEL] = run
    return raw
