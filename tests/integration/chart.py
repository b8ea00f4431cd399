"""The objects of the chart, as Helm renders it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from railwright_testbed import helm

SYSTEM = "railwright-system"
KIND = "CustomResourceDefinition"
REGISTRY = "--set=images.registry=example.com"
"""That of the manifests."""

Document = dict[str, Any]
Key = tuple[str, str, str]


def keyed(objects: Iterable[Document | None]) -> dict[Key, Document]:
    """Objects by kind, namespace and name."""
    found = [each for each in objects if each]
    keys = [
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
        for each in found
    ]
    assert len(set(keys)) == len(keys), sorted(keys)
    return dict(zip(keys, found, strict=True))


def rendered(*options: str, namespace: str = SYSTEM) -> dict[Key, Document]:
    """The objects of a release."""
    command = ("template", "railwright", str(helm.CHART), REGISTRY, "-n", namespace)
    text = helm.run(*command, *options)
    return keyed(yaml.safe_load_all(text))


def of_kind(objects: dict[Key, Document], kind: str) -> dict[str, Document]:
    """The objects of this kind by name."""
    return {name: each for (its, _, name), each in objects.items() if its == kind}
