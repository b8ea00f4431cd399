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

A bridge stands for a whole switch. An adapter of its own (``<nic>`` below ``<cpu>``) is on no PCI.
A file that a cloud gives has the tree that its virtual machines do not show. Whose links go to a
switch reaches every other one that is on a switch too. AMD's RCCL writes ``<xgmi>`` for
``<nvlink>``. Elements and attributes that are not read are passed over: each version writes more of
them; so are adapters that are used as one (``mlx5_0+mlx5_1``) beside each of them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from railwright_topology.accounts import Basis
from railwright_topology.parts import PARTS_MAX, Kind, Layer, Link, Look, Part, Technology
from railwright_topology.sources import links, pci, strict_xml
from railwright_topology.sources.pci import Way
from railwright_topology.sources.strict_xml import Element
from railwright_topology.wiring import WiringError

SOURCE = "NCCL topology"
VERSION = "1"

LINKS: Mapping[str, Technology] = {"nvlink": Technology.NVLINK, "xgmi": Technology.XGMI}
_HEXADECIMAL = re.compile(r"[0-9a-fA-F]{0,4}")
_INFINIBAND = "0207"
_MEGABITS_BYTES = 1_000_000 // 8
_RAIL_MAX = 1024


@dataclass(slots=True)
class _Found:
    parts: dict[str, Part] = field(default_factory=dict)
    ways: dict[str, Way] = field(default_factory=dict)
    addresses: set[str] = field(default_factory=set)
    ends: dict[Technology, links.Ends] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    """Accelerators whose links are shown."""
    remarks: list[str] = field(default_factory=list)

    def add(self, element: Element, part: Part, way: Way) -> None:
        if part.id in self.parts:
            raise element.error(f"{part.id[:80]!r} is described twice")
        if len(self.parts) == PARTS_MAX:
            raise element.error(f"has more than {PARTS_MAX} accelerators and adapters")
        self.parts[part.id] = part
        self.ways[part.id] = way


def parse(text: str) -> Look:
    """Read a whole file. Raises WiringError where it is none."""
    system = strict_xml.read(SOURCE, text, "system")
    if system.said("version") != VERSION:
        raise system.error(f"this is read: version {VERSION}")
    hosts = {cpu.attributes.get("host_hash", "") for cpu in system.each("cpu")} - {""}
    if len(hosts) > 1:
        raise system.error(f"{len(hosts)} nodes are in it: one is read")
    found = _Found()
    for cpu in system.each("cpu"):
        numa = cpu.number("numaid")
        way = Way(numa if numa >= 0 else None, "", ())
        for below in cpu.children:
            if below.name == "pci":
                _pci(below, way, found)
            elif below.name == "nic":
                _nets(below, Part("", Kind.ADAPTER, numa=way.numa), way, found)
    told = tuple(_links(found))
    return Look(
        SOURCE,
        Basis.TOLD,
        tuple(found.parts[id_] for id_ in sorted(found.parts)),
        told,
        pci.distances(found.parts.values(), found.ways),
        frozenset(found.ends or {Technology.NVLINK}) if found.seen else frozenset(),
        remarks=tuple(sorted({*found.remarks})),
    )


def _pci(element: Element, above: Way, found: _Found) -> None:
    busid = element.said("busid")
    address = pci.address(busid)
    if not address:
        raise element.error(f"busid={busid[:80]!r}: a PCI address stands here, 0000:17:00.0")
    if address in found.addresses:
        raise element.error(f"{address} is described twice")
    found.addresses.add(address)
    class_code = element.said("class").removeprefix("0x")
    vendor, device = _hexadecimal(element, "vendor"), _hexadecimal(element, "device")
    kind = pci.kind(class_code, vendor)
    if any(element.each("gpu")):
        kind = Kind.ACCELERATOR
    elif any(element.each("nic")):
        kind = Kind.ADAPTER
    if kind is not None:
        part = Part(
            address,
            kind,
            address,
            model=f"{vendor}:{device}" if vendor.strip("0") and device.strip("0") else "",
            numa=above.numa,
            pcie_bytes_per_s=_slot(element),
            layer=Layer.INFINIBAND if class_code.startswith(_INFINIBAND) else None,
        )
        _end(element, part, above, found)
        return
    switch = Way(above.numa, "", (*above.switches, address))
    for below in element.each("pci"):
        _pci(below, switch, found)


