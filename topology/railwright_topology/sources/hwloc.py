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

Memory of accelerators that is a NUMA node too (``subtype="GPUMemory"``, on GH200 and GB200) is not
where a device is. The partitions of an accelerator are several objects at its address. A matrix
that has them shows no bandwidth between those of two accelerators: its links are not all there are.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from railwright_topology.parts import NAMES_MAX, HardwareReport, Kind, Link, Technology
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import devices, hostlist, pci, strict_xml
from railwright_topology.sources.inventory import Inventory, LinkEnds
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
_NODES_MAX = 4096
_GPU_MEMORY = "GPUMemory"
_RDMA, _INTERFACE = 3, 2
"""Types of objects of the operating system, hwloc_obj_osdev_type_e to version 2."""
_FROM_VERSION_3: Mapping[int, int] = {16: _INTERFACE, 32: _RDMA}
_NUMBERED = re.compile(r"(?:nvml|rsmi|ve)([0-9]{1,3})")
_TYPE = re.compile(r"([0-9a-f]{4}) \[([0-9a-f]{4}):([0-9a-f]{4})\]")
_NODESET = re.compile(r"(0x[0-9a-f]{1,8}|)(,(0x[0-9a-f]{1,8}|))*")
_BANDWIDTH = re.compile(r"[0-9]{1,12}")


@dataclass(slots=True)
class _Output:
    inventory: Inventory
    types: Mapping[int, int] = field(default_factory=dict)
    """Types of objects of the operating system, where they have other numbers."""
    bridged: bool = False
    """Whether a bridge is above a device, beside the processor's own."""
    memories: int = 0
    """NUMA nodes that are memory of accelerators, as a mask."""
    objects: dict[str, str] = field(default_factory=dict)
    """By the number of an object: the part that it is, or empty for a switch of links."""
    partial: set[Technology] = field(default_factory=set)
    """Technologies of which a matrix may lack links."""


def parse(text: str) -> HardwareReport:
    """Read a whole output. Raises WiringError where it is none."""
    topology = strict_xml.read(SOURCE, text, "topology")
    omissions = Omissions(SOURCE)
    inventory = Inventory(omissions)
    found = _Output(inventory)
    if (version := topology.attributes.get("version", "1")).startswith("3."):
        found.types = _FROM_VERSION_3
    elif not version.startswith(("1", "2.")):
        omissions.note(topology.line, f"version {version[:16]!r} is read as version 2")
    found.memories = sum({1 << number for number in _memories(topology, omissions)})
    for machine in topology.each("object"):
        _object(machine, Way(), found)
    by_technology = dict(_links(topology, found))
    complete = by_technology.keys() - found.partial
    shown = devices.without_virtual_functions(inventory.parts.values())
    inventory.parts = {part.id: part for part in shown}
    return inventory.report(
        Provenance.SEEN,
        itertools.chain.from_iterable(by_technology.values()),
        complete=complete,
        hides_tree=not found.bridged if inventory.parts else None,
    )


def _object(element: Element, way: Way, found: _Output) -> None:
    """Add the devices of an object; ``way`` ends with the bridge that it is on."""
    with found.inventory.omissions.part():
        kind = element.required("type")
        # What cannot be read leaves its place in the way unknown.
        if nodeset := element.attributes.get("nodeset"):
            way = replace(way, numa=None)
            way = replace(way, numa=_only(element, nodeset, found.memories))
        if kind == "Bridge" and element.required("bridge_type").startswith("0"):
            way = replace(way, bridge=f"line {element.line}")
            way = replace(way, bridge=element.required("bridge_pci"))
        elif kind == "Bridge":
            above = way.switches
            way = replace(way, switches=(*above, f"line {element.line}"))
            way = replace(way, switches=(*above, element.address("pci_busid")))
        elif kind == "PCIDev":
            _device(element, replace(way, switches=way.switches[:-1]), found)
            found.bridged |= bool(way.switches)
    for below in element.each("object"):
        _object(below, way, found)


def _memories(element: Element, omissions: Omissions) -> Iterator[int]:
    """The numbers of NUMA nodes that are memory of accelerators."""
    if element.attributes.get("subtype") == _GPU_MEMORY:
        with omissions.part():
            number = element.number("os_index")
            if not 0 <= number < _NODES_MAX:
                raise element.unexpected("os_index", f"a NUMA node below {_NODES_MAX}")
            yield number
    for below in element.each("object"):
        yield from _memories(below, omissions)


def _only(element: Element, nodeset: str, memories: int) -> int | None:
    """The NUMA node of a set of one, beside memory of accelerators."""
    if not _NODESET.fullmatch(nodeset) or len(nodeset) > 4096:
        raise element.unexpected("nodeset", "a set of NUMA nodes such as 0x00000001")
    mask = 0
    for word in nodeset.split(","):
        mask = mask << 32 | int(word or "0", 16)
    mask &= ~memories
    return mask.bit_length() - 1 if mask.bit_count() == 1 else None


