"""Topograph's files -> who stands below which switches, and on which accelerator fabric.

A simulation model (of version 1.0 on) names switches, their children, and blocks of nodes:

    switches:
      spine: {switches: [leaf-1, leaf-2]}
    blocks:
    - switch: leaf-1
      nodes: ["gpu[01-16]"]
      annotations: {accelerator.topology.test/domain: nvl-1}

What its graph engine answers tells of each instance the switches above it, the closest first:

    {"instances": [{"id": "i-1", "network_layers": ["leaf-1", "spine"], "labels": {}}]}
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from railwright_topology.accounts import Account, Basis
from railwright_topology.sources import documents, hostlist, trees
from railwright_topology.sources.documents import Value
from railwright_topology.sources.trees import Switch
from railwright_topology.wiring import WiringError

MODEL = "topograph model"
GRAPH = "topograph graph"

CHARACTERS_MAX = 1 << 22

ISLAND_KEYS = (
    "accelerator.topograph.run/domain",
    "accelerator.topology.test/domain",
    "network.topology.nvidia.com/accelerator",
)
"""What Topograph calls an accelerator domain in labels, in its simulations, and before 1.0."""


@dataclass(frozen=True, slots=True)
class _Switch:
    line: int
    children: tuple[str, ...]
    island: str


@dataclass(frozen=True, slots=True)
class _Block:
    line: int
    switch: str
    hosts: str
    island: str


def parse_model(text: str) -> Account:
    """Read a whole model. Raises WiringError where it is none, or of an older kind."""
    model = documents.read(MODEL, text).fields("a model", ("switches", "blocks"))
    switches = _switches(model["switches"]) if "switches" in model else {}
    listed = model["blocks"].each("blocks") if "blocks" in model else ()
    blocks = {f"block {number}": _block(entry) for number, entry in enumerate(listed, 1)}
    for block in blocks.values():
        if block.switch and block.switch not in switches:
            raise WiringError(MODEL, block.line, f"{block.switch!r} is described nowhere")
    members = trees.members(
        MODEL,
        (
            Switch(block.line, name, nodes=trees.names(MODEL, block.line, block.hosts))
            for name, block in blocks.items()
        ),
    )
    if not members:
        raise WiringError(MODEL, 1, "no node is in it")
    plugged: dict[str, list[str]] = {}
    for node, name in members.items():
        if blocks[name].switch:
            plugged.setdefault(blocks[name].switch, []).append(node)
    found = (
        Switch(switch.line, name, switch.children, plugged.get(name, ()))
        for name, switch in switches.items()
    )
    tiers = trees.tiers(MODEL, found) if plugged else ()
    inherited = _inherited(switches) if plugged else {}
    islands = {
        node: island
        for node, name in members.items()
        if (island := blocks[name].island or inherited.get(blocks[name].switch))
    }
    return Account(MODEL, Basis.TOLD, tiers, islands)


def parse_graph(text: str) -> Account:
    """Read a whole answer; an instance's id is its node's name. Raises WiringError where it is no
    such answer."""
    leaves: dict[str, str] = {}
    parents: dict[str, str] = {}
    islands: dict[str, str] = {}
    bare = []
    instances = [_instance(text, at, entry) for at, entry in enumerate(_instances(text), 1)]
    for node, layers, island in instances:
        for switch, above in itertools.pairwise(layers):
            if parents.setdefault(switch, above) != above:
                rule = f"{switch!r} is below both {parents[switch]!r} and {above!r}"
                raise _error(text, node, rule)
        if node in leaves:
            raise _error(text, node, f"node {node!r} stands twice")
        leaves[node] = layers[0] if layers else ""
        if not layers:
            bare.append(node)
        if island:
            islands[node] = island
    if not leaves:
        raise WiringError(GRAPH, 1, "no instance is in it")
    strange = []
    if bare:
        strange.append(f"nodes without network layers: {len(bare)}, the first is {min(bare)}")
    return Account(GRAPH, Basis.TOLD, _tiers(leaves, parents), islands, tuple(strange))


def _switches(described: Value) -> dict[str, _Switch]:
    """Those described, and those that are only named as a child of one."""
    found = {}
    for name, entry in described.entries("switches").items():
        fields = entry.fields("a switch", ("labels", "annotations", "switches"))
        children = fields["switches"].each("switches") if "switches" in fields else ()
        names = tuple(child.text("a switch's name") for child in children)
        found[name] = _Switch(entry.line, names, _island(fields))
    for switch in tuple(found.values()):
        for child in switch.children:
            found.setdefault(child, _Switch(switch.line, (), ""))
    return found


def _block(entry: Value) -> _Block:
    fields = entry.fields("a block", ("switch", "nodes", "labels", "annotations"))
    hosts = fields["nodes"].each("host lists") if "nodes" in fields else ()
    if not hosts:
        raise entry.error("a block has nodes")
    return _Block(
        entry.line,
        fields["switch"].text("a switch's name") if "switch" in fields else "",
        ",".join(host.text("a host list") for host in hosts),
        _island(fields),
    )


def _island(fields: Mapping[str, Value]) -> str:
    for place in ("annotations", "labels"):
        said = fields[place].entries(place) if place in fields else {}
        for key in ISLAND_KEYS:
            if key in said:
                return said[key].text("an accelerator domain")
    return ""


def _inherited(switches: Mapping[str, _Switch]) -> dict[str, str]:
    """The island that each switch hands down: its own, or that of the nearest above it."""
    above = {child: name for name, switch in switches.items() for child in switch.children}
    found = {}
    for name in switches:
        at: str | None = name
        while at is not None and not switches[at].island:
            at = above.get(at)
        if at is not None:
            found[name] = switches[at].island
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


def _instance(text: str, number: int, entry: Any) -> tuple[str, list[str], str]:
    """An instance's id, the switches above it and its island."""
    name = _name(entry.get("id")) if isinstance(entry, dict) else ""
    if not name:
        raise WiringError(GRAPH, 1, f"instance {number} has an id: a name")
    # A list without entries comes as null, a map as nothing.
    layers = entry.get("network_layers") or []
    if not isinstance(layers, list) or not all(map(_name, layers)):
        raise _error(text, name, f"instance {name!r} has network_layers: a list of names")
    if len(layers) > trees.TIERS_MAX:
        raise _error(text, name, f"instance {name!r} is below {len(layers)} switches: too many")
    labels, attributes = entry.get("labels") or {}, entry.get("attributes") or {}
    if not isinstance(labels, dict) or not isinstance(attributes, dict):
        raise _error(text, name, f"instance {name!r} has labels and attributes: mappings")
    said = [*(labels.get(key) for key in ISLAND_KEYS), attributes.get("nvlink")]
    return name, layers, next((each for each in said if isinstance(each, str) and each), "")


def _name(value: object) -> str:
    """The value where it can be a name, or else nothing."""
    return value if isinstance(value, str) and len(value) <= hostlist.NAME_MAX else ""


def _tiers(leaves: Mapping[str, str], parents: Mapping[str, str]) -> tuple[Mapping[str, str], ...]:
    children: dict[str, list[str]] = {}
    for switch, above in parents.items():
        children.setdefault(above, []).append(switch)
    plugged: dict[str, list[str]] = {}
    for node, leaf in leaves.items():
        if leaf:
            plugged.setdefault(leaf, []).append(node)
    if not plugged:
        return ()
    switches = sorted({*parents, *children, *plugged})
    return trees.tiers(
        GRAPH, (Switch(1, name, children.get(name, ()), plugged.get(name, ())) for name in switches)
    )


def _error(text: str, name: str, rule: str) -> WiringError:
    """JSON's own reader keeps no lines: what is wrong of an instance is where its id is found."""
    at = max(text.find(json.dumps(name)), 0)
    return WiringError(GRAPH, text.count("\n", 0, at) + 1, rule)
