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
switch reaches every other one that is on a switch too. AMD's RCCL writes ``<xgmi>`` for
``<nvlink>``, and version 2. Elements and attributes that are not read are passed over: each version
writes more of them; so are adapters that are used as one (``mlx5_0+mlx5_1``) beside each of them:
where they are not shown, they are known by name alone. A file without any link does not say that
there is none, as the library looks for them itself.

NCCL counts the functions of one card as ports of the first (``mlx5_1`` has ``port="2"`` at the
address of ``mlx5_0``): an adapter is known by its name, and only that of the first port has the
address. An element that breaks a rule is left out; a bridge keeps what is below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from railwright_topology.accounts import Basis
from railwright_topology.parts import PARTS_MAX, Kind, Layer, Link, Look, Part, Technology
from railwright_topology.sources import devices, links, pci, strict_xml
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.pci import Way
from railwright_topology.sources.strict_xml import Element
from railwright_topology.wiring import WiringError

SOURCE = "NCCL topology"
VERSIONS = ("1", "2")
"""NCCL's, and RCCL's with more attributes."""

LINKS: Mapping[str, Technology] = {"nvlink": Technology.NVLINK, "xgmi": Technology.XGMI}
_HOST = re.compile(r"0x[0-9a-f]+")
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]*")
_MEGABITS_BYTES = 1_000_000 // 8
_SPEED_MAX = 10_000_000
"""Mb/s; what is beyond it was written in another unit."""
_PORT_MAX = 64
_RAIL_MAX = 1024


@dataclass(slots=True)
class _Found:
    omissions: Omissions
    parts: dict[str, Part] = field(default_factory=dict)
    ways: dict[str, Way] = field(default_factory=dict)
    bridges: set[str] = field(default_factory=set)
    ends: dict[Technology, links.Ends] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    """Accelerators whose links are shown."""
    unread: set[Technology] = field(default_factory=set)
    """Technologies with a link that is left out: that none is shown says nothing."""
    used_as_one: list[tuple[Element, str, Way]] = field(default_factory=list)

    def add(self, element: Element, part: Part, way: Way) -> None:
        if part.id in self.parts:
            raise element.error(f"{part.id[:80]!r} is described twice")
        if len(self.parts) == PARTS_MAX:
            raise element.error(f"has more than {PARTS_MAX} accelerators and adapters")
        self.parts[part.id] = part
        self.ways[part.id] = way

    def number(self, element: Element, attribute: str, default: int) -> int:
        """An attribute, or the default where it is no number."""
        with self.omissions.part():
            return element.number(attribute, default)
        return default


def parse(text: str) -> Look:
    """Read a file. Raises WiringError where it is none."""
    system = strict_xml.read(SOURCE, text, "system")
    omissions = Omissions(SOURCE)
    if (version := system.attributes.get("version", "")) not in VERSIONS:
        omissions.note(system.line, f"version {version[:16]!r} is read as version {VERSIONS[-1]}")
    if not any(system.each("cpu")):
        raise system.error("no <cpu> is in it")
    said = (cpu.attributes.get("host_hash", "") for cpu in system.each("cpu"))
    hosts = {host for host in said if _HOST.fullmatch(host)}
    if len(hosts) > 1:
        raise system.error(f"{len(hosts)} nodes are in it: one is read")
    found = _Found(omissions)
    for cpu in system.each("cpu"):
        numa = found.number(cpu, "numaid", -1)
        way = Way(numa if numa >= 0 else None, "", ())
        for below in cpu.children:
            with omissions.part():
                if below.name == "pci":
                    _pci(below, way, found)
                elif below.name == "nic":
                    _nets([below], Part("", Kind.ADAPTER, numa=way.numa), way, found)
    _used_as_one(found)
    told = tuple(_links(found))
    if not found.parts:
        omissions.note(system.line, "no accelerator and no adapter is in it")
    return Look(
        SOURCE,
        Basis.TOLD,
        tuple(found.parts[id_] for id_ in sorted(found.parts)),
        told,
        pci.distances(found.parts.values(), found.ways),
        frozenset(found.ends) - found.unread,
        remarks=omissions.sentences,
    )


def _pci(element: Element, above: Way, found: _Found) -> None:
    busid = element.attributes.get("busid", "")
    address = pci.address(busid)
    gpus, nics = [*element.each("gpu")], [*element.each("nic")]
    class_code = _hexadecimal(element, "class", found)
    vendor, device = (_hexadecimal(element, name, found) for name in ("vendor", "device"))
    kind = devices.kind(class_code, vendor, device) if class_code else None
    if gpus:
        kind = Kind.ACCELERATOR
    elif nics and not devices.is_wireless(class_code) and not pci.is_bridge(class_code):
        kind = Kind.ADAPTER
    if not address:
        rule = f"busid={busid[:80]!r}: a PCI address stands here, 0000:17:00.0"
        if kind is not None or not element.children:
            raise element.error(rule)
        found.omissions.add(element.error(rule))
    if kind is None:
        if not class_code and not element.children:
            raise element.error(f"{address} has no class and nothing below it: it is left out")
        if address in found.bridges:
            rule = f"bridge {address} is described twice: what is below both is below one switch"
            found.omissions.add(element.error(rule))
        found.bridges |= {address} - {""}
        switch = Way(above.numa, "", (*above.switches, address or f"line {element.line}"))
        if nics and pci.is_bridge(class_code):
            _nets(nics, Part("", Kind.ADAPTER, numa=above.numa), switch, found)
        for below in element.each("pci"):
            with found.omissions.part():
                _pci(below, switch, found)
        return
    if address in found.parts:
        raise element.error(f"{address} is described twice")
    width = found.number(element, "link_width", 0)
    part = Part(
        address,
        kind,
        address,
        model=f"{vendor}:{device}" if vendor.strip("0") and device.strip("0") else "",
        numa=above.numa,
        pcie_bytes_per_s=pci.bytes_per_s(element.attributes.get("link_speed", ""), width),
        layer=Layer.INFINIBAND if devices.is_infiniband(class_code) else None,
    )
    if kind == Kind.ACCELERATOR:
        _gpus(element, gpus, part, above, found)
    elif not _nets(nics, part, above, found):
        found.add(element, part, above)


