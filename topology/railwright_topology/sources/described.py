"""The insides of nodes as their site declares them: any maker's, and whatever no tool tells.

    version: 1
    kinds:
    - nodes: npu-[001-064]                      # left out in a file that lies on the node itself
      accelerators:                             # in the order of their numbers
      - {pci: "0000:c1:00.0", numa: 0}
      - {pci: "0000:c2:00.0", numa: 0}
      links:                                    # each two of those that are named
      - {technology: HCCS, among: [0, 1], count: 1, speed: 240 Gb/s}
      adapters:
      - {name: roce0, speed: 200 Gb/s, layer: Ethernet, beside: [0], role: rail, rail: 0}
      - {name: eth0, speed: 25 Gb/s, layer: Ethernet, role: front-end}

Everything may be left out but an adapter's name; what is left out is not known. ``links: []`` says
that there are none. A link's speed is that of all its count between two, one way. What breaks a
rule is left out alone: a field, an adapter, a kind of node.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from railwright_topology.accounts import Basis
from railwright_topology.parts import (
    LINKS_MAX,
    PARTS_MAX,
    Distance,
    Kind,
    Layer,
    Link,
    Look,
    Looks,
    Pair,
    Part,
    Role,
    Technology,
    pair,
)
from railwright_topology.sources import documents, links, pci, trees
from railwright_topology.sources.documents import Value
from railwright_topology.sources.omissions import Omissions

SOURCE = "description"
VERSION = "1"

_FIELDS = ("version", "kinds")
_KIND_FIELDS = ("nodes", "accelerators", "links", "adapters")
_ACCELERATOR_FIELDS = ("pci", "numa", "model")
_LINK_FIELDS = ("technology", "among", "count", "speed")
_ADAPTER_FIELDS = ("name", "pci", "numa", "model", "speed", "layer", "beside", "role", "rail")

_SPEED = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?) Gb/s")
_MODEL = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
_NUMBER_MAX = 1024

E = TypeVar("E", bound=StrEnum)
Fields = Mapping[str, Value]


@dataclass(slots=True)
class _Found:
    omissions: Omissions
    parts: list[Part] = field(default_factory=list)
    links: dict[tuple[Pair, Technology], Link] = field(default_factory=dict)
    tells: frozenset[Technology] = frozenset()
    distances: dict[Pair, Distance] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    accelerators: dict[int, str] = field(default_factory=dict)
    """Ids by their places; one that is left out keeps its place."""

    def add(self, value: Value, part: Part) -> None:
        for its in {part.id, part.pci} - {""}:
            if its in self.taken:
                raise value.error(f"{its[:80]!r} is described twice")
        if len(self.parts) == PARTS_MAX:
            raise value.error(f"has more than {PARTS_MAX} accelerators and adapters")
        self.taken |= {part.id, part.pci} - {""}
        self.parts.append(part)


def parse(text: str) -> Looks:
    """Read the description of a site. Raises WiringError where no kind of node is left of it."""
    omissions = Omissions(SOURCE)
    by_host: dict[str, tuple[Look, ...]] = {}
    for value in _kinds(text, omissions):
        with omissions.part():
            fields = value.fields("a kind of node", _KIND_FIELDS, omissions)
            if "nodes" not in fields:
                raise value.error("nodes is not there: a host list of those that are so inside")
            said = fields["nodes"]
            nodes = trees.names(SOURCE, said.line, said.text("a host list"))
            looks = (_look(fields, omissions),)
            for node in nodes:
                if len(by_host) == trees.NAMES_MAX:
                    raise said.error(f"is past {trees.NAMES_MAX} nodes: too many")
                if by_host.setdefault(node, looks) is not looks:
                    omissions.add(said.error(f"{node!r} is described twice: the first counts"))
    if not by_host:
        raise omissions.refuse("no kind of node is in it")
    return Looks(SOURCE, by_host, remarks=omissions.sentences)


def parse_own(text: str) -> Look:
    """Read the description that lies on the node that it is of. Raises WiringError as ``parse``."""
    omissions = Omissions(SOURCE)
    kinds = _kinds(text, omissions)
    fields = kinds[0].fields("a kind of node", _KIND_FIELDS, omissions)
    if len(kinds) > 1 or "nodes" in fields:
        raise kinds[0].error("on a node itself one kind is described, and no nodes are named")
    return replace(_look(fields, omissions), remarks=omissions.sentences)


def _kinds(text: str, omissions: Omissions) -> tuple[Value, ...]:
    document = documents.read(SOURCE, text, omissions)
    fields = document.fields("a description", _FIELDS, omissions)
    for key in _FIELDS:
        if key not in fields:
            raise document.error(f"a description has {', '.join(_FIELDS)}; {key} is not there")
    if (version := fields["version"].text("a version")) != VERSION:
        omissions.note(fields["version"].line, f"version {version[:16]!r} is read as {VERSION}")
    kinds = fields["kinds"].each("kinds of nodes")
    if not kinds:
        raise fields["kinds"].error("no kind of node is in it")
    return kinds


def _look(fields: Fields, omissions: Omissions) -> Look:
    found = _Found(omissions)
    for number, value in enumerate(_each(fields, "accelerators", omissions)):
        with omissions.part():
            its = value.fields("an accelerator", _ACCELERATOR_FIELDS, omissions)
            address = _address(its, omissions)
            part = Part(
                address or f"accelerator {number}",
                Kind.ACCELERATOR,
                address,
                number=number,
                model=_model(its, omissions),
                numa=_number(its, "numa", omissions),
            )
            found.add(value, part)
            found.accelerators[number] = part.id
    for value in _each(fields, "links", omissions):
        with omissions.part():
            _link(value, found)
    if "links" in fields:
        # That there are none is a statement about each technology.
        named = frozenset(technology for _, technology in found.links)
        found.tells = named or frozenset(Technology)
    for value in _each(fields, "adapters", omissions):
        with omissions.part():
            _adapter(value, found)
    return Look(
        SOURCE,
        Basis.DECLARED,
        tuple(found.parts),
        tuple(found.links.values()),
        found.distances,
        found.tells,
    )


def _link(value: Value, found: _Found) -> None:
    fields = value.fields("links", _LINK_FIELDS, found.omissions)
    technology = _word(value, fields, "technology", Technology)
    if technology is None:
        raise value.error("technology is not there")
    count = _number(fields, "count", found.omissions) or 0
    if count > links.COUNT_MAX:
        raise fields["count"].error(f"{count}: at most {links.COUNT_MAX} links are between two")
    speed = _speed(fields, found.omissions)
    for one, other in itertools.combinations(_among(fields, "among", found), 2):
        key = pair(one, other), technology
        if key in found.links:
            raise value.error(f"{one} and {other} are linked twice")
        if len(found.links) == LINKS_MAX:
            raise value.error(f"more than {LINKS_MAX} pairs are linked")
        found.links[key] = Link(key[0], technology, count, speed)


def _adapter(value: Value, found: _Found) -> None:
    omissions = found.omissions
    fields = value.fields("an adapter", _ADAPTER_FIELDS, omissions)
    if "name" not in fields:
        raise value.error("an adapter has a name")
    name = fields["name"].text("an adapter's name")
    if len(name) > 253 or not name.isprintable():
        raise fields["name"].error("an adapter's name has up to 253 printable characters")
    role = layer = None
    with omissions.part():
        role = _word(value, fields, "role", Role)
    with omissions.part():
        layer = _word(value, fields, "layer", Layer)
    rail = _number(fields, "rail", omissions)
    if rail is not None and role != Role.RAIL:
        omissions.add(fields["rail"].error(f"a rail is there where role is {Role.RAIL}"))
        rail = None
    part = Part(
        name,
        Kind.ADAPTER,
        _address(fields, omissions),
        names=(name,),
        model=_model(fields, omissions),
        numa=_number(fields, "numa", omissions),
        bytes_per_s=_speed(fields, omissions),
        layer=layer,
        rail=rail,
        role=None if role == Role.UNDECIDED else role,
    )
    found.add(value, part)
    for accelerator in _among(fields, "beside", found):
        found.distances[pair(part.id, accelerator)] = Distance.SWITCH


def _each(fields: Fields, name: str, omissions: Omissions) -> tuple[Value, ...]:
    with omissions.part():
        return fields[name].each(name) if name in fields else ()
    return ()


def _among(fields: Fields, name: str, found: _Found) -> list[str]:
    """Accelerators by their numbers, each once."""
    its: list[str] = []
    for value in _each(fields, name, found.omissions):
        with found.omissions.part():
            number = _whole(value)
            accelerator = found.accelerators.get(number)
            if accelerator is None or accelerator in its:
                last = max(found.accelerators, default=0)
                raise value.error(f"{number}: accelerators 0 to {last} stand here, each once")
            its.append(accelerator)
    return its


def _number(fields: Fields, name: str, omissions: Omissions) -> int | None:
    with omissions.part():
        return _whole(fields[name]) if name in fields else None
    return None


def _whole(value: Value) -> int:
    said = value.text("a number")
    if not said.isascii() or not said.isdigit() or len(said) > 5 or int(said) > _NUMBER_MAX:
        raise value.error(f"{said[:80]!r}: a number up to {_NUMBER_MAX} stands here")
    return int(said)


def _speed(fields: Fields, omissions: Omissions) -> int:
    with omissions.part():
        if "speed" in fields:
            said = fields["speed"].text("a speed")
            if found := _SPEED.fullmatch(said):
                return round(float(found[1]) * 1e9 / 8)
            raise fields["speed"].error(f"{said[:80]!r}: a speed stands here, such as 200 Gb/s")
    return 0


def _address(fields: Fields, omissions: Omissions) -> str:
    with omissions.part():
        if "pci" in fields:
            said = fields["pci"].text("a PCI address")
            if found := pci.address(said):
                return found
            raise fields["pci"].error(f"{said[:80]!r}: a PCI address stands here, 0000:17:00.0")
    return ""


def _model(fields: Fields, omissions: Omissions) -> str:
    with omissions.part():
        if "model" in fields:
            said = fields["model"].text("a model")
            if _MODEL.fullmatch(said):
                return said
            rule = "PCI vendor and device stand here, 10de:2330"
            raise fields["model"].error(f"{said[:80]!r}: {rule}")
    return ""


def _word(value: Value, fields: Fields, name: str, known: type[E]) -> E | None:
    if name not in fields:
        return None
    said = fields[name].text(f"a {name}")
    if said not in {each.value for each in known}:
        words = ", ".join(each.value for each in known)
        raise value.error(f"{name} {said[:80]!r}: one of these stands here: {words}")
    return known(said)
