"""Topograph's files -> who stands below which switches, and on which accelerator fabric.

A simulation model (of version 1.0 on) names switches, their children, and blocks of nodes:

    switches:
      spine: {switches: [leaf-1, leaf-2]}
    blocks:
    - switch: leaf-1
      nodes: ["gpu[01-16]"]
      annotations: {accelerator.topology.test/domain: nvl-1}

Before 1.0 the nodes stood at switches or in ``capacity_blocks``, and their accelerator domain was
called ``nvlink``; such models are read too.

What its graph engine answers tells of each instance the switches above it, the closest first:

    {"instances": [{"id": "i-1", "network_layers": ["leaf-1", "spine"], "labels": {}}]}

A switch, a block or an instance that breaks a rule is left out.
"""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from railwright_topology.grouping import group
from railwright_topology.source_reports import Provenance, SourceReport
from railwright_topology.sources import documents, hostlist, strict_json, trees
from railwright_topology.sources.documents import Fields, Value
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.trees import TreeNode
from railwright_topology.wiring import WiringError

MODEL = "topograph model"
GRAPH = "topograph graph"

CHARACTERS_MAX = 1 << 22

SCALE_UP_KEYS = (
    "accelerator.topograph.run/domain",
    "accelerator.topology.test/domain",
    "xclr.topology.nvidia.com/domain",
    "accelerated.topology.nvidia.com/domain-0",
    "accelerated.topology.nvidia.com/level-0",
    "network.topology.nvidia.com/accelerator",
)
"""What Topograph calls an accelerator domain in labels, in its simulations, and before 1.0, the
latest name first."""

_MODEL = ("switches", "blocks", "nodes", "capacity_blocks")
_SWITCH = ("name", "labels", "annotations", "metadata", "switches", "nodes", "capacity_blocks")
_BLOCK = ("switch", "nodes", "labels", "annotations")
_CAPACITY_BLOCK = ("name", "type", "nvlink", "nodes", "attributes", "labels", "annotations")
_STRING = re.compile(r'"([^"\\]{1,253})"')


@dataclass(frozen=True, slots=True)
class _Switch:
    line: int
    children: tuple[str, ...] = ()
    scale_up: str = ""
    hosts: tuple[str, ...] = ()
    capacity_blocks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Block:
    line: int
    switch: str
    nodes: tuple[str, ...]
    scale_up: str


@dataclass(frozen=True, slots=True)
class _Instance:
    """``layers`` are the switches above it, the closest first."""

    line: int
    name: str
    layers: tuple[str, ...]
    scale_up: str


def parse_model(text: str) -> SourceReport:
    """Read a model. Raises WiringError where no node is in it."""
    omissions = Omissions(MODEL)
    model = documents.read(MODEL, text, omissions).fields("a model", _MODEL)
    switches = _switches(model)
    blocks = {f"block {number}": block for number, block in enumerate(_blocks(model, switches), 1)}
    described = (TreeNode(block.line, name, nodes=block.nodes) for name, block in blocks.items())
    members = trees.members(described, omissions)
    if not members:
        raise omissions.refuse("no node is in it")
    nodes = group((blocks[name].switch, node) for node, name in members.items())
    tree = (
        TreeNode(switch.line, name, switch.children, nodes.get(name, ()))
        for name, switch in switches.items()
    )
    inherited = _inherited(switches)
    own = dict(_node_scale_up_domains(model))
    scale_up_domains = {
        node: own.get(node) or blocks[name].scale_up or inherited.get(blocks[name].switch, "")
        for node, name in members.items()
    }
    return SourceReport(
        MODEL,
        Provenance.IMPORTED,
        trees.tiers(tree, omissions) if any(nodes) else (),
        {node: scale_up for node, scale_up in scale_up_domains.items() if scale_up},
        omissions.sentences,
    )


