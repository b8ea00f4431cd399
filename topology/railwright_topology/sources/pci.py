"""PCI addresses, speeds of slots, and how near devices are to each other.

Speeds and line codes are those of the PCI Express Base Specification. What a device is for stands
in ``devices``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from railwright_topology.parts import Distance, Kind, Pair, Part, pair

_ADDRESS = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.IGNORECASE)
_SWITCH = "0680"
"""A bridge of no other kind, which is what NVSwitches call themselves."""
_BRIDGE = "06"
_GIGATRANSFERS = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,2})?) GT/s")

LINE_CODES: Mapping[float, float] = {2.5: 8 / 10, 5.0: 8 / 10, 64.0: 236 / 256, 128.0: 236 / 256}
"""Share of data by gigatransfers a second of a lane; 128b/130b where none is given."""


def address(text: str) -> str:
    """As ``0000:17:00.0``, whatever way it is written; empty if it is none."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None:
        return ""
    domain = (found[1] or "0000").lower().lstrip("0").rjust(4, "0")
    return f"{domain}:{found[2].lower()}"


def is_address(text: str) -> bool:
    """Whether it is one as it is written here."""
    return text != "" and address(text) == text


def is_bridge(class_code: str) -> bool:
    return class_code.startswith(_BRIDGE)


def is_link_switch(class_code: str) -> bool:
    """Whether accelerators' links go by way of it."""
    return class_code.startswith(_SWITCH)


def bytes_per_s(speed: str, width: int) -> int:
    """What a slot carries one way, of a speed such as ``32.0 GT/s PCIe``; 0 if it is none."""
    found = _GIGATRANSFERS.match(speed)
    if found is None or not 0 < width <= 64:
        return 0
    gigatransfers = float(found[1])
    return round(gigatransfers * 1e9 * LINE_CODES.get(gigatransfers, 128 / 130) * width / 8)


@dataclass(frozen=True, slots=True)
class Way:
    """From the processor to a part: NUMA node, host bridge, and the switches, the outermost first;
    None and empty text are not known. A switch may stand there as its ports: all but the one that
    the part itself is on, so that parts of one switch have the same way."""

    numa: int | None = None
    bridge: str = ""
    switches: tuple[str, ...] = ()


def distances(parts: Iterable[Part], ways: Mapping[str, Way]) -> dict[Pair, Distance]:
    """How near accelerators are to each other and to adapters, where that is known."""
    found: dict[Pair, Distance] = {}
    for one, other in itertools.combinations(parts, 2):
        distance = _distance(ways[one.id], ways[other.id])
        if distance is not None and Kind.ACCELERATOR in (one.kind, other.kind):
            found[pair(one.id, other.id)] = distance
    return found


def _distance(one: Way, other: Way) -> Distance | None:
    common = _common(one.switches, other.switches)
    if common:
        deeper = max(len(one.switches), len(other.switches)) > common
        return Distance.SWITCHES if deeper else Distance.SWITCH
    if one.bridge and one.bridge == other.bridge:
        return Distance.BRIDGE
    if one.numa is None or other.numa is None:
        return None
    return Distance.NUMA if one.numa == other.numa else Distance.SYSTEM


def _common(one: Iterable[str], other: Iterable[str]) -> int:
    both = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], both))