def _hexadecimal(element: Element, attribute: str) -> str:
    digits = element.attributes.get(attribute, "").removeprefix("0x")
    if _HEXADECIMAL.fullmatch(digits) is None:
        raise element.error(f"{attribute}={digits[:80]!r}: four hexadecimal digits stand here")
    return digits


def _slot(element: Element) -> int:
    width = element.number("link_width", 0)
    return pci.bytes_per_s(element.attributes.get("link_speed", ""), width)


def _end(element: Element, part: Part, way: Way, found: _Found) -> None:
    if part.kind == Kind.ADAPTER:
        nics = [*element.each("nic")]
        if not any(any(nic.each("net")) for nic in nics):
            found.add(element, part, way)
        for nic in nics:
            _nets(nic, part, way, found)
        return
    gpus = [*element.each("gpu")]
    if len(gpus) > 1:
        raise gpus[1].error("a second <gpu> at one PCI address")
    for gpu in gpus:
        number = gpu.number("dev", -1)
        part = replace(part, number=number if number >= 0 else None)
        found.seen.add(part.id)
        for link in gpu.children:
            if link.name in LINKS:
                ends = found.ends.setdefault(LINKS[link.name], links.Ends(found.seen))
                _link(link, part.id, ends)
    found.add(element, part, way)


def _link(element: Element, end: str, ends: links.Ends) -> None:
    target, count = element.said("target"), element.number("count")
    class_code = element.attributes.get("tclass", "").removeprefix("0x")
    if not 0 < count <= links.COUNT_MAX:
        raise element.error(f"count={count}: 1 to {links.COUNT_MAX} links stand here")
    # NCCL calls it so where a virtual machine does not see the other end.
    if pci.is_link_switch(class_code) or target == "fffffff:ffff:ff":
        ends.to_switches(end, count=count)
    elif address := pci.address(target):
        ends.between(end, address, count=count)
    else:
        raise element.error(f"target={target[:80]!r}: a PCI address stands here")


def _links(found: _Found) -> Iterator[Link]:
    accelerators = {part.id for part in found.parts.values() if part.kind == Kind.ACCELERATOR}
    every = (ends.links(technology) for technology, ends in sorted(found.ends.items()))
    try:
        for link in itertools.chain.from_iterable(every):
            if accelerators.issuperset(link.ends):
                yield link
            else:
                found.remarks.append(f"{' and '.join(link.ends)} are linked: not both are known")
    except links.LinksError as refused:
        raise WiringError(SOURCE, 1, str(refused)) from None


def _nets(nic: Element, part: Part, way: Way, found: _Found) -> None:
    """Each port is a network of its own; the first has the name of the adapter."""
    for net in nic.each("net"):
        name = net.said("name")
        if len(name) > 253 or not name.isprintable():
            raise net.error("a net's name has up to 253 printable characters")
        port, speed = net.number("port", 1), net.number("speed", 0)
        rail = net.number("railId", -1)
        if not 0 <= speed <= 10_000_000 or not 0 <= port <= 64 or rail > _RAIL_MAX:
            raise net.error("a net has a speed in Mb/s, a port, and a rail where it is on one")
        called = name if port <= 1 else f"{name}/{port}"
        id_ = called if port > 1 or not part.pci else part.id
        if "+" in name or id_ in found.parts:
            found.remarks.append(f"{called} is on an adapter that is there already")
            continue
        found.add(
            net,
            replace(
                part,
                id=id_,
                names=(called,),
                bytes_per_s=speed * _MEGABITS_BYTES,
                rail=rail if rail >= 0 else None,
            ),
            way,
        )
