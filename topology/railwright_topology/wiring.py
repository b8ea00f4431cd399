"""Who is plugged in where: switches, the cables between them, and the hosts' network adapters.

This is what a source of facts says, as it says it. What follows from it (tiers, rails, domains) is
found out in ``layers``.
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
    """``id`` is what its cables call it (a GUID), ``name`` what people do.

    ``reduces`` says that it was seen to reduce data on its way (SHARP).
    """

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
    """All that one source knows. ``strange`` are what it shows and what nobody can use, told."""

    source: str
    switches: tuple[Switch, ...]
    uplinks: tuple[Uplink, ...]
    trunks: tuple[Trunk, ...] = ()
    strange: tuple[str, ...] = field(default=())


def name_switches(names: Mapping[str, str]) -> dict[str, Switch]:
    """Switches by their ids. Those of one name, or of none, have their ids in their names."""
    frequent = collections.Counter(names.values())
    return {
        id_: Switch(id_, name if name and frequent[name] == 1 else f"{name} {id_}".strip())
        for id_, name in names.items()
    }