def parse_graph(text: str) -> SourceReport:
    """Read an answer; an instance's id is its node's name. Raises WiringError where it is no such
    answer."""
    omissions = Omissions(GRAPH)
    found: dict[str, _Instance] = {}
    doubtful: set[str] = set()
    entries, lines = _instances(text, omissions), _lines(text)
    for number, entry in enumerate(entries, 1):
        with omissions.part():
            instance = _instance(lines, number, entry)
            if instance.name in found:
                omissions.note(instance.line, f"node {instance.name!r} stands twice")
            if found.setdefault(instance.name, instance) != instance:
                doubtful.add(instance.name)
    if not found:
        raise omissions.refuse("no instance is in it")
    certain = [instance for name, instance in found.items() if name not in doubtful]
    if bare := [instance.name for instance in certain if not instance.layers]:
        rule = f"nodes without network layers: {len(bare)}, the first is {min(bare)}"
        omissions.note(0, rule)
    placed = [*_without_odd(certain, omissions)]
    scale_up = {each.name: each.scale_up for each in certain if each.scale_up}
    tiers = trees.tiers(_above(placed, lines), omissions)
    return SourceReport(GRAPH, Provenance.IMPORTED, tiers, scale_up, omissions.sentences)


def _switches(model: Fields) -> dict[str, _Switch]:
    """Those described, and those that are only named as a child of one."""
    found: dict[str, _Switch] = {}
    for name, entry in _named(model, "switches"):
        with model.omissions.part():
            record = entry.fields("a switch", _SWITCH)
            children, hosts, blocks = (
                tuple(child.text(f"a name in {key}") for child in record.fields[key].each(key))
                if key in record
                else ()
                for key in ("switches", "nodes", "capacity_blocks")
            )
            found[name] = _Switch(entry.line, children, _scale_up(record), hosts, blocks)
    for switch in [*found.values()]:
        for child in switch.children:
            found.setdefault(child, _Switch(switch.line))
    return found


def _named(model: Fields, key: str) -> Iterator[tuple[str, Value]]:
    """The entries of a mapping by their keys, or of a list by their names."""
    if key not in model:
        return
    with model.omissions.part():
        if not isinstance(model[key].content, tuple):
            yield from model[key].entries(key).items()
            return
        for entry in model[key].each(key):
            with model.omissions.part():
                record = entry.fields(f"one of {key}")
                yield record["name"].text("a name"), entry


def _blocks(model: Fields, switches: Mapping[str, _Switch]) -> Iterator[_Block]:
    omissions = model.omissions

    def block(entry: Value) -> _Block:
        record = entry.fields("a block", _BLOCK)
        switch = record["switch"].text("a switch's name") if "switch" in record else ""
        if switch and switch not in switches:
            omissions.add(entry.error(f"{switch[:80]!r} is described nowhere"))
            switch = ""
        return _Block(entry.line, switch, _hosts(record), _scale_up(record))

    yield from model.some("blocks", block)
    above = {block: name for name, switch in switches.items() for block in switch.capacity_blocks}
    at_switches = sorted(name for name, switch in switches.items() if switch.hosts)
    for name, entry in _named(model, "capacity_blocks"):
        with omissions.part():
            record = entry.fields("a capacity block", _CAPACITY_BLOCK)
            # Where switches name their nodes themselves, a capacity block is a reservation.
            if not at_switches:
                yield _Block(entry.line, above.get(name, ""), _hosts(record), _scale_up(record))
    for name in at_switches:
        line, nodes = switches[name].line, list[str]()
        for host in switches[name].hosts:
            with omissions.part():
                nodes += trees.names(MODEL, line, host)
        yield _Block(line, name, tuple(nodes), "")


def _hosts(block: Fields) -> tuple[str, ...]:
    if "nodes" not in block or not block["nodes"].content:
        block.omissions.add(block.value.error("a block has no nodes"))
        return ()
    return tuple(itertools.chain.from_iterable(block["nodes"].some("host lists", trees.expand)))


def _node_scale_up_domains(model: Fields) -> Iterator[tuple[str, str]]:
    for name, entry in _named(model, "nodes"):
        with model.omissions.part():
            if scale_up := _scale_up(entry.fields("a node")):
                yield name, scale_up


def _scale_up(record: Fields) -> str:
    for place in ("annotations", "labels"):
        labels = record[place].entries(place) if place in record else {}
        for key in SCALE_UP_KEYS:
            if key in labels:
                return labels[key].text("an accelerator domain")
    older = record.fields
    if "attributes" in record:
        older = record["attributes"].entries("attributes")
    return older["nvlink"].text("an NVLink domain") if "nvlink" in older else ""


