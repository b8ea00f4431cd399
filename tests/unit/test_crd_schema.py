"""The generated kinds: bounded, in the API server's dialect, explained, and up to date."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from architecture import tree
from railwright import protocol
from railwright_api import kinds, names, schema, training_job_status
from railwright_api.schema import Definition
from railwright_scheduler.attempt import phases
from railwright_testbed import crds, structural
from railwright_topology.sources import labels

Json = dict[str, Any]

EVERY = pytest.mark.parametrize(
    "definition", kinds.DEFINITIONS, ids=[one.kind for one in kinds.DEFINITIONS]
)
REFUSED_BY_THE_SERVER = ("$ref", "$defs", "anyOf", "const", "title", "exclusiveMinimum")
OWNED_BY_THE_SERVER = ("apiVersion", "kind", "metadata")
CAMEL_CASE = re.compile(r"[A-Z][A-Za-z0-9]*")
LITERALS_OF_KUBERNETES = frozenset({"metadata.name", ""})
"""Values of an enum that Kubernetes writes so: the field that a node selector matches, and every
effect of a toleration."""


def parts(definition: Definition) -> Iterator[tuple[str, Json]]:
    """Every schema inside a kind's, with its path; what the API server owns is left out."""
    root = structural.structural_schema(definition.model)
    for name, inner in root["properties"].items():
        if name not in OWNED_BY_THE_SERVER:
            yield from _walk(f".{name}", inner)


def _walk(path: str, part: Json) -> Iterator[tuple[str, Json]]:
    yield path, part
    for name, inner in part.get("properties", {}).items():
        yield from _walk(f"{path}.{name}", inner)
    for name, mark in (("items", "[]"), ("additionalProperties", "{}")):
        if name in part:
            yield from _walk(path + mark, part[name])


@EVERY
def test_every_list_string_and_map_has_a_bound(definition: Definition) -> None:
    bounds = {"array": "maxItems", "string": "maxLength"}
    unbounded = []
    for path, part in parts(definition):
        bound = bounds.get(part.get("type", ""))
        if part.get("x-kubernetes-int-or-string"):
            bound = "maxLength"
        if "additionalProperties" in part:
            bound = "maxProperties"
        if "enum" not in part and part.get("format") != "date-time" and bound and bound not in part:
            unbounded.append(f"{path} has no {bound}")
    assert not unbounded


@EVERY
def test_nothing_in_it_is_foreign_to_the_api_server(definition: Definition) -> None:
    text = json.dumps(structural.structural_schema(definition.model))
    assert [word for word in REFUSED_BY_THE_SERVER if f'"{word}"' in text] == []
    untyped = [
        path
        for path, part in parts(definition)
        if "type" not in part and "x-kubernetes-int-or-string" not in part
    ]
    assert not untyped


@EVERY
def test_every_field_is_explained(definition: Definition) -> None:
    silent = [
        path
        for path, part in parts(definition)
        if not path.endswith(("[]", "{}")) and not part.get("description")
    ]
    assert not silent


@EVERY
def test_enum_values_are_camel_case(definition: Definition) -> None:
    """As the conventions of the Kubernetes API have them. Numbers are no names."""
    others = [
        f"{path}: {value}"
        for path, part in parts(definition)
        for value in part.get("enum", ())
        if isinstance(value, str)
        and value not in LITERALS_OF_KUBERNETES
        and not CAMEL_CASE.fullmatch(value)
    ]
    assert not others


@EVERY
def test_no_field_is_a_float(definition: Definition) -> None:
    """Floats do not survive every client; fractions are decimal strings or quantities."""
    floats = [
        path
        for path, part in parts(definition)
        if part.get("type") == "number" or part.get("format") in ("float", "double")
    ]
    assert not floats


@EVERY
def test_the_api_server_fills_in_nothing_below_status(definition: Definition) -> None:
    filled = [
        path for path, part in parts(definition) if path.startswith(".status") and "default" in part
    ]
    assert not filled


@EVERY
def test_every_column_shows_a_field_that_exists(definition: Definition) -> None:
    declared = {path for path, _ in parts(definition)} | {".metadata.creationTimestamp"}
    shown = [column.path.replace("[0]", "[]") for column in definition.columns]
    assert [path for path in shown if path not in declared] == []


def test_the_file_on_disk_is_one_document_without_anchors() -> None:
    for name, text in crds.rendered().items():
        assert "&id" not in text, name
        loaded = yaml.safe_load(text)
        assert loaded["metadata"]["name"] == f"{name.removesuffix('.yaml')}.{names.GROUP}"


def test_check_passes_when_current_and_diffs_when_stale(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert crds.main([str(tmp_path)]) == 0
    assert crds.main(["--check", str(tmp_path)]) == 0
    assert capsys.readouterr().out == ""
    jobs = tmp_path / "trainingjobs.yaml"
    jobs.write_text(jobs.read_text(encoding="utf-8").replace("maximum: 16384", "maximum: 9"))
    (tmp_path / "stray.yaml").write_text("kind: Stray\n", encoding="utf-8")
    (tmp_path / "queues.yaml").unlink()
    assert crds.main(["--check", str(tmp_path)]) == 1
    shown = capsys.readouterr().out
    assert "-                maximum: 9\n+                maximum: 16384\n" in shown
    assert "-kind: Stray\n" in shown
    assert "+++ queues.yaml (generated)" in shown


def test_the_committed_files_are_current() -> None:
    assert crds.differences(tree.ROOT / "crds") == ""


def test_limits_and_closed_sets_are_those_of_the_other_parts() -> None:
    assert schema.NODES_MAX == protocol.NODES_MAX
    assert schema.PROCESSES_MAX == protocol.PROCESSES_MAX
    assert schema.RANKS_MAX == protocol.RANKS_MAX
    assert training_job_status.LAST_LINES_LENGTH_MAX == protocol.LAST_LINES_BYTES_MAX
    assert get_args(training_job_status.Activity) == tuple(map(str, protocol.Phase))
    assert get_args(training_job_status.Phase) == tuple(map(str, phases.Phase))
    assert labels.OWN_LEVELS == (names.LABEL_BLOCK, names.LABEL_RACK)


def test_a_placement_and_a_job_show_a_constant_kind_to_readers() -> None:
    for definition in kinds.DEFINITIONS:
        annotation = definition.model.model_fields["kind"].annotation
        assert get_args(annotation) == (definition.kind,)
