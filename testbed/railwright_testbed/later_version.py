"""A build that plays the next version: its kinds, its objects and its messages have more fields.

No version but this one is there yet, and an upgrade is tried against what the next may change.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import yaml

from railwright_testbed import helm, later_fields
from railwright_testbed.errors import TestbedError

VERSION = "next"
"""The tag of its images, and the version of its chart's application."""

_EDITS = (
    (
        "railwright_kube/client.py",
        "else orjson.dumps(body)",
        "else orjson.dumps(later_fields.of_api_object(path, body))",
    ),
    (
        "railwright/codec.py",
        "dataclasses.asdict(message)",
        "later_fields.extended(dataclasses.asdict(message))",
    ),
    (
        "railwright_agent/reporting.py",
        "json.dumps(message)",
        "json.dumps(later_fields.extended(message))",
    ),
)
"""In which module, the expression that writes, and what it is in that version."""
_IMPORT = "from __future__ import annotations\n"


def packages(own: Path, target: Path) -> None:
    """Copy the folder of our packages as that version has them. Raises TestbedError."""
    shutil.copytree(own, target, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(str(later_fields.__file__), target / "railwright" / "later_fields.py")
    for module, today, later in _EDITS:
        path = target / module
        text = path.read_text()
        if text.count(today) != 1 or _IMPORT not in text:
            raise TestbedError(
                f"{module} has {today!r} {text.count(today)} times: expected one, and {_IMPORT!r}"
            )
        imported = f"{_IMPORT}\nfrom railwright import later_fields\n"
        path.write_text(text.replace(today, later).replace(_IMPORT, imported))


def chart(folder: Path) -> Path:
    """Write the chart of that version below a folder."""
    written = folder / "later-chart"
    shutil.copytree(helm.CHART, written)
    described = yaml.safe_load((written / "Chart.yaml").read_text())
    (written / "Chart.yaml").write_text(yaml.safe_dump(described | {"appVersion": VERSION}))
    for path in (written / "kinds").glob("*.yaml"):
        kind = yaml.safe_load(path.read_text())
        for version in kind["spec"]["versions"]:
            parts = version["schema"]["openAPIV3Schema"]["properties"]
            for part in {"spec", "status"} & parts.keys():
                parts[part] = _extended(parts[part], default=part == "spec")
        path.write_text(yaml.safe_dump(kind, sort_keys=False))
    return written


def _extended(schema: Any, *, default: bool) -> Any:
    """The schema of an object, and of those within it, with the fields of ``later_fields``, one of
    which may have a default. Pod templates are of Kubernetes, and have none."""
    if not isinstance(schema, dict):
        return schema
    changed = dict(schema)
    if "items" in schema:
        changed["items"] = _extended(schema["items"], default=default)
    if "properties" in schema:
        since = {"default": later_fields.NEWS["sinceLater"]} if default else {}
        news = {
            "fromLater": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "sinceLater": {"type": "integer", **since},
        }
        inner = {
            name: each if name == "template" else _extended(each, default=default)
            for name, each in schema["properties"].items()
        }
        changed["properties"] = inner | news
    return changed
