"""What hwloc knows of a node, as ``lstopo --of xml`` writes it, versions 1 to 3 of its format.

    <topology version="2.0">
      <object type="Machine">
        <object type="Package" nodeset="0x00000001">
          <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[15-1a]">
            <object type="Bridge" bridge_type="1-1" pci_busid="0000:15:00.0" …>
              <object type="PCIDev" pci_busid="0000:17:00.0" pci_type="0302 [10de:2330] […] a1">
                <object type="OSDev" gp_index="330" name="nvml0" osdev_type="1"/>

A bridge of type 0-1 is the processor's own. Links of accelerators are matrices of megabytes a
second between objects, there if hwloc was built with its makers' libraries. Speeds of slots are not
taken: hwloc shows that of the moment, which sinks where nothing is sent. An object that breaks a
rule is left out, and what is inside of it is read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from railwright_topology.accounts import Basis
from railwright_topology.parts import (
    NAMES_MAX,
    PARTS_MAX,
    Kind,
    Layer,
    Link,
    Look,
    Part,
    Technology,
)
from railwright_topology.sources import devices, links, pci, strict_xml
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.pci import Way
from railwright_topology.sources.strict_xml import Element

SOURCE = "hwloc"

BANDWIDTHS: Mapping[str, Technology] = {
    "NVLinkBandwidth": Technology.NVLINK,
    "XGMIBandwidth": Technology.XGMI,
}
_MEGABYTES = 1_000_000
_OBJECTS_MAX = 256
_INTERFACE, _RDMA = 2, 3
"""Types of objects of the operating system, hwloc_obj_osdev_type_e to version 2."""
_FROM_VERSION_3: Mapping[int, int] = {16: _INTERFACE, 32: _RDMA}
_NUMBERED = re.compile(r"(?:nvml|rsmi|ve)([0-9]{1,3})")
_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]")
_NODESET = re.compile(r"(0x[0-9a-f]{1,8}|)(,(0x[0-9a-f]{1,8}|))*")


@dataclass(slots=True)
class _Found:
    omissions: Omissions
    types: Mapping[int, int] = field(default_factory=dict)
    """Types of objects of the operating system, where they have other numbers."""
    parts: dict[str, Part] = field(default_factory=dict)
    ways: dict[str, Way] = field(default_factory=dict)
    bridged: set[str] = field(default_factory=set)
    """Those that a bridge is above, beside the processor's own."""
    objects: dict[str, str] = field(default_factory=dict)
    """By the number of an object: the part that it is, or empty for a switch of links."""


def parse(text: str) -> Look:
    """Read a whole output. Raises WiringError where it is none."""
    topology = strict_xml.read(SOURCE, text, "topology")
    omissions = Omissions(SOURCE)
    found = _Found(omissions)
    if (version := topology.attributes.get("version", "1")).startswith("3."):
        found.types = _FROM_VERSION_3
    elif not version.startswith(("1", "2.")):
        omissions.note(topology.line, f"version {version[:16]!r} is read as version 2")
    for machine in topology.each("object"):
        _object(machine, Way(None, "", ()), (), found)
    told, tells = _links(topology, found)
    shown = {part.id for part in devices.without_virtual_functions(found.parts.values())}
    found.parts = {id_: part for id_, part in found.parts.items() if id_ in shown}
    hidden = bool(found.parts) and not found.bridged
    return Look(
        SOURCE,
        Basis.SEEN,
        tuple(found.parts[id_] for id_ in sorted(found.parts)),
        tuple(told),
        {} if hidden else pci.distances(found.parts.values(), found.ways),
        tells,
        hides_tree=hidden if found.parts else None,
        remarks=omissions.sentences,
    )


def _object(element: Element, way: Way, bridges: tuple[str, ...], found: _Found) -> None:
    type_ = element.attributes.get("type", "")
    with found.omissions.part():
        if not type_:
            raise element.error("<object> has an attribute type")
        if nodeset := element.attributes.get("nodeset"):
            way = Way(None, way.bridge, ())
            way = Way(_only(element, nodeset), way.bridge, ())
        if type_ == "Bridge" and element.said("bridge_type").startswith("0"):
            way = Way(way.numa, f"line {element.line}", ())
            way = Way(way.numa, element.said("bridge_pci"), ())
        elif type_ == "Bridge":
            bridges = (*bridges, f"line {element.line}")
            bridges = (*bridges[:-1], _address(element))
        elif type_ == "PCIDev":
            _part(element, Way(way.numa, way.bridge, bridges[:-1]), found)
            if bridges:
                found.bridged.add(_address(element))
    for below in element.each("object"):
        _object(below, way, bridges, found)


def _only(element: Element, nodeset: str) -> int | None:
    """The NUMA node of a set of one."""
    if not _NODESET.fullmatch(nodeset) or len(nodeset) > 4096:
        raise element.error(
            f"nodeset={nodeset[:80]!r}: a set of NUMA nodes stands here, 0x00000001"
        )
    mask = 0
    for word in nodeset.split(","):
        mask = mask << 32 | int(word or "0", 16)
    return mask.bit_length() - 1 if mask.bit_count() == 1 else None


