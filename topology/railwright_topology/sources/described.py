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
that there are none. A link's speed is that of all its count between two, one way.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
    parts: list[Part] = field(default_factory=list)
    links: dict[tuple[Pair, Technology], Link] = field(default_factory=dict)
    tells: frozenset[Technology] = frozenset()
    distances: dict[Pair, Distance] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def add(self, value: Value, part: Part) -> None:
        for its in {part.id, part.pci} - {""}:
            if its in self.taken:
                raise value.error(f"{its[:80]!r} is described twice")
            self.taken.add(its)
        if len(self.parts) == PARTS_MAX:
            raise value.error(f"has more than {PARTS_MAX} accelerators and adapters")
        self.parts.append(part)


def parse(text: str) -> Looks:
    """Read the description of a site. Raises WiringError where it breaks a rule of the format."""
    by_host: dict[str, tuple[Look, ...]] = {}
    for value in _kinds(text):
        fields = value.fields("a kind of node", _KIND_FIELDS)
        if "nodes" not in fields:
            raise value.error("nodes is not there: a host list of those that are so inside")
        looks = (_look(fields),)
        said = fields["nodes"]
        for node in trees.names(SOURCE, said.line, said.text("a host list")):
            if node in by_host:
                raise said.error(f"{node!r} is described twice")
            if len(by_host) == trees.NAMES_MAX:
                raise said.error(f"is past {trees.NAMES_MAX} nodes: too many")
            by_host[node] = looks
    return Looks(SOURCE, by_host)


def parse_own(text: str) -> Look:
    """Read the description that lies on the node that it is of. Raises WiringError as ``parse``."""
    kinds = _kinds(text)
    fields = kinds[0].fields("a kind of node", _KIND_FIELDS)
    if len(kinds) > 1 or "nodes" in fields:
        raise kinds[0].error("on a node itself one kind is described, and no nodes are named")
    return _look(fields)


def _kinds(text: str) -> tuple[Value, ...]:
    document = documents.read(SOURCE, text)
    fields = document.fields("a description", _FIELDS)
    for key in _FIELDS:
        if key not in fields:
            raise document.error(f"a description has {', '.join(_FIELDS)}; {key} is not there")
    if fields["version"].text("a version") != VERSION:
        raise fields["version"].error(f"this is read: version {VERSION}")
    kinds = fields["kinds"].each("kinds of nodes")
    if not kinds:
        raise fields["kinds"].error("no kind of node is in it")
    return kinds


def _look(fields: Fields) -> Look:
    found = _Found()
    for number, value in enumerate(_each(fields, "accelerators")):
        its = value.fields("an accelerator", _ACCELERATOR_FIELDS)
        address = _address(its)
        part = Part(
            address or f"accelerator {number}",
            Kind.ACCELERATOR,
            address,
            number=number,
            model=_model(its),
            numa=_number(its, "numa"),
        )
        found.add(value, part)
    accelerators = [part.id for part in found.parts]
    for value in _each(fields, "links"):
        _link(value, accelerators, found)
    if "links" in fields:
        # That there are none is a statement about each technology.
        named = frozenset(technology for _, technology in found.links)
        found.tells = named or frozenset(Technology)
    for value in _each(fields, "adapters"):
        _adapter(value, accelerators, found)
    return Look(
        SOURCE,
        Basis.DECLARED,
        tuple(found.parts),
        tuple(found.links.values()),
        found.distances,
        found.tells,
    )


def _link(value: Value, accelerators: list[str], found: _Found) -> None:
    fields = value.fields("links", _LINK_FIELDS)
    technology = _word(value, fields, "technology", Technology)
    if technology is None:
        raise value.error("technology is not there")
    count = _number(fields, "count") or 0
    if count > links.COUNT_MAX:
        raise fields["count"].error(f"{count}: at most {links.COUNT_MAX} links are between two")
    among = [accelerators[number] for number in _among(fields, "among", len(accelerators))]
    for one, other in itertools.combinations(among, 2):
        key = pair(one, other), technology
        if key in found.links:
            raise value.error(f"{one} and {other} are linked twice")
        if len(found.links) == LINKS_MAX:
            raise value.error(f"more than {LINKS_MAX} pairs are linked")
        found.links[key] = Link(key[0], technology, count, _speed(fields))


def _adapter(value: Value, accelerators: list[str], found: _Found) -> None:
    fields = value.fields("an adapter", _ADAPTER_FIELDS)
    if "name" not in fields:
        raise value.error("an adapter has a name")
    name = fields["name"].text("an adapter's name")
    if len(name) > 253 or not name.isprintable():
        raise fields["name"].error("an adapter's name has up to 253 printable characters")
    role = _word(value, fields, "role", Role)
    if "rail" in fields and role != Role.RAIL:
        raise fields["rail"].error(f"a rail is there where role is {Role.RAIL}")
    part = Part(
        name,
        Kind.ADAPTER,
        _address(fields),
        names=(name,),
        model=_model(fields),
        numa=_number(fields, "numa"),
        bytes_per_s=_speed(fields),
        layer=_word(value, fields, "layer", Layer),
        rail=_number(fields, "rail"),
        role=None if role == Role.UNDECIDED else role,
    )
    found.add(value, part)
    for number in _among(fields, "beside", len(accelerators)):
        found.distances[pair(part.id, accelerators[number])] = Distance.SWITCH


def _each(fields: Fields, name: str) -> Iterator[Value]:
    if name in fields:
        yield from fields[name].each(name)


def _among(fields: Fields, name: str, count: int) -> list[int]:
    """Numbers of accelerators, each once."""
    found: list[int] = []
    for value in _each(fields, name):
        number = _whole(value)
        if number >= count or number in found:
            raise value.error(f"{number}: accelerators 0 to {count - 1} stand here, each once")
        found.append(number)
    return found


def _number(fields: Fields, name: str) -> int | None:
    return _whole(fields[name]) if name in fields else None


def _whole(value: Value) -> int:
    said = value.text("a number")
    if not said.isascii() or not said.isdigit() or len(said) > 5 or int(said) > _NUMBER_MAX:
        raise value.error(f"{said[:80]!r}: a number up to {_NUMBER_MAX} stands here")
    return int(said)


def _speed(fields: Fields) -> int:
    if "speed" not in fields:
        return 0
    said = fields["speed"].text("a speed")
    found = _SPEED.fullmatch(said)
    if found is None:
        raise fields["speed"].error(f"{said[:80]!r}: a speed stands here, such as 200 Gb/s")
    return round(float(found[1]) * 1e9 / 8)


def _address(fields: Fields) -> str:
    if "pci" not in fields:
        return ""
    said = fields["pci"].text("a PCI address")
    found = pci.address(said)
    if not found:
        raise fields["pci"].error(f"{said[:80]!r}: a PCI address stands here, 0000:17:00.0")
    return found


def _model(fields: Fields) -> str:
    if "model" not in fields:
        return ""
    said = fields["model"].text("a model")
    if not _MODEL.fullmatch(said):
        raise fields["model"].error(f"{said[:80]!r}: PCI vendor and device stand here, 10de:2330")
    return said


def _word(value: Value, fields: Fields, name: str, known: type[E]) -> E | None:
    if name not in fields:
        return None
    said = fields[name].text(f"a {name}")
    if said not in {each.value for each in known}:
        words = ", ".join(each.value for each in known)
        raise value.error(f"{name} {said[:80]!r}: one of these stands here: {words}")
    return known(said)
