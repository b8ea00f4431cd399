"""Topograph's models and its graph engine's answers, read. Those here are written for these tests
in the form that its documentation describes (1.0: docs/modeling.md, docs/engines/graph.md)."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from fixtures.remarks import remarks
from railwright_topology.source_reports import Provenance, SourceReport
from railwright_topology.sources import topograph
from railwright_topology.wiring import WiringError

MODEL = """
switches:
  core:
    labels: {topology.kubernetes.io/region: here}
    switches: [spine-1, spine-2]
  spine-1:
    annotations: {accelerator.topology.test/domain: nvl-1}
    switches: [leaf-1, leaf-2]
blocks:
- switch: leaf-1
  nodes: ["gpu[01-02]", gpu9]
- switch: leaf-1
  nodes: [gpu10]
  annotations:
    accelerator.topology.test/domain: nvl-2
    accelerator.topology.test/sub-domain: rack-1
- switch: spine-2
  nodes: [gpu11]
  labels: {network.topology.nvidia.com/accelerator: nvl-3}
- nodes: [gpu12]
"""


def test_a_model_is_read_with_leaves_that_are_only_named() -> None:
    leaf = ("gpu01", "gpu02", "gpu10", "gpu9")
    assert topograph.parse_model(MODEL) == SourceReport(
        "topograph model",
        Provenance.IMPORTED,
        (
            {**dict.fromkeys(leaf, "leaf-1"), "gpu11": "spine-2"},
            {**dict.fromkeys(leaf, "spine-1"), "gpu11": "spine-2"},
            dict.fromkeys((*leaf, "gpu11"), "core"),
        ),
        {"gpu01": "nvl-1", "gpu02": "nvl-1", "gpu9": "nvl-1", "gpu10": "nvl-2", "gpu11": "nvl-3"},
    )


@pytest.mark.parametrize("key", topograph.SCALE_UP_KEYS)
def test_scale_up_domain_of_each_version_is_read(key: str) -> None:
    text = f"blocks:\n- nodes: [a, b]\n  labels: {{{key}: d}}\n"
    assert topograph.parse_model(text).scale_up_domains == {"a": "d", "b": "d"}
    labels = {"labels": {key: "d"}}
    assert topograph.parse_graph(graph(instance("a", "leaf", **labels))).scale_up_domains == {
        "a": "d"
    }


def test_a_model_without_switches_has_scale_up_domains_alone() -> None:
    text = "blocks:\n- nodes: [a, b]\n  annotations: {accelerator.topology.test/domain: d}\n"
    assert topograph.parse_model(text) == SourceReport(
        "topograph model", Provenance.IMPORTED, (), {"a": "d", "b": "d"}
    )


@pytest.mark.parametrize(
    ("changed", "into", "line", "rule"),
    [
        ("[gpu10]", "[gpu9]", 12, "node 'gpu9' is in both 'block 1' and 'block 2'"),
        ("[gpu10]", "[]", 12, "a block has no nodes"),
        ("[gpu10]", '["n[1"]', 13, "bracket without its other one"),
        ("[gpu10]", '["n[1-99999]"]', 13, "more names than fit"),
        ("switches: [spine-1,", f"switches: [{'s' * 254},", 4, "1 to 253 printable characters"),
        ("  core:", f"  {'s' * 254}:", 4, "1 to 253 printable characters"),
        ("[gpu10]", "gpu10", 13, "a list of host lists stands here"),
        ("switch: spine-2\n", "switch: spine-3\n", 17, "'spine-3' is described nowhere"),
        ("[leaf-1, leaf-2]", "[leaf-1, spine-2]", 7, "'spine-2' is in both 'core' and 'spine-1'"),
        ("[leaf-1, leaf-2]", "[leaf-1, core]", 4, "is above itself"),
        ("[leaf-1, leaf-2]", "leaf-1", 8, "a list of switches stands here"),
        ("blocks:", "block:", 10, "'block' is no field of a model, the nearest is blocks"),
        ("labels: {topology", "label: {topology", 4, "'label' is no field of a switch"),
        ("  core:", "  core:\n  core:", 4, "'core' stands twice"),
    ],
)
def test_model_omission_has_line_and_rule(changed: str, into: str, line: int, rule: str) -> None:
    assert changed in MODEL
    stated = remarks(lambda: topograph.parse_model(MODEL.replace(changed, into, 1)))
    assert re.search(f"line {line}: .*{re.escape(rule)}", stated)


def test_empty_block_loses_nothing_else() -> None:
    found = topograph.parse_model(MODEL + "- switch: leaf-2\n  nodes: []\n")
    whole = topograph.parse_model(MODEL)
    assert (found.tiers, found.scale_up_domains) == (whole.tiers, whole.scale_up_domains)
    assert found.strange == ("line 21: a block has no nodes",)


OLDER = {
    "list of switches": """
switches:
- {name: core, metadata: {region: here}, switches: [leaf-1, leaf-2]}
- {name: leaf-1, capacity_blocks: [cb1]}
- {name: leaf-2, capacity_blocks: [cb2]}
capacity_blocks:
- {name: cb1, type: GB200, nvlink: nvl-1, nodes: ["n[1-2]"]}
- {name: cb2, type: GB200, nvlink: nvl-2, nodes: [n3]}
""",
    "nodes at switches": """
switches:
  core: {switches: [leaf-1, leaf-2]}
  leaf-1: {nodes: ["n[1-2]"]}
  leaf-2: {nodes: [n3]}