def _address(element: Element) -> str:
    said = element.said("pci_busid")
    found = pci.address(said)
    if not found:
        raise element.error(f"pci_busid={said[:80]!r}: a PCI address stands here, 0000:17:00.0")
    return found


def _part(element: Element, way: Way, found: _Found) -> None:
    address = _address(element)
    said = element.said("pci_type")
    ids = _TYPE.match(said)
    if ids is None:
        raise element.error(f"pci_type={said[:80]!r}: class and ids stand here, 0302 [10de:2330]")
    class_code, vendor, device = ids.groups()
    kind = devices.kind(class_code, vendor, device)
    systems = [child for child in element.each("object") if child.attributes.get("type") == "OSDev"]
    if pci.is_link_switch(class_code):
        found.objects |= dict.fromkeys(_numbers(element, systems), "")
    if kind is None:
        return
    if address in found.parts:
        raise element.error(f"{address} is described twice")
    if len(found.parts) == PARTS_MAX:
        raise element.error(f"has more than {PARTS_MAX} accelerators and adapters")
    found.objects |= dict.fromkeys(_numbers(element, systems), address)
    number = next((int(n[1]) for each in systems if (n := _NUMBERED.fullmatch(_name(each)))), None)
    found.parts[address] = Part(
        address,
        kind,
        address,
        number=number if kind == Kind.ACCELERATOR else None,
        names=tuple(_names(systems, found))[:NAMES_MAX] if kind == Kind.ADAPTER else (),
        model=f"{vendor}:{device}",
        numa=way.numa,
        layer=Layer.INFINIBAND if devices.is_infiniband(class_code) else None,
    )
    found.ways[address] = way


def _numbers(element: Element, systems: Sequence[Element]) -> list[str]:
    """What matrices call a part: by its type and number."""
    return [
        f"{each.attributes['type']}:{number}"
        for each in (element, *systems)
        if (number := each.attributes.get("gp_index")) and "type" in each.attributes
    ]


def _name(element: Element) -> str:
    name = element.attributes.get("name", "")
    if len(name) > 253 or not name.isprintable():
        raise element.error("a name has up to 253 printable characters")
    return name


def _names(systems: Sequence[Element], found: _Found) -> Iterator[str]:
    named: dict[int, list[str]] = {_RDMA: [], _INTERFACE: []}
    for each in systems:
        with found.omissions.part():
            type_ = each.number("osdev_type", 0)
            type_ = found.types.get(type_, 0) if found.types else type_
            if type_ in named and (name := _name(each)):
                named[type_].append(name)
    yield from (name for its in named.values() for name in sorted(its))


def _links(topology: Element, found: _Found) -> tuple[list[Link], frozenset[Technology]]:
    told: list[Link] = []
    tells: set[Technology] = set()
    matrices = (each for each in topology.children if each.name.startswith("distances2"))
    for matrix in matrices:
        technology = BANDWIDTHS.get(matrix.attributes.get("name", ""))
        if technology is None:
            continue
        with found.omissions.part():
            if technology in tells:
                raise matrix.error(f"{technology} has a second matrix")
            ends = _ends(matrix, found)
            told += [*ends.links(technology, found.omissions, matrix.line)]
            tells.add(technology)
    return told, frozenset(tells)


def _ends(matrix: Element, found: _Found) -> links.Ends:
    names = _words(matrix, "indexes")
    if matrix.name == "distances2":
        names = [f"{matrix.said('type')}:{name}" for name in names]
        if matrix.said("indexing") != "gp":
            raise matrix.error('objects of a matrix of links are named by indexing="gp"')
    values = _words(matrix, "u64values")
    count = matrix.number("nbobjs")
    if not 0 < count <= _OBJECTS_MAX or len(names) != count or len(values) != count**2:
        rule = f"{len(names)} objects and {len(values)} values: n and n² up to {_OBJECTS_MAX}"
        raise matrix.error(rule)
    ends = links.Ends()
    for (one, other), said in zip(itertools.product(names, names), values, strict=True):
        if not said.isascii() or not said.isdigit() or len(said) > 12:
            raise matrix.error(f"{said[:16]!r}: megabytes a second stand here")
        end, far = found.objects.get(one), found.objects.get(other)
        if end:
            ends.seen.add(end)
        # What else is linked (a processor) is no accelerator.
        if one == other or not int(said) or not end or far is None:
            continue
        if far:
            ends.between(end, far, bytes_per_s=int(said) * _MEGABYTES)
        else:
            ends.to_switches(end, bytes_per_s=int(said) * _MEGABYTES)
    return ends


def _words(matrix: Element, name: str) -> list[str]:
    return [word for each in matrix.each(name) for word in each.text.split()]
