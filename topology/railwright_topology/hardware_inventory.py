"""Merge the hardware reports of one node into one inventory, and list what they disagree on.

A part is identified by its PCI address; a report without addresses is resolved by the names and
numbers that another report gives with one. The most trusted source that has a fact counts; each
other source that differs is a conflict with both values. `fabric` calls it for each node.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from railwright_topology import rails
from railwright_topology.folding import fold
from railwright_topology.parts import (
    AdapterRole,
    Distance,
    HardwareReport,
    Kind,
    Link,
    Pair,
    Part,
    Technology,
    pair,
)
from railwright_topology.port_assignment import natural
from railwright_topology.rails import PlacedAdapter
from railwright_topology.source_reports import Provenance

SPEED_TOLERANCE = 0.05
"""Two speeds that differ by less are the same: one is rounded, or includes the line coding."""

DISTANCE = "distance"
"""The name of the fact: the distance of two parts."""

_FACTS = {
    each.name: each.default
    for each in dataclasses.fields(Part)
    if each.name not in ("id", "pci", "names")
}
"""The facts of a part, each with the value that means unknown."""
_SPEEDS = frozenset({"pcie_bytes_per_s", "bytes_per_s"})

Value = TypeVar("Value")
_LinkKey = tuple[Pair, Technology]
_Alias = tuple[Kind, int | str]


@dataclass(frozen=True, slots=True)
class HardwareConflict:
    """Of a part, or of two: ``source`` has ``reported`` for a fact; ``held`` by ``by`` counts."""

    part: str
    fact: str
    source: str
    reported: str
    held: str
    by: str


@dataclass(frozen=True, slots=True)
class HardwareInventory:
    """``parts`` are accelerators before adapters, each in natural order. ``placed`` has the role of
    each adapter. ``sources`` gives the source that counts, by part and fact, or by the ends of a
    link and its technology, or by two parts and DISTANCE. ``unknown`` are sentences on what no
    source reports."""

    parts: tuple[Part, ...] = ()
    links: tuple[Link, ...] = ()
    distances: Mapping[Pair, Distance] = field(default_factory=dict)
    placed: Mapping[str, PlacedAdapter] = field(default_factory=dict)
    sources: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    conflicts: tuple[HardwareConflict, ...] = ()
    virtual: bool | None = None
    hides_tree: bool = False
    unknown: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def accelerators(self) -> tuple[Part, ...]:
        """In the order of their numbers, or of their addresses."""
        return tuple(part for part in self.parts if part.kind == Kind.ACCELERATOR)

    @property
    def adapters(self) -> tuple[Part, ...]:
        """In the order of their names."""
        return tuple(part for part in self.parts if part.kind == Kind.ADAPTER)

    def of_role(self, role: AdapterRole) -> tuple[Part, ...]:
        """The adapters with this role."""
        return tuple(part for part in self.adapters if self.placed[part.id].role == role)


def of(hardware_reports: Iterable[HardwareReport]) -> HardwareInventory:
    """Merge the reports of one node. The same for any order of different sources."""
    reports = sorted(hardware_reports, key=lambda report: (-report.provenance, report.source))
    merge = _Merge()
    remarks = [f"{report.source}: {remark}" for report in reports for remark in report.remarks]
    identities = _identities(reports, remarks)
    for report, ids in zip(reports, identities, strict=True):
        merge.add(report, ids)
    merge.add_links(reports, identities)
    parts = tuple(sorted(merge.parts.values(), key=_order))
    kept = {part.id for part in parts}
    distances = {both: near for both, near in merge.distances.items() if kept.issuperset(both)}
    found = HardwareInventory(
        parts,
        tuple(merge.links),
        distances,
        rails.of(parts, distances),
        merge.sources,
        tuple(merge.conflicts),
        next((report.virtual for report in reports if report.virtual is not None), None),
        not distances and any(report.hides_tree for report in reports),
        remarks=tuple(sorted(remarks)),
    )
    shows_links = any(report.complete for report in reports)
    return replace(found, unknown=tuple(_unknown(found, shows_links=shows_links)))


def describe(conflict: HardwareConflict) -> str:
    """A conflict as a sentence with both values."""
    return (
        f"{conflict.part}: by {conflict.source} its {conflict.fact} is {conflict.reported};"
        f" {conflict.held} counts, by {conflict.by}"
    )


def _order(part: Part) -> tuple[object, ...]:
    number = part.number if part.number is not None else 1 << 16
    names = natural(part.names[0]) if part.names else ((1 << 17, ""),)
    return part.kind != Kind.ACCELERATOR, number, names, part.id


def _identities(reports: Sequence[HardwareReport], remarks: list[str]) -> list[dict[str, str]]:
    """For each report, the merged ids of its parts; a part without one is left out and remarked."""
    located, unnamed = _located([part for report in reports for part in report.parts if part.pci])
    found: list[dict[str, str]] = []
    for report in reports:
        trust = report.provenance
        ids = {part.id: _identity(part, trust, located, unnamed) for part in report.parts}
        if left := [name for name, its in ids.items() if not its]:
            which = f"{left[0]} and {len(left) - 1} more" if left[1:] else left[0]
            remarks.append(f"{report.source}: no source has the PCI address of {which}")
        found.append({name: its for name, its in ids.items() if its})
    return found


def _located(parts: Sequence[Part]) -> tuple[dict[_Alias, str], set[Kind]]:
    """The address of each alias, and the kinds with parts that have an address and no alias."""
    # The first part of an alias counts, so it is written last.
    located = {alias: _address(part) for part in reversed(parts) for alias in _aliases(part)}
    named = {(kind, address) for (kind, _), address in located.items()}
    return located, {part.kind for part in parts if (part.kind, _address(part)) not in named}


def _identity(
    part: Part, provenance: Provenance, located: Mapping[_Alias, str], unnamed: set[Kind]
) -> str:
    """Empty where no address is known and one of the addresses of its kind may be its own."""
    located_at = next((located[its] for its in _aliases(part) if its in located), "")
    # Files give functions of one card one address: a name counts for more there.
    by_name = located_at and part.kind == Kind.ADAPTER and provenance <= Provenance.IMPORTED
    if part.pci and not by_name:
        return _address(part)
    return located_at or ("" if part.kind in unnamed else part.id)


def _aliases(part: Part) -> list[_Alias]:
    """The names and the number by which sources without addresses identify it."""
    found: list[_Alias] = [(part.kind, name) for name in part.names]
    return found if part.number is None else [(part.kind, part.number), *found]


def _address(part: Part) -> str:
    """The PCI address; further ports of an adapter (``mlx4_0/2``) get a suffix."""
    port = part.names[0].partition("/")[2] if part.names else ""
    return f"{part.pci}/{port}" if port else part.pci


class _Merge:
    """The inventory so far; reports are added from the most trusted one on."""

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self.links: list[Link] = []
        self.distances: dict[Pair, Distance] = {}
        self.sources: dict[tuple[str, ...], str] = {}
        self.conflicts: list[HardwareConflict] = []
        self._values: dict[tuple[str, ...], object] = {}

    def add(self, report: HardwareReport, ids: Mapping[str, str]) -> None:
        """Add a report's parts and distances."""
        for part in report.parts:
            if part.id in ids:
                self._add_part(ids[part.id], part, report.source)
        for (one, other), distance in sorted(report.distances.items()):
            if one in ids and other in ids:
                both = pair(ids[one], ids[other])
                self.distances[both] = self._claim((*both, DISTANCE), distance, report.source)

    def _add_part(self, name: str, part: Part, source: str) -> None:
        held = self.parts.get(name) or Part(name, part.kind, part.pci)
        facts = {
            fact: self._claim((name, fact), value, source)
            for fact, unknown in _FACTS.items()
            if (value := getattr(part, fact)) != unknown
        }
        if part.names and not held.names:
            self.sources[name, "names"] = source
        names = held.names + tuple(each for each in part.names if each not in held.names)
        self.parts[name] = replace(held, names=names, **facts)

    def _claim(self, key: tuple[str, ...], reported: Value, source: str) -> Value:
        """Return the value that counts: that of the first source. Another one is a conflict."""
        by = self.sources.setdefault(key, source)
        held: Value = self._values.setdefault(key, reported)  # type: ignore[assignment]
        fact = key[-1]
        if not _agree(fact, reported, held):
            self._differ(key, source, _words(fact, reported), _words(fact, held), by)
        return held

    def _differ(self, key: tuple[str, ...], source: str, reported: str, held: str, by: str) -> None:
        part = " and ".join(key[:-1])
        self.conflicts.append(HardwareConflict(part, key[-1], source, reported, held, by))

    def add_links(
        self, reports: Iterable[HardwareReport], identities: Iterable[Mapping[str, str]]
    ) -> None:
        """Add all links by ends and technology. A report that is complete for a technology reports
        a link that it leaves out as absent."""
        shown = [
            (report, {*ids.values()}, _links(report, ids))
            for report, ids in zip(reports, identities, strict=True)
        ]
        for key in sorted({key for _, _, links in shown for key in links}):
            ends, technology = key
            reported = [
                (report.source, links.get(key))
                for report, there, links in shown
                if key in links or (technology in report.complete and there.issuperset(ends))
            ]
            self._add_link((*ends, technology), reported)

    def _add_link(self, key: tuple[str, ...], reported: Sequence[tuple[str, Link | None]]) -> None:
        (by, held), *others = reported
        for source, link in others:
            if not _agree_on_link(link, held):
                self._differ(key, source, _link(link), _link(held), by)
            if held is not None and link is not None:
                held = replace(
                    held,
                    count=held.count or link.count,
                    bytes_per_s=held.bytes_per_s or link.bytes_per_s,
                    switched=link.switched if held.switched is None else held.switched,
                )
        if held is not None:
            self.links.append(held)
            self.sources[key] = by


