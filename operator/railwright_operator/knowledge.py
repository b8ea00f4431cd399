"""What is known of links and of the pace of nodes, as one word that is another whenever it changes.

A job is placed by it, and judged again by what is known later. Numbers are taken as exactly as they
can be measured twice: two digits of what uplinks let out, twentieths of a pace.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable

import orjson

from railwright_scheduler.snapshot import Node
from railwright_topology.fabric import Fabric
from railwright_topology.links import Links
from railwright_topology.pace import EVEN, Pace

TWENTIETHS = 20


class Knowledge:
    """Looked through again only where something of it is another object, or another pace."""

    def __init__(self) -> None:
        self._fabric: Fabric | None = None
        self._paces: tuple[tuple[str, Pace], ...] = ()
        self._digest = ""

    def digest(self, fabric: Fabric, nodes: Iterable[Node]) -> str:
        """Of all links, and of the nodes, by name, that are not as most of their kind are."""
        paces = tuple(
            (node.name, node.pace) for node in nodes if node.pace is not EVEN and node.pace != EVEN
        )
        if fabric is not self._fabric or paces != self._paces:
            self._fabric, self._paces = fabric, paces
            self._digest = _digest(fabric, paces)
        return self._digest


def _digest(fabric: Fabric, paces: tuple[tuple[str, Pace], ...]) -> str:
    links = [
        [level, _rough(its.oversubscription), _rooms(its), sorted(its.summing)]
        for level, its in zip(fabric.levels, fabric.links, strict=bool(fabric.links))
    ]
    uneven = [
        [name, *(round(TWENTIETHS * share) for share in dataclasses.astuple(pace))]
        for name, pace in paces
    ]
    return hashlib.blake2b(orjson.dumps([links, uneven]), digest_size=8).hexdigest()


def _rooms(links: Links) -> list[tuple[str, str]]:
    return sorted((domain, _rough(room)) for domain, room in links.leaving.items())


def _rough(number: float) -> str:
    return f"{number:.2g}"
