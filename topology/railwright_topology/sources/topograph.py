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
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from railwright_topology.accounts import Account, Basis
from railwright_topology.sources import documents, hostlist, trees
from railwright_topology.sources.documents import Value
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.trees import Switch
from railwright_topology.wiring import WiringError

MODEL = "topograph model"
GRAPH = "topograph graph"

CHARACTERS_MAX = 1 << 22

ISLAND_KEYS = (
    "accelerator.topograph.run/domain",
    "accelerator.topology.test/domain",
    "xclr.topology.nvidia.com/domain",
    "accelerated.topology.nvidia.com/domain-0",
    "accelerated.topology.nvidia.com/level-0",
    "network.topology.nvidia.com/accelerator",
)
"""What Topograph calls an accelerator domain in labels, in its simulations, and before 1.0, the
latest name first."""


_SWITCH = ("name", "labels", "annotations", "metadata", "switches", "nodes", "capacity_blocks")
_BLOCK = ("switch", "nodes", "labels", "annotations")
_CAPACITY_BLOCK = ("name", "type", "nvlink", "nodes", "attributes", "labels", "annotations")
_STRING = re.compile(r'"([^"\\]{1,253})"')


@dataclass(frozen=True, slots=True)
class _Switch:
    line: int
    children: tuple[str, ...] = ()
    island: str = ""
    hosts: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    """Names of its capacity blocks."""


@dataclass(frozen=True, slots=True)
class _Block:
    line: int
    switch: str
    nodes: tuple[str, ...]
    island: str


@dataclass(frozen=True, slots=True)
class _Instance:
    """``layers`` are the switches above it, the closest first."""

    name: str
    layers: tuple[str, ...]
    island: str


def parse_model(text: str) -> Account:
    """Read a model. Raises WiringError where no node is in it."""
    omissions = Omissions(MODEL)
    known = ("switches", "blocks", "nodes", "capacity_blocks")
    model = documents.read(MODEL, text, omissions).fields("a model", known, omissions)
    switches = dict(_switches(model, omissions))
    blocks = {
        f"block {number}": block
        for number, block in enumerate(_blocks(model, switches, omissions), 1)
    }
    described = (Switch(block.line, name, nodes=block.nodes) for name, block in blocks.items())
    members = trees.members(described, omissions)
    if not members:
        raise omissions.refuse("no node is in it")
    plugged: dict[str, list[str]] = {}
    for node, name in members.items():
        if blocks[name].switch:
            plugged.setdefault(blocks[name].switch, []).append(node)
    found = (
        Switch(switch.line, name, switch.children, plugged.get(name, ()))
        for name, switch in switches.items()
    )
    tiers = trees.tiers(found, omissions) if plugged else ()
    inherited = _inherited(switches)
    own = dict(_node_islands(model, omissions))
    islands = {
        node: island
        for node, name in members.items()
        if (island := own.get(node) or blocks[name].island or inherited.get(blocks[name].switch))
    }
    return Account(MODEL, Basis.TOLD, tiers, islands, omissions.sentences)


def parse_graph(text: str) -> Account:
    """Read an answer; an instance's id is its node's name. Raises WiringError where it is no such
    answer."""
    omissions = Omissions(GRAPH)
    lines = _lines(text)
    found: dict[str, _Instance] = {}
    doubtful: set[str] = set()
    for number, entry in enumerate(_instances(text), 1):
        with omissions.part():
            instance = _instance(lines, number, entry)
            line = lines.get(instance.name, 1)
            if instance.name in found:
                omissions.note(line, f"node {instance.name!r} stands twice")
            if found.setdefault(instance.name, instance) != instance:
                doubtful.add(instance.name)
    if not found:
        raise omissions.refuse("no instance is in it")
    sure = [instance for name, instance in found.items() if name not in doubtful]
    if bare := [instance.name for instance in sure if not instance.layers]:
        said = f"nodes without network layers: {len(bare)}, the first is {min(bare)}"
        omissions.note(0, said)
    placed = [*_of_one_mind(sure, lines, omissions)]
    islands = {instance.name: instance.island for instance in sure if instance.island}
    tiers = trees.tiers(_above(placed, lines), omissions)
    return Account(GRAPH, Basis.TOLD, tiers, islands, omissions.sentences)


