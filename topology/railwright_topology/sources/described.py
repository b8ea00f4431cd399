"""Read the hardware of nodes as administrators declare it, for any maker and any property.

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
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeVar

from railwright_topology.parts import (
    LINKS_MAX,
    AdapterRole,
    Distance,
    HardwareReport,
    HardwareReports,
    Kind,
    Layer,
    Link,
    Pair,
    Part,
    Technology,
    pair,
)
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import documents, pci, trees
from railwright_topology.sources.documents import Fields, Value
from railwright_topology.sources.inventory import Inventory
from railwright_topology.sources.omissions import Omissions

SOURCE = "description"

_FIELDS = ("version", "kinds")
_KIND_FIELDS = ("nodes", "accelerators", "links", "adapters")
_ACCELERATOR_FIELDS = ("pci", "numa", "model")
_LINK_FIELDS = ("technology", "among", "count", "speed")
_ADAPTER_FIELDS = ("name", "pci", "numa", "model", "speed", "layer", "beside", "role", "rail")

_SPEED = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,3})? Gb/s")
_MODEL = re.compile(r"[0-9a-f]{4}:[0-9a-f]{4}")
_NUMBER_MAX = 1024

E = TypeVar("E", bound=StrEnum)


@dataclass(slots=True)
class _Description:
    inventory: Inventory
    links: dict[tuple[Pair, Technology], Link] = field(default_factory=dict)
    distances: dict[Pair, Distance] = field(default_factory=dict)
    accelerators: dict[int, str] = field(default_factory=dict)
    """Ids by their places; one that is left out keeps its place."""

    def add(self, value: Value, part: Part) -> None:
        if part.pci and part.pci in {other.pci for other in self.inventory.parts.values()}:
            raise value.error(f"{part.pci!r} is described twice")
        self.inventory.add(part, value.error)


def parse(text: str) -> HardwareReports:
    """Read the description of a site. Raises WiringError where no kind of node is left of it."""
    omissions = Omissions(SOURCE)
    by_host: dict[str, tuple[HardwareReport, ...]] = {}
    for value in _kinds(text, omissions):
        with omissions.part():
            record = value.fields("a kind of node", _KIND_FIELDS)
            nodes = record["nodes"]
            reports = (replace(_report(record), remarks=()),)
            for node in trees.expand(nodes):
                if len(by_host) == trees.NAMES_MAX:
                    raise nodes.error(f"is past {trees.NAMES_MAX} nodes: too many")
                if by_host.setdefault(node, reports) is not reports:
                    omissions.add(nodes.error(f"{node!r} is described twice: the first counts"))
    if not by_host:
        raise omissions.refuse("no kind of node is in it")
    return HardwareReports(SOURCE, by_host, remarks=omissions.sentences)


def parse_own(text: str) -> HardwareReport:
    """Read the description that lies on the node that it is of. Raises WiringError as ``parse``."""
    omissions = Omissions(SOURCE)
    first, *more = _kinds(text, omissions)
    record = first.fields("a kind of node", _KIND_FIELDS)
    if more or "nodes" in record:
        raise first.error("on a node itself one kind is described, and no nodes are named")
    return _report(record)


def _kinds(text: str, omissions: Omissions) -> tuple[Value, ...]:
    document = documents.read_versioned(text, omissions, "a description", _FIELDS)
    if not (kinds := document["kinds"].each("kinds of nodes")):
        raise document["kinds"].error("no kind of node is in it")
    return kinds


def _report(record: Fields) -> HardwareReport:
    found = _Description(Inventory(record.omissions))
    numbers = itertools.count()
    record.some("accelerators", lambda value: _accelerator(value, next(numbers), found))
    record.some("links", lambda value: _link(value.fields("links", _LINK_FIELDS), found))
    record.some(
        "adapters", lambda value: _adapter(value.fields("an adapter", _ADAPTER_FIELDS), found)
    )
    # That there are none is a statement about each technology.
    named = {technology for _, technology in found.links} or Technology
    return found.inventory.report(
        Provenance.DECLARED,
        found.links.values(),
        found.distances,
        complete=named if "links" in record else (),
    )


def _accelerator(value: Value, number: int, found: _Description) -> None:
    record = value.fields("an accelerator", _ACCELERATOR_FIELDS)
    address = record.get("pci", _address, "")
    part = Part(
        address or f"accelerator {number}",
        Kind.ACCELERATOR,
        address,
        number=number,
        model=record.get("model", _model, ""),
        numa=record.get("numa", _number, None),
    )
    found.add(value, part)
    found.accelerators[number] = part.id


def _link(record: Fields, found: _Description) -> None:
    technology = _one_of(Technology)(record["technology"])
    count, speed = record.get("count", _number, 0), record.get("speed", _speed, 0)
    for ends in itertools.combinations(_accelerators(record, "among", found), 2):
        key = pair(*ends), technology
        if key in found.links:
            raise record.value.error(f"{' and '.join(ends)} are linked twice")
        if len(found.links) == LINKS_MAX:
            raise record.value.error(f"more than {LINKS_MAX} pairs are linked")
        found.links[key] = Link(key[0], technology, count, speed)


def _adapter(record: Fields, found: _Description) -> None:
    name = record["name"].name("an adapter's name")
    role, rail = record.get("role", _one_of(AdapterRole), None), record.get("rail", _number, None)
    if rail is not None and role != AdapterRole.RAIL:
        record.omissions.add(
            record["rail"].error(f"a rail is there where role is {AdapterRole.RAIL}")
        )
        rail = None
    part = Part(
        name,
        Kind.ADAPTER,
        record.get("pci", _address, ""),
        names=(name,),
        model=record.get("model", _model, ""),
        numa=record.get("numa", _number, None),
        bytes_per_s=record.get("speed", _speed, 0),
        layer=record.get("layer", _one_of(Layer), None),
        rail=rail,
        role=None if role == AdapterRole.UNDECIDED else role,
    )
    found.add(record.value, part)
    for accelerator in _accelerators(record, "beside", found):
        found.distances[pair(part.id, accelerator)] = Distance.SWITCH


def _accelerators(record: Fields, name: str, found: _Description) -> list[str]:
    """The accelerators that a field lists by their numbers, each once."""
    left = dict(found.accelerators)

    def accelerator(value: Value) -> str:
        if (number := _number(value)) in left:
            return left.pop(number)
        last = max(found.accelerators, default=0)
        raise value.error(f"{number}: accelerators 0 to {last} stand here, each once")

    return record.some(name, accelerator)


def _number(value: Value) -> int:
    return value.number(_NUMBER_MAX)


def _speed(value: Value) -> int:
    text = value.match(_SPEED, "a speed such as 200 Gb/s")
    return round(float(text.removesuffix(" Gb/s")) * 1e9 / 8)


def _address(value: Value) -> str:
    if not (found := pci.address(value.text("a PCI address"))):
        raise value.unexpected("a PCI address such as 0000:17:00.0")
    return found


def _model(value: Value) -> str:
    return value.match(_MODEL, "PCI vendor and device such as 10de:2330")


def _one_of(words: type[E]) -> Callable[[Value], E]:
    by_value = {word.value: word for word in words}

    def decode(value: Value) -> E:
        if (text := value.text("a word")) not in by_value:
            raise value.error(f"{text[:80]!r}: one of these stands here: {', '.join(by_value)}")
        return by_value[text]

    return decode
