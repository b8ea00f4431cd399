"""Describe the hardware of a node in one line; equal hardware has equal lines."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping, Sequence

from railwright_topology import speeds
from railwright_topology.grouping import group
from railwright_topology.hardware_inventory import HardwareInventory
from railwright_topology.parts import AdapterRole, Link, Part


def of(hardware: HardwareInventory) -> str:
    """Such as ``8 accelerators 10de:2330, 18 NVLink each to each, 8 rails at 400 Gb/s``."""
    return ", ".join(_phrases(hardware))


def kinds(inventories: Mapping[str, HardwareInventory]) -> list[tuple[str, list[str]]]:
    """Hardware descriptions with their nodes, the most frequent first."""
    # Equal ones are mostly one value.
    distinct = {id(each): each for each in inventories.values()}
    outlines = {at: of(hardware) for at, hardware in distinct.items()}
    equal = group((outlines[id(hardware)], node) for node, hardware in inventories.items())
    return sorted(equal.items(), key=lambda each: (-len(each[1]), each[0]))


def _phrases(hardware: HardwareInventory) -> Iterator[str]:
    accelerators = hardware.accelerators
    models = sorted({part.model for part in accelerators} - {""})
    yield " ".join([_count(len(accelerators), "accelerator"), *models])
    technologies = group((link.technology, link) for link in hardware.links)
    for technology, links in sorted(technologies.items()):
        yield _links(technology, links, len(accelerators))
    for role in AdapterRole:
        if parts := hardware.of_role(role):
            yield _adapters(role, parts)
    if hardware.virtual or hardware.hides_tree:
        what = "a virtual machine" if hardware.virtual else "a machine"
        yield f"{what} that hides its PCI tree" if hardware.hides_tree else what


def _links(technology: str, links: Sequence[Link], accelerators: int) -> str:
    counts = sorted({link.count for link in links})
    each = f"{counts[-1]} {technology}" if counts[-1] else technology
    pairs = accelerators * (accelerators - 1) // 2
    if len(links) == pairs and len(counts) == 1:
        return f"{each} each to each"
    return f"up to {each} between {len(links)} of {pairs} pairs"


def _adapters(role: AdapterRole, parts: Sequence[Part]) -> str:
    counts = collections.Counter(part.bytes_per_s for part in parts if part.bytes_per_s)
    at = " and ".join(speeds.text(speed) for speed in sorted(counts, reverse=True))
    down = sum(part.up is False for part in parts)
    what = _count(len(parts), "rail") if role == AdapterRole.RAIL else f"{len(parts)} {role}"
    return f"{what}{f' at {at}' if at else ''}{f' ({down} down)' if down else ''}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
