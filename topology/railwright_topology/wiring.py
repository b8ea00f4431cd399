"""The wiring of a network: switches, the cables between them, and the hosts' network adapters.

These values are as the source reports them; ``layers`` derives tiers, rails and domains.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping
from dataclasses import dataclass, field


class WiringError(ValueError):
    """A source that cannot be used, with the line, and the rule that it breaks; line 0 where a
    format keeps no lines."""

    def __init__(self, source: str, line: int, rule: str) -> None:
        super().__init__(f"{source}, line {line}: {rule}" if line else f"{source}: {rule}")
        self.line = line
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Switch:
    """``id`` is unique (a GUID), ``name`` is for display. ``reduces``: it has in-network reduction
    (SHARP)."""

    id: str
    name: str
    reduces: bool = False


@dataclass(frozen=True, slots=True)
class Uplink:
    """One port of a host's adapter and the switch it is plugged into; bytes a second, one way."""

    host: str
    nic: str
    switch: str
    bytes_per_s: int


@dataclass(frozen=True, slots=True)
class Trunk:
    """All cables of one speed between two switches, the smaller id first; bytes a second of one
    cable, one way."""

    ends: tuple[str, str]
    cables: int
    bytes_per_s: int


@dataclass(frozen=True, slots=True)
class Wiring:
    """The wiring of one source. ``strange`` are sentences on what cannot be used."""

    source: str
    switches: tuple[Switch, ...]
    uplinks: tuple[Uplink, ...]
    trunks: tuple[Trunk, ...] = ()
    strange: tuple[str, ...] = field(default=())


def name_switches(names: Mapping[str, str]) -> dict[str, Switch]:
    """Switches by id; ambiguous or empty names get the id as a suffix."""
    frequent = collections.Counter(names.values())
    return {
        id_: Switch(id_, name if name and frequent[name] == 1 else f"{name} {id_}".strip())
        for id_, name in names.items()
    }