def _inherited(switches: Mapping[str, _Switch]) -> dict[str, str]:
    """The island that each switch hands down: its own, or that of the nearest above it."""
    above = {child: name for name, switch in switches.items() for child in switch.children}
    found: dict[str, str] = {}
    for name in switches:
        path: dict[str, None] = {}
        at: str | None = name
        while at is not None and at not in path and at not in found:
            path[at] = None
            at = None if switches[at].scale_up else above.get(at)
        scale_up = found.get(at or "") or switches[[*path][-1]].scale_up if path else ""
        found |= dict.fromkeys(path, scale_up)
    return found


def _instances(text: str, omissions: Omissions) -> Sequence[object]:
    if len(text) > CHARACTERS_MAX:
        raise WiringError(GRAPH, 1, f"has {len(text)} characters, at most {CHARACTERS_MAX}")
    answer = strict_json.read(GRAPH, text, omissions)
    instances = answer.get("instances") if isinstance(answer, dict) else None
    if not isinstance(instances, list):
        raise WiringError(GRAPH, 1, "an answer has instances: a list")
    if len(instances) > trees.NAMES_MAX:
        raise WiringError(GRAPH, 1, f"has more than {trees.NAMES_MAX} instances: too many")
    return instances


def _lines(text: str) -> dict[str, int]:
    """Where each text stands first: JSON's own reader keeps no lines."""
    found: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for string in _STRING.findall(line):
            found.setdefault(string, number)
    return found


def _instance(lines: Mapping[str, int], number: int, entry: object) -> _Instance:
    if not isinstance(entry, dict) or not (name := _name(entry.get("id"))):
        raise WiringError(GRAPH, 1, f"instance {number} has an id: a name")
    line = lines.get(name, 1)
    # A list without entries comes as null, a map as nothing.
    layers: Any = entry.get("network_layers") or []
    labels: Any = entry.get("labels") or {}
    attributes: Any = entry.get("attributes") or {}
    if rule := _broken_rule(layers, labels, attributes):
        raise WiringError(GRAPH, line, f"instance {name!r} {rule}")
    older = attributes.get("nvlink"), entry.get("nvlink_domain")
    domains = [*(labels.get(key) for key in SCALE_UP_KEYS), *older]
    scale_up = next((each for each in domains if isinstance(each, str) and each), "")
    layers_above = itertools.takewhile(lambda layer: not trees.is_placeholder(layer), layers)
    return _Instance(line, name, tuple(layers_above), scale_up)


def _broken_rule(layers: object, labels: object, attributes: object) -> str:
    """What an instance has to have, and has not; empty where nothing is amiss."""
    if not isinstance(layers, list) or not all(map(_name, layers)):
        return "has network_layers: a list of names"
    if len(layers) > trees.TIERS_MAX:
        return f"is below {len(layers)} switches: too many"
    if not isinstance(labels, dict) or not isinstance(attributes, dict):
        return "has labels and attributes: mappings"
    return ""


def _name(value: object) -> str:
    """The value where it can be a name, or else nothing."""
    return value if isinstance(value, str) and len(value) <= hostlist.NAME_MAX else ""


def _without_odd(instances: Sequence[_Instance], omissions: Omissions) -> Iterator[_Instance]:
    """Without those that put a switch below another than most instances do."""
    votes: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for instance in instances:
        for switch, above in itertools.pairwise(instance.layers):
            votes[switch][above] += 1
    usual = {
        switch: above
        for switch, counts in votes.items()
        for above, count in counts.most_common(1)
        if 2 * count > counts.total()
    }
    for instance in instances:
        for switch, above in itertools.pairwise(instance.layers):
            if usual.get(switch, above) != above:
                rule = f"{switch!r} is below {above!r}, and most have it below {usual[switch]!r}"
                rule = f"instance {instance.name!r}: {rule}: it is left out"
                omissions.note(instance.line, rule)
                break
        else:
            yield instance


def _above(instances: Sequence[_Instance], lines: Mapping[str, int]) -> Iterator[TreeNode]:
    links = dict.fromkeys(link for each in instances for link in itertools.pairwise(each.layers))
    children = group((above, switch) for switch, above in links)
    nodes = group((each.layers[0], each.name) for each in instances if each.layers)
    for name in sorted(children.keys() | nodes.keys()):
        yield TreeNode(lines.get(name, 1), name, children.get(name, ()), nodes.get(name, ()))