def _device(element: Element, way: Way, found: _Output) -> None:
    ids = _TYPE.match(element.required("pci_type"))
    if ids is None:
        raise element.unexpected("pci_type", "class and ids such as 0302 [10de:2330]")
    systems = [child for child in element.each("object") if child.attributes.get("type") == "OSDev"]
    # What matrices call it: by its type and number.
    numbers = [
        f"{each.attributes['type']}:{each.attributes['gp_index']}"
        for each in (element, *systems)
        if each.attributes.get("gp_index")
    ]
    if pci.is_link_switch(ids[1]):
        found.objects |= dict.fromkeys(numbers, "")
    if (kind := devices.kind(*ids.groups())) is None:
        return
    part = devices.describe(kind, element.address("pci_busid"), ids.groups(), way.numa)
    if kind == Kind.ADAPTER:
        part = replace(part, names=tuple(_names(systems, found))[:NAMES_MAX])
    elif named := next(filter(None, map(_NUMBERED.fullmatch, map(_name, systems))), None):
        part = replace(part, number=int(named[1]))
    found.inventory.add(part, element.error, way)
    found.objects |= dict.fromkeys(numbers, part.id)


def _name(element: Element) -> str:
    name = element.attributes.get("name", "")
    if name and not hostlist.is_name(name):
        raise element.unexpected("name", f"up to {hostlist.NAME_MAX} printable characters")
    return name


def _names(systems: Sequence[Element], found: _Output) -> list[str]:
    """Of RDMA devices before those of interfaces."""
    named: list[tuple[int, str]] = []
    for each in systems:
        with found.inventory.omissions.part():
            type_ = each.number("osdev_type", 0)
            type_ = found.types.get(type_, 0) if found.types else type_
            if type_ in (_RDMA, _INTERFACE) and (name := _name(each)):
                named.append((-type_, name))
    return [name for _, name in sorted(named)]


def _links(topology: Element, found: _Output) -> Iterator[tuple[Technology, list[Link]]]:
    """The links of each technology that a matrix shows."""
    omissions = found.inventory.omissions
    shown: set[Technology] = set()
    for matrix in topology.children:
        technology = BANDWIDTHS.get(matrix.attributes.get("name", ""))
        if technology and matrix.name.startswith("distances2"):
            with omissions.part():
                if technology in shown:
                    raise matrix.error(f"{technology} has a second matrix")
                ends, partitioned = _ends(matrix, found.objects)
                if partitioned:
                    found.partial.add(technology)
                yield technology, [*ends.links(technology, omissions, matrix.line)]
                shown.add(technology)


def _ends(matrix: Element, objects: Mapping[str, str]) -> tuple[LinkEnds, bool]:
    """What the accelerators of a matrix say of their links, and whether some are in partitions.
    What else is linked (a processor) is none."""
    names, bandwidths = _matrix(matrix)
    parts = [objects[name] for name in dict.fromkeys(names) if objects.get(name)]
    ends = LinkEnds({*parts})
    for (one, other), bandwidth in zip(itertools.product(names, names), bandwidths, strict=True):
        end, far = objects.get(one), objects.get(other)
        if not bandwidth or not end or far is None or far == end:
            continue
        if far:
            ends.add_shared(end, far, bytes_per_s=bandwidth * _MEGABYTES)
        else:
            ends.add(end, far, bytes_per_s=bandwidth * _MEGABYTES)
    return ends, len(parts) > len({*parts})


def _matrix(matrix: Element) -> tuple[list[str], list[int]]:
    """The objects of a matrix, and the megabytes a second from each of them to each."""
    names, values = _words(matrix, "indexes"), _words(matrix, "u64values")
    if matrix.name == "distances2":
        names = [f"{matrix.required('type')}:{name}" for name in names]
        if matrix.required("indexing") != "gp":
            raise matrix.error('objects of a matrix of links are named by indexing="gp"')
    count = matrix.number("nbobjs")
    if not 0 < count <= _OBJECTS_MAX or len(names) != count or len(values) != count**2:
        rule = f"{len(names)} objects and {len(values)} values: n and n² up to {_OBJECTS_MAX}"
        raise matrix.error(rule)
    for value in values:
        if not _BANDWIDTH.fullmatch(value):
            raise matrix.error(f"{value[:16]!r}: expected megabytes a second")
    return names, [*map(int, values)]


def _words(matrix: Element, name: str) -> list[str]:
    return [word for each in matrix.each(name) for word in each.text.split()]