nodes:
  n1: {capacity_block: cb1, attributes: {nvlink: nvl-1}}
  n2: {capacity_block: cb1, attributes: {nvlink: nvl-1}}
  n3: {capacity_block: cb2, type: H100, attributes: {nvlink: nvl-2}}
capacity_blocks:
  cb1: {nodes: ["n[1-3]"]}
""",
}
"""Two forms of models before 1.0."""


@pytest.mark.parametrize("form", OLDER)
def test_older_models_are_read(form: str) -> None:
    leaves = {"n1": "leaf-1", "n2": "leaf-1", "n3": "leaf-2"}
    assert topograph.parse_model(OLDER[form]) == SourceReport(
        "topograph model",
        Provenance.IMPORTED,
        (leaves, dict.fromkeys(leaves, "core")),
        {"n1": "nvl-1", "n2": "nvl-1", "n3": "nvl-2"},
    )


@pytest.mark.parametrize("text", ["switches:\n", "blocks:\n"])
def test_a_model_without_a_node_is_none(text: str) -> None:
    with pytest.raises(WiringError, match="no node is in it"):
        topograph.parse_model(text)


def graph(*instances: dict[str, Any]) -> str:
    return json.dumps({"instances": instances}, indent=1)


def instance(name: str, *layers: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "network_layers": list(layers), **more}


ANSWER = graph(
    instance("i-1", "leaf-1", "top", labels={"accelerator.topograph.run/domain": "nvl-1"}),
    instance("i-2", "leaf-2", "spine", "top", attributes={"nvlink": "nvl-2"}, type="H100"),
    {"id": "i-3", "network_layers": None, "labels": None},
)


def test_scale_up_domain_beside_the_attributes_is_read() -> None:
    """The graph engine had it there for some time, and its devices among the attributes."""
    devices = {"gpu": {"status": "ok", "gpus": []}}
    text = graph(instance("a", "leaf", nvlink_domain="nvl-1", attributes=devices))
    assert topograph.parse_graph(text).scale_up_domains == {"a": "nvl-1"}


def test_an_answer_is_read_the_closest_switch_first() -> None:
    assert topograph.parse_graph(ANSWER) == SourceReport(
        "topograph graph",
        Provenance.IMPORTED,
        (
            {"i-1": "leaf-1", "i-2": "leaf-2"},
            {"i-1": "leaf-1", "i-2": "spine"},
            {"i-1": "top", "i-2": "top"},
        ),
        {"i-1": "nvl-1", "i-2": "nvl-2"},
        ("nodes without network layers: 1, the first is i-3",),
    )


@pytest.mark.parametrize(
    ("text", "line", "rule"),
    [
        ("", 1, "no whole JSON document"),
        ('{\n"instances": [', 2, "no whole JSON document"),
        ("[" * 100_000, 1, "values lie too deep"),
        ("[]", 1, "an answer has instances: a list"),
        ('{"instances": {}}', 1, "an answer has instances: a list"),
        (graph(), 1, "no instance is in it"),
        ('{"instances": [3]}', 1, "instance 1 has an id"),
        (graph({"id": "a" * 254}), 1, "instance 1 has an id"),
        (graph(instance("a", "b" * 254)), 4, "a list of names"),
        (graph({"id": ""}), 1, "instance 1 has an id"),
        (graph({"id": "a", "network_layers": "x"}), 4, "a list of names"),
        (graph({"id": "a", "network_layers": [3]}), 4, "a list of names"),
        (graph(instance("a", *"bcdefghijklmnopqrstuv")), 4, "is below 21 switches: too many"),
        (graph(instance("a", labels=[1])), 4, "labels and attributes: mappings"),
        (graph(instance("a", "l"), instance("a", "l")), 4, "node 'a' stands twice"),
        (
            graph(instance("a", "l", "s"), instance("b", "l", "t")),
            14,
            "switch 'l' is in both 's' and 't'",
        ),
        (graph(instance("a", "l", "s"), instance("b", "s", "l")), 6, "is above itself"),
        (graph(instance("a", "l", "l")), 6, "'l' is above itself"),
        (graph(*({"id": "x"} for _ in range(65537))), 1, "more than 65536 instances"),
    ],
)
def test_answer_omission_has_line_and_rule(text: str, line: int, rule: str) -> None:
    stated = remarks(lambda: topograph.parse_graph(text))
    assert re.search(f"line {line}: .*{re.escape(rule)}", stated)


def test_instance_against_most_others_is_left_out() -> None:
    odd = instance("odd", "leaf-1", "elsewhere")
    sound = [instance(f"i-{at}", "leaf-1", "top") for at in range(3)]
    found = topograph.parse_graph(graph(odd, *sound))
    assert found.tiers == topograph.parse_graph(graph(*sound)).tiers
    assert found.strange == (
        "line 4: instance 'odd': 'leaf-1' is below 'elsewhere', and most have it below 'top': "
        "it is left out",
    )


def test_a_number_of_any_length_is_nothing_to_stumble_over() -> None:
    found = topograph.parse_graph(ANSWER.replace('"H100"', "9" * 5000))
    assert found == topograph.parse_graph(ANSWER)


def test_an_answer_of_any_length_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topograph, "CHARACTERS_MAX", 100)
    with pytest.raises(WiringError, match="at most 100"):
        topograph.parse_graph(ANSWER)
