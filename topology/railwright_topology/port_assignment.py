"""Find the kind of each host by its adapters, and the uplinks that differ from those of its peers.

The intended cabling is unknown, so the majority is the rule. Hosts are of one kind if their
adapters have the same names; a host that lacks one of a far more frequent kind is of that kind.
Hosts of one kind with the same switches are peers. A host that shares half of its uplinks or more
with such peers, and not all, has odd uplinks: the others of it.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from railwright_topology.grouping import group
from railwright_topology.wiring import Uplink

RARE = 10
"""So many times as frequent must a kind be, for hosts that lack some of its adapters, and not most,
to be of it and not of a kind of their own."""

Kind = tuple[str, ...]
"""The names of its adapters in natural order."""
_Places = tuple[str, ...]
"""The switch of each adapter of a kind; empty where a host has no such cable."""
_Hosts = Mapping[tuple[Kind, _Places], Sequence[str]]
"""The hosts of each kind and places."""


@dataclass(frozen=True, slots=True)
class PortAssignment:
    """``kinds`` gives each host its kind. ``sound`` are the uplinks that are as those beside them;
    ``odd`` gives each other one the switch where those beside it are."""

    kinds: Mapping[str, Kind]
    sound: tuple[Uplink, ...]
    odd: Mapping[Uplink, str]


def of(uplinks: Iterable[Uplink]) -> PortAssignment:
    """Derive kinds and odd uplinks. Independent of the order of the uplinks."""
    ordered = sorted(uplinks, key=lambda uplink: (natural(uplink.host), natural(uplink.nic)))
    there: dict[str, dict[str, Uplink]] = {}
    for uplink in ordered:
        there.setdefault(uplink.host, {})[uplink.nic] = uplink
    kinds = usual({host: tuple(nics) for host, nics in there.items()})
    odd = dict(_odd(there, kinds))
    return PortAssignment(kinds, tuple(uplink for uplink in ordered if uplink not in odd), odd)


def natural(name: str) -> tuple[tuple[int, str], ...]:
    """A key that sorts mlx5_10 after mlx5_2."""
    return tuple(map(_counted, re.findall(r"[0-9]+|[^0-9]+", name)))


def _counted(part: str) -> tuple[int, str]:
    """Numbers before words, the shorter before the longer."""
    if part[0] not in "0123456789":
        return 1 << 16, part
    digits = part.lstrip("0")
    return len(digits), digits


def usual(names: Mapping[str, Kind]) -> dict[str, Kind]:
    """The kind of each host by the names of its adapters, those included that it lacks."""
    counts = collections.Counter(names.values())
    frequent_first = sorted(counts, key=lambda kind: (-counts[kind], -len(kind), kind))

    def kind_of(own: Kind) -> Kind:
        whole = next((kind for kind in frequent_first if _is_part(own, kind)), own)
        return whole if counts[whole] >= RARE * counts[own] else own

    chosen = {own: kind_of(own) for own in counts}
    return {host: chosen[own] for host, own in names.items()}


def whole(kind: Kind, hosts: Mapping[Kind, int]) -> Kind:
    """The most frequent kind that has all of a kind's adapters and a few more, if it is more
    frequent; else the kind itself. ``hosts`` says how many there are of each."""
    larger = [other for other in hosts if _is_part(kind, other) and hosts[other] > hosts[kind]]
    return max(larger, key=lambda other: (hosts[other], other), default=kind)


def _is_part(kind: Kind, other: Kind) -> bool:
    """Whether it has most of the other's adapters, and no others."""
    return {*kind} < {*other} and 2 * len(kind) >= len(other)


def _odd(
    there: Mapping[str, Mapping[str, Uplink]], kinds: Mapping[str, Kind]
) -> Iterator[tuple[Uplink, str]]:
    hosts: _Hosts = group(
        ((kinds[host], tuple(nics[nic].switch if nic in nics else "" for nic in kinds[host])), host)
        for host, nics in there.items()
    )
    sharing = group(
        ((kind, position, switch), places)
        for kind, places in hosts
        for position, switch in enumerate(places)
        if switch
    )
    for (kind, places), its in hosts.items():
        rule = _rule(kind, places, hosts, sharing)
        for host in its if rule else ():
            for nic, switch, expected in zip(kind, places, rule, strict=True):
                if switch and expected and switch != expected:
                    yield there[host][nic], expected


def _rule(
    kind: Kind,
    places: _Places,
    hosts: _Hosts,
    sharing: Mapping[tuple[Kind, int, str], Sequence[_Places]],
) -> _Places:
    """The places of more hosts, which share half of these or more, and not all; empty if none."""
    agreeing = collections.Counter(
        others
        for position, switch in enumerate(places)
        for others in sharing.get((kind, position, switch), ())
        if len(hosts[kind, others]) > len(hosts[kind, places])
    )
    cables = sum(map(bool, places))
    beside = [others for others, count in agreeing.items() if 2 * count >= cables > count]
    return max(beside, key=lambda its: (agreeing[its], len(hosts[kind, its]), its), default=())
