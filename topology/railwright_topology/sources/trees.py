"""Switches above switches and nodes below them -> the domain of every node at each tier.

A tier is counted from the nodes outwards: a switch is one tier above the highest of those below it.
Where one branch is shorter than another, its outermost switch so far stands for it at the tiers
that it lacks, so that every domain lies in one of the next tier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from railwright_topology.sources import hostlist
from railwright_topology.wiring import WiringError

NAMES_MAX = 1 << 16
TIERS_MAX = 6


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch, the line it is described in, and the names of what is directly below it."""

    line: int
    name: str
    children: Sequence[str] = ()
    nodes: Sequence[str] = ()


def tiers(source: str, switches: Iterable[Switch]) -> tuple[Mapping[str, str], ...]:
    """Takes one switch after the other, and none after what is refused. Raises WiringError where
    they are no trees."""
    lines: dict[str, int] = {}
    parents: dict[str, str] = {}
    leaves: dict[str, str] = {}
    for switch in switches:
        if switch.name in lines:
            raise WiringError(source, switch.line, f"{switch.name[:80]!r} is described twice")
        lines[switch.name] = switch.line
        _add(source, switch, switch.children, "switch", parents)
        _add(source, switch, switch.nodes, "node", leaves)
    for child, name in parents.items():
        if child not in lines:
            rule = f"{child!r} is below {name!r}, and described nowhere"
            raise WiringError(source, lines[name], rule)
    ways = {name: _way(source, name, line, parents) for name, line in lines.items()}
    if not leaves:
        raise WiringError(source, 1, "no node is in it")
    return _outwards(leaves, ways)


def members(source: str, groups: Iterable[Switch]) -> dict[str, str]:
    """Which group each node is in, where groups lie in nothing."""
    found: dict[str, str] = {}
    described: set[str] = set()
    for group in groups:
        if group.name in described:
            raise WiringError(source, group.line, f"{group.name[:80]!r} is described twice")
        described.add(group.name)
        _add(source, group, group.nodes, "node", found)
    return found


def _add(
    source: str, above: Switch, names: Sequence[str], kind: str, found: dict[str, str]
) -> None:
    for name in (above.name, *names):
        if not 0 < len(name) <= hostlist.NAME_MAX or not name.isprintable():
            rule = f"{name[:80]!r}: a name has 1 to {hostlist.NAME_MAX} printable characters"
            raise WiringError(source, above.line, rule)
    for name in names:
        if found.setdefault(name, above.name) != above.name:
            rule = f"{kind} {name!r} is in both {found[name]!r} and {above.name!r}"
            raise WiringError(source, above.line, rule)
    if len(found) > NAMES_MAX:
        raise WiringError(source, above.line, f"is past {NAMES_MAX} names of a {kind}: too many")


def names(source: str, line: int, text: str) -> list[str]:
    """What a host list in this line stands for."""
    try:
        found = hostlist.expand(text, NAMES_MAX)
    except hostlist.HostlistError as refused:
        raise WiringError(source, line, str(refused)) from None
    if not found:
        raise WiringError(source, line, f"{text[:80]!r} names nobody")
    return found


def _way(source: str, name: str, line: int, parents: Mapping[str, str]) -> tuple[str, ...]:
    """The switch and all above it."""
    way = [name]
    while (above := parents.get(way[-1])) is not None:
        if above in way:
            raise WiringError(source, line, f"{above!r} is above itself")
        if len(way) == TIERS_MAX:
            raise WiringError(source, line, f"{name!r} is below {TIERS_MAX} others: too many")
        way.append(above)
    return tuple(way)


def _outwards(
    leaves: Mapping[str, str], ways: Mapping[str, tuple[str, ...]]
) -> tuple[Mapping[str, str], ...]:
    used = sorted({*leaves.values()})
    heights: dict[str, int] = {}
    for leaf in used:
        for height, switch in enumerate(ways[leaf]):
            heights[switch] = max(height, heights.get(switch, 0))
    found: list[dict[str, str]] = []
    for tier in range(max(heights.values()) + 1):
        domains = {}
        for leaf in used:
            below = [switch for switch in ways[leaf] if heights[switch] <= tier]
            if below:
                domains[leaf] = below[-1]
        found.append(
            {node: domains[leaf] for node, leaf in sorted(leaves.items()) if leaf in domains}
        )
    return tuple(found)