def _switches(model: Mapping[str, Value], omissions: Omissions) -> Iterator[tuple[str, _Switch]]:
    """Those described, and those that are only named as a child of one."""
    found: dict[str, _Switch] = {}
    for name, entry in _named(model, "switches", omissions):
        with omissions.part():
            fields = entry.fields("a switch", _SWITCH, omissions)
            names = {
                key: tuple(child.text(f"a name in {key}") for child in fields[key].each(key))
                for key in ("switches", "nodes", "capacity_blocks")
                if key in fields
            }
            found[name] = _Switch(
                entry.line,
                names.get("switches", ()),
                _island(fields),
                names.get("nodes", ()),
                names.get("capacity_blocks", ()),
            )
    yield from found.items()
    children = ((child, its.line) for its in found.values() for child in its.children)
    yield from ((child, _Switch(line)) for child, line in children if child not in found)


def _named(
    model: Mapping[str, Value], key: str, omissions: Omissions
) -> Iterator[tuple[str, Value]]:
    """The entries of a mapping by their keys, or of a list by their names."""
    value = model.get(key)
    if value is None:
        return
    with omissions.part():
        if not isinstance(value.content, tuple):
            yield from value.entries(key).items()
            return
        for entry in value.content:
            with omissions.part():
                fields = entry.entries(f"one of {key}")
                if "name" not in fields:
                    raise entry.error(f"one of {key} has a name")
                yield fields["name"].text("a name"), entry


def _blocks(
    model: Mapping[str, Value], switches: Mapping[str, _Switch], omissions: Omissions
) -> Iterator[_Block]:
    listed: tuple[Value, ...] = ()
    with omissions.part():
        listed = model["blocks"].each("blocks") if "blocks" in model else ()
    for entry in listed:
        with omissions.part():
            fields = entry.fields("a block", _BLOCK, omissions)
            switch = fields["switch"].text("a switch's name") if "switch" in fields else ""
            if switch and switch not in switches:
                omissions.note(entry.line, f"{switch[:80]!r} is described nowhere")
                switch = ""
            yield _Block(entry.line, switch, _hosts(entry, fields, omissions), _island(fields))
    above = {block: name for name, switch in switches.items() for block in switch.blocks}
    at_switches = {name for name, switch in switches.items() if switch.hosts}
    for name, entry in _named(model, "capacity_blocks", omissions):
        with omissions.part():
            fields = entry.fields("a capacity block", _CAPACITY_BLOCK, omissions)
            # Where switches name their nodes themselves, a capacity block is a reservation.
            if not at_switches:
                nodes = _hosts(entry, fields, omissions)
                yield _Block(entry.line, above.get(name, ""), nodes, _island(fields))
    for name in sorted(at_switches):
        line, plugged = switches[name].line, list[str]()
        for host in switches[name].hosts:
            with omissions.part():
                plugged += trees.names(MODEL, line, host)
        yield _Block(line, name, tuple(plugged), "")


def _hosts(entry: Value, fields: Mapping[str, Value], omissions: Omissions) -> tuple[str, ...]:
    hosts = fields["nodes"].each("host lists") if "nodes" in fields else ()
    if not hosts:
        omissions.note(entry.line, "a block has no nodes")
    found: list[str] = []
    for host in hosts:
        with omissions.part():
            found += trees.names(MODEL, host.line, host.text("a host list"))
    return tuple(found)


def _node_islands(model: Mapping[str, Value], omissions: Omissions) -> Iterator[tuple[str, str]]:
    for name, entry in _named(model, "nodes", omissions):
        with omissions.part():
            if island := _island(entry.entries("a node")):
                yield name, island


def _island(fields: Mapping[str, Value]) -> str:
    for place in ("annotations", "labels"):
        said = fields[place].entries(place) if place in fields else {}
        for key in ISLAND_KEYS:
            if key in said:
                return said[key].text("an accelerator domain")
    older = fields["attributes"].entries("attributes") if "attributes" in fields else fields
    return older["nvlink"].text("an NVLink domain") if "nvlink" in older else ""


def _inherited(switches: Mapping[str, _Switch]) -> dict[str, str]:
    """The island that each switch hands down: its own, or that of the nearest above it."""
    above = {child: name for name, switch in switches.items() for child in switch.children}
    found: dict[str, str] = {}
    for name in switches:
        path: dict[str, None] = {}
        at: str | None = name
        while at is not None and at not in path and not switches[at].island and at not in found:
            path[at] = None
            at = above.get(at)
        if at is not None and at not in path:
            found.update(dict.fromkeys([*path, at], found.get(at) or switches[at].island))
    return found


