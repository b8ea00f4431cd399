"""The topology hash: a digest of the links and of the relative speeds of nodes.

A placement is evaluated again when the hash changes. Numbers are rounded so that two measurements
agree: two digits of the bandwidth of uplinks, twentieths of a relative speed.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable

import orjson

from railwright_scheduler.model.snapshot import Node
from railwright_topology.interconnect import Interconnect
from railwright_topology.links import Links
from railwright_topology.relative_speed import EVEN, RelativeSpeed

VERSION = 1
"""Raise it with every change of what is hashed, or how. A hash of another version says nothing of
what changed, so that an upgrade moves no running job."""

TWENTIETHS = 20


class TopologyHash:
    """Caches the digest until the interconnect or a relative speed changes."""

    def __init__(self) -> None:
        self._interconnect: Interconnect | None = None
        self._relative_speeds: tuple[tuple[str, RelativeSpeed], ...] = ()
        self._digest = ""

    def digest(self, interconnect: Interconnect, nodes: Iterable[Node]) -> str:
        """The digest of all links, and of the nodes with a relative speed other than 1.0, by
        name."""
        relative_speeds = tuple(
            (node.name, node.relative_speed)
            for node in nodes
            if node.relative_speed is not EVEN and node.relative_speed != EVEN
        )
        if interconnect is not self._interconnect or relative_speeds != self._relative_speeds:
            self._interconnect, self._relative_speeds = interconnect, relative_speeds
            self._digest = _digest(interconnect, relative_speeds)
        return self._digest


def of_this_version(stored: str) -> str:
    """The stored hash; empty if another version computed it."""
    return stored if stored.startswith(f"{VERSION}-") else ""


def _digest(network: Interconnect, relative_speeds: tuple[tuple[str, RelativeSpeed], ...]) -> str:
    links = [
        [level, _rough(its.oversubscription), _rooms(its), sorted(its.reducing)]
        for level, its in zip(network.levels, network.links, strict=bool(network.links))
    ]
    uneven = [[name, _twentieths(relative_speed)] for name, relative_speed in relative_speeds]
    digest = hashlib.blake2b(orjson.dumps([links, uneven]), digest_size=8).hexdigest()
    return f"{VERSION}-{digest}"


def _twentieths(relative_speed: RelativeSpeed) -> dict[str, int]:
    """The shares that are not usual, by name: then a new one changes no hash before it counts."""
    shares = dataclasses.asdict(relative_speed).items()
    rounded = ((name, round(TWENTIETHS * share)) for name, share in shares)
    return {name: share for name, share in rounded if share != TWENTIETHS}


def _rooms(links: Links) -> list[tuple[str, str]]:
    return sorted((domain, _rough(capacity)) for domain, capacity in links.leaving.items())


def _rough(number: float) -> str:
    return f"{number:.2g}"
