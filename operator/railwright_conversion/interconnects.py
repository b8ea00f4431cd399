"""The interconnect: domains and links in the status of the Fabric, values in the scheduler."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from railwright_api.interconnect import LEVEL_LENGTH_MAX, LevelLinks, SchedulingTopology
from railwright_api.schema import NAME_LENGTH_MAX, NODES_MAX
from railwright_conversion import bounds
from railwright_topology.folding import fold
from railwright_topology.grouping import group
from railwright_topology.interconnect import Interconnect
from railwright_topology.links import Links
from railwright_topology.sources import hostlist

NODES_READ_MAX = 1 << 17
"""More names of nodes than an object has room for, unless a host list is made to be large."""

Json = dict[str, Any]


def parse(raw: Mapping[str, Any]) -> Interconnect:
    """The domains and links in an object. Raises ValueError for what cannot be read."""
    found = SchedulingTopology.model_validate(raw)
    places: dict[str, tuple[str, ...]] = {}
    read = 0
    for each in found.places:
        if len(each.domains) != len(found.levels):
            raise ValueError(
                f"places: {each.nodes[:80]} has {len(each.domains)} domains, "
                f"expected one at each of {len(found.levels)} levels"
            )
        names = hostlist.expand(each.nodes, NODES_READ_MAX - read)
        read += len(names)
        places |= dict.fromkeys(names, each.domains)
    if len(places) < read:
        raise ValueError(f"places: {read} names of {len(places)} nodes, expected each node once")
    return Interconnect(
        tuple(each.level for each in found.levels),
        dict(sorted(places.items())),
        tuple(map(_links, found.levels)),
    )


def render_bounded(
    interconnect: Interconnect, bytes_max: int
) -> tuple[Json | None, tuple[str, ...]]:
    """As ``render``, without as many of the finest levels as it takes to fit an object of this
    size, and the names of the levels that are left out. They are the largest and cost the least:
    domains with long names of one node each, for example. None if even the names of the nodes do
    not fit."""
    levels = interconnect.levels
    for count in range(len(levels), -1, -1):
        rendered = render(_with_levels(interconnect, count))
        is_small = bounds.stored_bytes(rendered) <= bytes_max
        if is_small and len(rendered["places"]) <= NODES_MAX:
            return rendered, levels[count:]
    return None, levels


def _with_levels(interconnect: Interconnect, count: int) -> Interconnect:
    """The interconnect with so many of its levels, the coarsest ones."""
    if count == len(interconnect.levels):
        return interconnect
    return replace(
        interconnect,
        levels=interconnect.levels[:count],
        places={node: domains[:count] for node, domains in interconnect.places.items()},
        links=interconnect.links[:count],
    )


def render(interconnect: Interconnect) -> Json:
    """The domains and links as the status has them: equal ones for an equal interconnect."""
    nodes = group(
        (tuple(map(_name, domains)), node) for node, domains in interconnect.places.items()
    )
    links = zip(interconnect.levels, interconnect.links, strict=True)
    return {
        "levels": [_level(level, its) for level, its in links],
        "places": [
            {"domains": list(domains), "nodes": fold(its)} for domains, its in sorted(nodes.items())
        ],
    }


def _links(level: LevelLinks) -> Links:
    return Links(
        bounds.non_negative(level.oversubscription) or 1.0,
        {
            each.name: bounds.non_negative(each.uplink_nodes)
            for each in level.domains
            if each.uplink_nodes
        },
        frozenset(each.name for each in level.domains if each.reducing),
    )


def _level(level: str, links: Links) -> Json:
    domains: list[Json] = []
    for domain in sorted(links.leaving.keys() | links.reducing, key=_name):
        domains.append({"name": _name(domain)})
        if domain in links.leaving:
            domains[-1]["uplinkNodes"] = _decimal(links.leaving[domain])
        if domain in links.reducing:
            domains[-1]["reducing"] = True
    return {
        "level": _name(level, LEVEL_LENGTH_MAX),
        "oversubscription": _decimal(links.oversubscription),
        "domains": domains,
    }


def _decimal(number: float) -> str:
    assert math.isfinite(number), f"a link has {number}, expected a finite number"
    return repr(float(number))


def _name(name: str, bytes_max: int = NAME_LENGTH_MAX) -> str:
    """The name, or for one that no object can have a shorter one, which no other name gets."""
    data = name.encode("utf-8", "surrogatepass")
    if len(data) <= bytes_max and not any("\ud800" <= each <= "\udfff" for each in name):
        return name
    digest = hashlib.blake2b(data, digest_size=8).hexdigest()
    kept = data[: bytes_max - len(digest) - 1].decode("utf-8", "ignore")
    return f"{kept}~{digest}"
