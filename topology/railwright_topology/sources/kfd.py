"""What the kernel's driver of AMD's accelerators shows of them: /sys/class/kfd/kfd/topology/nodes.

Processors and accelerators are its nodes; these have an id, an address, and links to others, each a
folder with a file of words and numbers:

    nodes/2/gpu_id                  51140
    nodes/2/properties              location_id 50432, domain 0, vendor_id 4098 …
    nodes/2/io_links/1/properties   type 11, node_from 2, node_to 3, max_bandwidth 50000 …

It is given as it was read, by node and file. Megabytes a second are those of all links between two,
one way; how many there are is not shown. The kernel calls links of type 11 XGMI (Linux's
``kfd_crat.h``).
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
_NUMBER = re.compile(r"[0-9]{1,20}")

Files = Mapping[str, str]


def parse(nodes: Mapping[str, Files]) -> HardwareReport:
    """Read what was read. A node that holds what the kernel never writes is left out."""
    omissions = Omissions(SOURCE)
    inventory = Inventory(omissions)
    addresses: dict[int, str] = {}
    for node, files in sorted(nodes.items()):
        with omissions.part():
            if _number(node, "gpu_id", files.get("gpu_id", "") or "0"):
                address = _address(node, _numbers(node, files, "properties"))
                number = _number("", "node", node)
                inventory.add(Part(address, Kind.ACCELERATOR, address), _error)
                addresses[number] = address
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
    if properties.get("type") == _XGMI and {source, target} <= addresses.keys():
        bytes_per_s = properties.get("max_bandwidth", 0) * _MEGABYTES
        ends.add(addresses[source], addresses[target], bytes_per_s=bytes_per_s)


def _address(node: str, properties: Mapping[str, int]) -> str:
    place, domain = properties.get("location_id", -1), properties.get("domain", 0)
    if not 0 <= place <= 0xFFFF or not 0 <= domain <= 0xFFFFFFFF:
        raise _error(f"nodes/{node}: location_id {place} and domain {domain} are no PCI address")
    return pci.address(f"{domain:04x}:{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}")


def _numbers(node: str, files: Files, name: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for line in files.get(name, "").splitlines():
        word, _, number = line.strip().partition(" ")
        found[word] = _number(f"{node}/{name}", word, number)
    return found


def _number(place: str, word: str, number: str) -> int:
    if not _NUMBER.fullmatch(number):
        raise _error(f"nodes/{place}: {f'{word} {number}'[:80]!r} is no word and its number")
    return int(number)


def _error(rule: str) -> WiringError:
    return WiringError(SOURCE, 0, rule)
