"""What the kernel's driver of AMD's accelerators shows of them: /sys/class/kfd/kfd/topology/nodes.

Processors and accelerators are its nodes; these have an id, an address, and links to others, each a
folder with a file of words and numbers:

    nodes/2/gpu_id                  51140
    nodes/2/properties              location_id 50432, domain 0, vendor_id 4098 …
    nodes/2/io_links/1/properties   type 11, node_from 2, node_to 3, max_bandwidth 50000 …

It is given as it was read, by node and file. Words that are not read here may be no numbers.
Megabytes a second are those of all links between two, one way; how many there are is not shown. The
kernel calls links of type 11 XGMI (Linux's ``kfd_crat.h``).

An accelerator in partition mode (CPX, DPX) is a node for each of its partitions, and here one part.
All of them have its address, with their number in the upper four bits of ``location_id``, or, in
other versions of the driver, in place of the function, which is 0 of all accelerators
(``kfd_topology_add_device``). Each two partitions of two accelerators have a link, and all of these
are the same wires: they are counted once. Their bandwidth is 0 then, which is not known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from railwright_topology.parts import HardwareReport, Kind, Part, Technology
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import pci
from railwright_topology.sources.inventory import Inventory, LinkEnds
from railwright_topology.sources.omissions import Omissions
from railwright_topology.wiring import WiringError

SOURCE = "KFD"

_XGMI = 11
_MEGABYTES = 1_000_000
_ADDRESS, _FUNCTION, _PARTITION = 0xFFFF, 0x7, 0xF << 28
"""Bits of ``location_id``."""
_READ = frozenset({"location_id", "domain", "type", "node_from", "node_to", "max_bandwidth"})
_NUMBER = re.compile(r"[0-9]{1,20}")

Files = Mapping[str, str]


def parse(nodes: Mapping[str, Files]) -> HardwareReport:
    """Read what was read. A node that holds what the kernel never writes is left out."""
    omissions = Omissions(SOURCE)
    inventory = Inventory(omissions)
    locations: dict[int, tuple[int, int]] = {}
    for node, files in sorted(nodes.items()):
        with omissions.part():
            if _number(node, "gpu_id", files.get("gpu_id", "") or "0"):
                location = _location(node, _numbers(node, files, "properties"))
                if location in locations.values():
                    raise _error(f"nodes/{node}: {_address(*location)} is described twice")
                locations[_number("", "node", node)] = location
    addresses = _addresses(locations)
    for address in dict.fromkeys(addresses.values()):
        with omissions.part():
            inventory.add(Part(address, Kind.ACCELERATOR, address), _error)
    ends = LinkEnds({*inventory.parts})
    for node, files in sorted(nodes.items()):
        for file in sorted(files):
            if file.startswith("io_links/"):
                with omissions.part():
                    _link(node, _numbers(node, files, file), addresses, ends)
    return inventory.report(
        Provenance.SEEN,
        ends.links(Technology.XGMI, omissions),
        {},
        complete=[Technology.XGMI] if inventory.parts else (),
    )


def _link(
    node: str, properties: Mapping[str, int], addresses: Mapping[int, str], ends: LinkEnds
) -> None:
    source, target = properties.get("node_from", -1), properties.get("node_to", -1)
    if str(source) != node:
        raise _error(f"nodes/{node}: a link of node {source}")
    end, far = addresses.get(source), addresses.get(target)
    if properties.get("type") == _XGMI and end and far and end != far:
        bytes_per_s = properties.get("max_bandwidth", 0) * _MEGABYTES
        ends.add_shared(end, far, bytes_per_s=bytes_per_s)


def _location(node: str, properties: Mapping[str, int]) -> tuple[int, int]:
    """Domain of PCI, and the rest of the address with the number of the partition."""
    place, domain = properties.get("location_id", -1), properties.get("domain", 0)
    if not 0 <= domain <= 0xFFFFFFFF or place & ~(_ADDRESS | _PARTITION):
        raise _error(f"nodes/{node}: location_id {place} and domain {domain} are no PCI address")
    return domain, place


def _addresses(locations: Mapping[int, tuple[int, int]]) -> dict[int, str]:
    """The address of the accelerator that each node is, or is a partition of."""
    places = {node: (domain, place & _ADDRESS) for node, (domain, place) in locations.items()}
    found: dict[int, str] = {}
    for node, (domain, place) in places.items():
        first = (domain, place & ~_FUNCTION)
        found[node] = _address(*(first if first in places.values() else (domain, place)))
    return found


def _address(domain: int, place: int) -> str:
    return pci.address(f"{domain:04x}:{place >> 8 & 255:02x}:{place >> 3 & 31:02x}.{place & 7}")


def _numbers(node: str, files: Files, name: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in files.get(name, "").splitlines():
        word, _, number = line.strip().partition(" ")
        if word in _READ:
            found[word] = _number(f"{node}/{name}", word, number)
    return found


def _number(place: str, word: str, number: str) -> int:
    if not _NUMBER.fullmatch(number):
        raise _error(f"nodes/{place}: {f'{word} {number}'[:80]!r} is no word and its number")
    return int(number)


def _error(rule: str) -> WiringError:
    return WiringError(SOURCE, 0, rule)
