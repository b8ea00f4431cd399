"""What NCCL writes of a node (``NCCL_TOPO_DUMP_FILE``), and reads (``NCCL_TOPO_FILE``).

    <system version="1">
      <cpu numaid="0" arch="x86_64">
        <pci busid="0000:15:00.0" class="0x060400" vendor="0x1000" link_speed="32.0 GT/s PCIe">
          <pci busid="0000:17:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
            <gpu dev="0" sm="90" rank="0" gdr="1">
              <nvlink target="0000:ab:00.0" count="18" tclass="0x068000"/>
            </gpu>
          </pci>
          <pci busid="0000:18:00.0" class="0x020700">
            <nic><net name="mlx5_0" dev="0" speed="400000" port="1"/></nic>
          </pci>
        </pci>
      </cpu>
    </system>

A bridge stands for a whole switch, and two of one address for one switch. An adapter of its own
(``<nic>`` below ``<cpu>`` or a bridge) is on no PCI.
A file that a cloud gives has the tree that its virtual machines do not show. Whose links go to a
switch reaches every other one that is on a switch too. An accelerator with several ranks or parts
(``mlopart``) stands once for each, with all of its links: the first counts. AMD's RCCL writes
``<xgmi>`` for ``<nvlink>``, and version 2. Elements and attributes that are not read are passed
over: each version writes more of them; so are adapters that are used as one (``mlx5_0+mlx5_1``)
beside each of them: where they are not shown, they are known by name alone. A file without any link
does not say that there is none, as the library looks for them itself.

RCCL shows the partitions of an accelerator (CPX, DPX) as further functions of it, which PCI does
not have: they are passed over, and the first partition stands for all.

A second way of an adapter to PCI (Data Direct of ConnectX-8) is shown as ``mlx5_0_dma`` at an
address of its own, with or without ``mlx5_0``: it is that adapter, whose address is not known from
it.

NCCL counts the functions of one card as ports of the first (``mlx5_1`` has ``port="2"`` at the
address of ``mlx5_0``): an adapter is known by its name, and only that of the first port has the
address. An element that breaks a rule is left out; a bridge keeps what is below it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from railwright_topology.parts import HardwareReport, Kind, Link, Part, Technology
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import devices, hostlist, pci, strict_xml
from railwright_topology.sources.inventory import LINKS_OF_ONE_MAX, Inventory, LinkEnds
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.pci import Way
from railwright_topology.sources.strict_xml import Element
from railwright_topology.wiring import WiringError

SOURCE = "NCCL topology"
VERSIONS = ("1", "2")
"""NCCL's, and RCCL's with more attributes."""

LINKS: Mapping[str, Technology] = {"nvlink": Technology.NVLINK, "xgmi": Technology.XGMI}
_HOST = re.compile(r"0x[0-9a-f]+")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{0,8}")
_MEGABITS_BYTES = 1_000_000 // 8
_SPEED_MAX = 10_000_000
"""Mb/s; what is beyond it was written in another unit."""
_PORT_MAX = 64
_SECOND_WAY = "_dma"
_INDEX_MAX = 1024


@dataclass(slots=True)
class _Dump:
    inventory: Inventory
    bridges: set[str] = field(default_factory=set)
    ends: dict[Technology, LinkEnds] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    """Accelerators whose links are shown."""
    unread: set[Technology] = field(default_factory=set)
    """Technologies with a link that is left out: that none is shown says nothing."""
    partitions: frozenset[str] = frozenset()
    """Addresses of partitions but the first of their accelerator."""
    used_as_one: list[tuple[Element, str, Way]] = field(default_factory=list)
    second_ways: list[tuple[Element, Part, Way]] = field(default_factory=list)

    @property
    def omissions(self) -> Omissions:
        return self.inventory.omissions

    def number(self, element: Element, attribute: str, default: int) -> int:
        """An attribute, or the default where it is no number."""
        with self.omissions.part():
            return element.number(attribute, default)
        return default

    def index(self, element: Element, attribute: str) -> int | None:
        """An attribute that counts from 0; None where it is not known."""
        index = self.number(element, attribute, -1)
        return index if 0 <= index <= _INDEX_MAX else None


def parse(text: str) -> HardwareReport:
    """Read a file. Raises WiringError where it is none."""
    system = strict_xml.read(SOURCE, text, "system")
    omissions = Omissions(SOURCE)
    found = _Dump(Inventory(omissions))
    if (version := system.attributes.get("version", "")) not in VERSIONS:
        omissions.note(system.line, f"version {version[:16]!r} is read as version {VERSIONS[-1]}")
    cpus = [*system.each("cpu")]
    if not cpus:
        raise system.error("no <cpu> is in it")
    hosts = {cpu.attributes.get("host_hash", "") for cpu in cpus}
    if (count := sum(1 for host in hosts if _HOST.fullmatch(host))) > 1:
        raise system.error(f"{count} nodes are in it: one is read")
    found.partitions = _without_partitions(system)
    for cpu in cpus:
        way = Way(found.index(cpu, "numaid"))
        for below in cpu.children:
            with omissions.part():
                if below.name == "pci":
                    _function(below, way, found)
                elif below.name == "nic":
                    _nets([below], Part("", Kind.ADAPTER, numa=way.numa), way, found)
    _second_ways(found)
    _used_as_one(found)
    links, complete = tuple(_links(found)), found.ends.keys() - found.unread
    if not found.inventory.parts:
        omissions.note(system.line, "no accelerator and no adapter is in it")
    return found.inventory.report(Provenance.IMPORTED, links, complete=complete)


def _function(element: Element, above: Way, found: _Dump) -> None:
    """Add the accelerator or adapter that a PCI function is, or what is below a bridge."""
    ids = [_hexadecimal(element, name, found) for name in ("class", "vendor", "device")]
    class_code = ids[0]
    nics = [*element.each("nic")]
    kind = devices.kind(*ids)
    if any(element.each("gpu")):
        kind = Kind.ACCELERATOR
    elif nics and not devices.is_wireless(class_code) and not pci.is_bridge(class_code):
        kind = Kind.ADAPTER
    address = ""
    try:
        address = element.address("busid")
    except WiringError as error:
        if kind is not None or not element.children:
            raise
        found.omissions.add(error)
    if kind is None:
        _bridge(element, address, class_code, above, found)
        return
    if address in found.inventory.parts:
        raise element.error(f"{address} is described twice")
    part = devices.describe(kind, address, ids, above.numa)
    speed, width = element.attributes.get("link_speed", ""), found.number(element, "link_width", 0)
    part = replace(part, pcie_bytes_per_s=pci.bytes_per_s(speed, width))
    if kind == Kind.ACCELERATOR:
        _gpus(element, part, above, found)
    elif not _nets(nics, part, above, found):
        found.inventory.add(part, element.error, above)


def _bridge(element: Element, address: str, class_code: str, above: Way, found: _Dump) -> None:
    if not class_code and not element.children:
        raise element.error(f"{address} has no class and nothing below it: it is left out")
    if address in found.bridges:
        rule = f"bridge {address} is described twice: what is below both is below one switch"
        found.omissions.add(element.error(rule))
    found.bridges |= {address} - {""}
    way = replace(above, switches=(*above.switches, address or f"line {element.line}"))
    if pci.is_bridge(class_code):
        _nets(element.each("nic"), Part("", Kind.ADAPTER, numa=above.numa), way, found)
    for below in element.each("pci"):
        with found.omissions.part():
            _function(below, way, found)


def _hexadecimal(element: Element, attribute: str, found: _Dump) -> str:
    """Small digits without 0x; empty where none stand there."""
    digits = element.attributes.get(attribute, "").removeprefix("0x")
    if _HEXADECIMAL.fullmatch(digits):
        return digits.lower()
    found.omissions.add(element.unexpected(attribute, "hexadecimal digits"))
    return ""


def _without_partitions(system: Element) -> frozenset[str]:
    """Drop the partitions whose accelerator, function 0 of the slot, is there too; return their
    addresses. An adapter that PCI has at such an address stays."""
    functions = [*_functions(system)]
    amd = {
        address
        for address, each in functions
        if any("gcn" in gpu.attributes for gpu in each.each("gpu"))
    }
    found = frozenset(each for each in amd - {""} if each[-1] != "0" and f"{each[:-1]}0" in amd)
    for address, each in functions:
        if address in found:
            each.children = [child for child in each.children if child.name != "gpu"]
            # Without a name it is no <pci>.
            each.name = each.name if each.children else ""
    return found


def _functions(element: Element) -> Iterator[tuple[str, Element]]:
    """Each PCI function below an element, by its address; empty where it has none."""
    for below in element.children:
        if below.name == "pci":
            yield pci.address(below.attributes.get("busid", "")), below
        yield from _functions(below)


def _gpus(element: Element, part: Part, way: Way, found: _Dump) -> None:
    for gpu in itertools.islice(element.each("gpu"), 1):
        part = replace(part, number=found.index(gpu, "dev"))
        found.seen.add(part.id)
        for link in gpu.children:
            if technology := LINKS.get(link.name):
                ends = found.ends.setdefault(technology, LinkEnds(found.seen))
                try:
                    _link(link, part.id, ends, found.partitions)
                except WiringError as error:
                    found.omissions.add(error)
                    found.unread.add(technology)
    found.inventory.add(part, element.error, way)


def _link(element: Element, end: str, ends: LinkEnds, partitions: frozenset[str]) -> None:
    target, count = element.required("target"), element.number("count")
    class_code = element.attributes.get("tclass", "").removeprefix("0x")
    if not 0 < count <= LINKS_OF_ONE_MAX:
        raise element.unexpected("count", f"1 to {LINKS_OF_ONE_MAX} links")
    # NCCL calls it so where a virtual machine does not see the other end.
    if pci.is_link_switch(class_code) or target == "fffffff:ffff:ff":
        ends.add(end, "", count=count)
    elif (address := element.address("target")) == end:
        raise element.error(f"{end} is linked to itself: the link is left out")
    elif address not in partitions:
        ends.add(end, address, count=count)


def _links(found: _Dump) -> Iterator[Link]:
    for technology, ends in sorted(found.ends.items()):
        for link in ends.links(technology, found.omissions):
            if found.inventory.has_accelerators(link.ends):
                yield link
            else:
                rule = f"{' and '.join(link.ends)} are linked: not both are known"
                found.omissions.note(0, rule)


def _nets(nics: Iterable[Element], part: Part, way: Way, found: _Dump) -> int:
    """Add each network of an adapter, and return how many were added. The first has its address;
    another of the same name is a further port of it, and one of another name is another function
    of the same card."""
    nets: list[tuple[int, str, Element]] = []
    for net in itertools.chain.from_iterable(nic.each("net") for nic in nics):
        with found.omissions.part():
            port = found.number(net, "port", 1)
            nets.append((port if 0 <= port <= _PORT_MAX else _PORT_MAX, _name(net), net))
    ports: dict[str, int] = {}
    for _, name, net in sorted(nets, key=lambda each: each[:2]):
        if "+" in name:
            found.used_as_one.append((net, name, way))
            continue
        if name.endswith(_SECOND_WAY):
            found.second_ways.append((net, part, way))
            continue
        if devices.is_by_software(name):
            found.omissions.note(net.line, f"{name} is made by software: it is no adapter")
            continue
        ports[name] = ports.get(name, 0) + 1
        called = name if ports[name] == 1 else f"{name}/{ports[name]}"
        address = part.pci if name == next(iter(ports)) else ""
        own = replace(
            part,
            id=address if address and ports[name] == 1 else called,
            pci=address,
            names=(called,),
            bytes_per_s=_speed(net, found),
            rail=found.index(net, "railId"),
        )
        with found.omissions.part():
            found.inventory.add(own, net.error, way)
    return sum(ports.values()) + sum(name.endswith(_SECOND_WAY) for _, name, _ in nets)


def _second_ways(found: _Dump) -> None:
    """Add the adapters that are shown by their second way to PCI alone."""
    for net, part, way in found.second_ways:
        name = _name(net).removesuffix(_SECOND_WAY)
        if all(name not in each.names for each in found.inventory.parts.values()):
            own = Part(name, Kind.ADAPTER, numa=part.numa, names=(name,), layer=part.layer)
            own = replace(own, bytes_per_s=_speed(net, found), rail=found.index(net, "railId"))
            with found.omissions.part():
                found.inventory.add(own, net.error, way)


def _used_as_one(found: _Dump) -> None:
    """Add the adapters that are shown as a part of others alone."""
    for net, name, way in found.used_as_one:
        shown = {name for part in found.inventory.parts.values() for name in part.names}
        members = [each.removesuffix(_SECOND_WAY) for each in name.split("+")]
        hidden = [each for each in dict.fromkeys(members) if each not in shown]
        rule = "is on an adapter that is there already"
        if hidden:
            rule = f"stands for {', '.join(hidden)}, known by name alone"
        found.omissions.note(net.line, f"{name} {rule}")
        for each in hidden:
            with found.omissions.part():
                part = Part(each, Kind.ADAPTER, numa=way.numa, names=(each,))
                found.inventory.add(part, net.error, way)


def _name(net: Element) -> str:
    if not hostlist.is_name(name := net.required("name")):
        raise net.unexpected("name", f"up to {hostlist.NAME_MAX} printable characters")
    return name


def _speed(net: Element, found: _Dump) -> int:
    speed = found.number(net, "speed", 0)
    if 0 <= speed <= _SPEED_MAX:
        return speed * _MEGABITS_BYTES
    rule = f"0 to {_SPEED_MAX} Mb/s: the speed is left out"
    found.omissions.add(net.unexpected("speed", rule))
    return 0