def _hexadecimal(element: Element, attribute: str, found: _Found) -> str:
    """Small digits without 0x; empty where none stand there."""
    said = element.attributes.get(attribute, "")
    digits = said.removeprefix("0x")
    if _HEXADECIMAL.fullmatch(digits) and len(digits) <= 8:
        return digits.lower()
    rule = f"{attribute}={said[:80]!r}: hexadecimal digits stand here"
    found.omissions.add(element.error(rule))
    return ""


def _gpus(element: Element, gpus: list[Element], part: Part, way: Way, found: _Found) -> None:
    for gpu in gpus[1:]:
        found.omissions.add(gpu.error("a second <gpu> at one PCI address"))
    for gpu in gpus[:1]:
        number = found.number(gpu, "dev", -1)
        part = replace(part, number=number if number >= 0 else None)
        found.seen.add(part.id)
        for link in gpu.children:
            if link.name in LINKS:
                technology = LINKS[link.name]
                ends = found.ends.setdefault(technology, links.Ends(found.seen))
                try:
                    _link(link, part.id, ends)
                except WiringError as error:
                    found.omissions.add(error)
                    found.unread.add(technology)
    found.add(element, part, way)


def _link(element: Element, end: str, ends: links.Ends) -> None:
    target, count = element.said("target"), element.number("count")
    class_code = element.attributes.get("tclass", "").removeprefix("0x")
    if not 0 < count <= links.COUNT_MAX:
        raise element.error(f"count={count}: 1 to {links.COUNT_MAX} links stand here")
    # NCCL calls it so where a virtual machine does not see the other end.
    if pci.is_link_switch(class_code) or target == "fffffff:ffff:ff":
        ends.to_switches(end, count=count)
    elif (address := pci.address(target)) == end:
        raise element.error(f"{end} is linked to itself: the link is left out")
    elif address:
        ends.between(end, address, count=count)
    else:
        raise element.error(f"target={target[:80]!r}: a PCI address stands here")


def _links(found: _Found) -> Iterator[Link]:
    accelerators = {part.id for part in found.parts.values() if part.kind == Kind.ACCELERATOR}
    for technology, ends in sorted(found.ends.items()):
        for link in ends.links(technology, found.omissions):
            if accelerators.issuperset(link.ends):
                yield link
            else:
                rule = f"{' and '.join(link.ends)} are linked: not both are known"
                found.omissions.note(0, rule)


def _nets(nics: Iterable[Element], part: Part, way: Way, found: _Found) -> int:
    """Add each network of an adapter, and return how many were added. The first has its address;
    another of the same name is a further port of it, and one of another name is another function
    of the same card."""
    nets: list[tuple[int, str, Element]] = []
    for nic in nics:
        for net in nic.each("net"):
            with found.omissions.part():
                nets.append((_port(net, found), _name(net), net))
    named: dict[str, int] = {}
    for _, name, net in sorted(nets, key=lambda each: each[:2]):
        if "+" in name:
            found.used_as_one.append((net, name, way))
            continue
        if devices.is_by_software(name):
            found.omissions.note(net.line, f"{name} is made by software: it is no adapter")
            continue
        named[name] = count = named.get(name, 0) + 1
        called = name if count == 1 else f"{name}/{count}"
        first = next(iter(named)) == name
        own = replace(
            part,
            id=part.id if first and count == 1 and part.pci else called,
            pci=part.pci if first else "",
            names=(called,),
            bytes_per_s=_speed(net, found),
            rail=_rail(net, found),
        )
        with found.omissions.part():
            found.add(net, own, way)
    return sum(named.values())


def _used_as_one(found: _Found) -> None:
    for net, name, way in found.used_as_one:
        shown = {name for part in found.parts.values() for name in part.names}
        hidden = [each for each in dict.fromkeys(name.split("+")) if each not in shown]
        rule = "is on an adapter that is there already"
        if hidden:
            rule = f"stands for {', '.join(hidden)}, known by name alone"
        found.omissions.note(net.line, f"{name} {rule}")
        for each in hidden:
            with found.omissions.part():
                part = Part(each, Kind.ADAPTER, numa=way.numa, names=(each,))
                found.add(net, part, way)


def _name(net: Element) -> str:
    name = net.said("name")
    if len(name) > 253 or not name.isprintable():
        raise net.error("a net's name has up to 253 printable characters")
    return name


def _port(net: Element, found: _Found) -> int:
    port = found.number(net, "port", 1)
    return port if 0 <= port <= _PORT_MAX else _PORT_MAX


def _speed(net: Element, found: _Found) -> int:
    speed = found.number(net, "speed", 0)
    if 0 <= speed <= _SPEED_MAX:
        return speed * _MEGABITS_BYTES
    rule = f"speed={speed}: 0 to {_SPEED_MAX} Mb/s stand here: the speed is left out"
    found.omissions.add(net.error(rule))
    return 0


def _rail(net: Element, found: _Found) -> int | None:
    rail = found.number(net, "railId", -1)
    return rail if 0 <= rail <= _RAIL_MAX else None