def _instances(text: str) -> list[Any]:
    if len(text) > CHARACTERS_MAX:
        raise WiringError(GRAPH, 1, f"has {len(text)} characters, at most {CHARACTERS_MAX}")
    try:
        # Numbers mean nothing here, and whole ones of any length are an error of their own.
        answer = json.loads(text, parse_int=float)
    except json.JSONDecodeError as broken:
        raise WiringError(GRAPH, broken.lineno, f"is not JSON: {broken.msg}") from None
    except RecursionError:
        raise WiringError(GRAPH, 1, "is too deep to be read") from None
    instances = answer.get("instances") if isinstance(answer, dict) else None
    if not isinstance(instances, list):
        raise WiringError(GRAPH, 1, "an answer has instances: a list")
    if len(instances) > trees.NAMES_MAX:
        raise WiringError(GRAPH, 1, f"has more than {trees.NAMES_MAX} instances: too many")
    return instances


def _lines(text: str) -> dict[str, int]:
    """Where each text stands first: JSON's own reader keeps no lines."""
    found: dict[str, int] = {}
    if len(text) <= CHARACTERS_MAX:
        for number, line in enumerate(text.splitlines(), 1):
            for said in _STRING.findall(line):
                found.setdefault(said, number)
    return found


def _instance(lines: Mapping[str, int], number: int, entry: Any) -> _Instance:
    name = _name(entry.get("id")) if isinstance(entry, dict) else ""
    if not name:
        raise WiringError(GRAPH, 1, f"instance {number} has an id: a name")
    line = lines.get(name, 1)
    # A list without entries comes as null, a map as nothing.
    layers = entry.get("network_layers") or []
    if not isinstance(layers, list) or not all(map(_name, layers)):
        rule = f"instance {name!r} has network_layers: a list of names"
        raise WiringError(GRAPH, line, rule)
    if len(layers) > trees.TIERS_MAX:
        rule = f"instance {name!r} is below {len(layers)} switches: too many"
        raise WiringError(GRAPH, line, rule)
    labels, attributes = entry.get("labels") or {}, entry.get("attributes") or {}
    if not isinstance(labels, dict) or not isinstance(attributes, dict):
        rule = f"instance {name!r} has labels and attributes: mappings"
        raise WiringError(GRAPH, line, rule)
    said = [*(labels.get(key) for key in ISLAND_KEYS), attributes.get("nvlink")]
    island = next((each for each in said if isinstance(each, str) and each), "")
    known = itertools.takewhile(lambda layer: not trees.is_placeholder(layer), layers)
    return _Instance(name, tuple(known), island)


def _name(value: object) -> str:
    """The value where it can be a name, or else nothing."""
    return value if isinstance(value, str) and len(value) <= hostlist.NAME_MAX else ""


def _of_one_mind(
    instances: Sequence[_Instance], lines: Mapping[str, int], omissions: Omissions
) -> Iterator[_Instance]:
    """Without those that put a switch below another than most instances do."""
    votes: dict[str, collections.Counter[str]] = {}
    for instance in instances:
        for switch, above in itertools.pairwise(instance.layers):
            votes.setdefault(switch, collections.Counter())[above] += 1
    usual = {
        switch: above
        for switch, counts in votes.items()
        for above, count in counts.items()
        if 2 * count > counts.total()
    }
    for instance in instances:
        odd = next(
            (
                (switch, above)
                for switch, above in itertools.pairwise(instance.layers)
                if usual.get(switch, above) != above
            ),
            None,
        )
        if odd is None:
            yield instance
            continue
        rule = f"{odd[0]!r} is below {odd[1]!r}, and most have it below {usual[odd[0]]!r}"
        line = lines.get(instance.name, 1)
        omissions.note(line, f"instance {instance.name!r}: {rule}: it is left out")


def _above(instances: Iterable[_Instance], lines: Mapping[str, int]) -> Iterator[Switch]:
    children: dict[str, dict[str, None]] = {}
    plugged: dict[str, list[str]] = {}
    for instance in instances:
        for switch, above in itertools.pairwise(instance.layers):
            children.setdefault(above, {})[switch] = None
        for layer in instance.layers:
            children.setdefault(layer, {})
        if instance.layers:
            plugged.setdefault(instance.layers[0], []).append(instance.name)
    for name, below in sorted(children.items()):
        yield Switch(lines.get(name, 1), name, [*below], plugged.get(name, ()))