def _links(report: HardwareReport, ids: Mapping[str, str]) -> dict[_LinkKey, Link]:
    found: dict[_LinkKey, Link] = {}
    for link in report.links:
        one, other = link.ends
        if one in ids and other in ids:
            ends = pair(ids[one], ids[other])
            found[ends, link.technology] = replace(link, ends=ends)
    return found


def _agree(fact: str, one: object, other: object) -> bool:
    if fact == DISTANCE:
        # Some sources show NUMA nodes and no host bridges.
        return one == other or {one, other} == {Distance.BRIDGE, Distance.NUMA}
    if isinstance(one, int) and isinstance(other, int) and fact in _SPEEDS:
        return abs(one - other) <= SPEED_TOLERANCE * max(one, other)
    return one == other


def _agree_on_link(one: Link | None, other: Link | None) -> bool:
    if one is None or other is None:
        return one is other
    speeds = one.bytes_per_s, other.bytes_per_s
    same_count = one.count == other.count or not (one.count and other.count)
    return same_count and (not all(speeds) or _agree("bytes_per_s", *speeds))


def _words(fact: str, value: object) -> str:
    if isinstance(value, Distance):
        return value.name
    return f"{value:,} bytes/s" if fact in _SPEEDS else str(value)


def _link(link: Link | None) -> str:
    if link is None:
        return "no link"
    phrases = [f"{link.count} links"] if link.count else []
    phrases += [f"{link.bytes_per_s:,} bytes/s"] if link.bytes_per_s else []
    return ", ".join(phrases) or "a link"


def _unknown(found: HardwareInventory, *, shows_links: bool) -> Iterator[str]:
    if found.hides_tree:
        yield "which part is near which: the machine exposes no PCI tree, as virtual machines do"
    elif found.accelerators and found.adapters and not found.distances:
        yield "which part is near which"
    if len(found.accelerators) > 1 and not shows_links:
        yield "how accelerators are linked beside PCIe"
    if slow := [part.name for part in found.adapters if not part.bytes_per_s]:
        yield f"the speed of {fold(slow)}"
