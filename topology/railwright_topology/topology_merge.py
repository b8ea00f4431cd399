"""All sources' accounts held against each other: one view of where nodes stand, and each conflict.

Sources name domains and count tiers in ways of their own, so their tiers are matched by what they
put together, in the same order outwards. The most trusted source counts, and the others where it
knows nothing of a node. Where another says that a node stands with others than these, or apart from
them, that is a conflict: it is told with both sides, and nothing is chosen silently.

Islands of device links are a tier as well if they lie in the tiers, or these in them, but for a few
nodes: in racks, or around some.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from railwright_topology import nesting
from railwright_topology.grouping import group, most_frequent
from railwright_topology.nesting import Standing
from railwright_topology.source_reports import ISLAND, SourceReport

ALIKE = 0.7
"""From this likeness on two tiers are one, told by two, and what differs are mistakes. Racks and
rail groups that have nothing to do with each other have none."""

CROSSING = "islands are no tier: they lie in none of the network's, nor these in them"
"""What is told where they are not."""

ASTRAY = 0.1
"""So many nodes may stand outside of what the rest of their domain stands in; those are conflicts.
With more, a tier is none between its neighbours."""

TIERS_MAX = 8
"""Beyond this many tiers, what nobody more trusted knows of is left unmatched."""

Domains = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LocationConflict:
    """Of ``node``, at a level: ``source`` has it stand in ``said``, which is the domain ``theirs``
    of those that count (empty: none of them). It stands in ``held`` (empty: in none) by ``by``."""

    node: str
    level: str
    source: str
    said: str
    theirs: str
    held: str
    by: str


@dataclass(frozen=True, slots=True)
class MergedTier:
    """``domains`` and ``name`` are in the words of ``source``; ``filled`` gives the nodes that it
    does not know and others do, and which of them."""

    name: str
    source: str
    domains: Domains
    filled: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MergedTopology:
    """``tiers`` from the nearest outwards, each domain of one in one domain of the next; that of
    ``islands``, if it is one of them, is called ISLAND, and no other is. ``unmatched`` are tiers of
    sources that are none of these, told as (source, tier's name)."""

    tiers: tuple[MergedTier, ...]
    islands: MergedTier | None
    conflicts: tuple[LocationConflict, ...]
    unmatched: tuple[tuple[str, str], ...]


def of(source_reports: Iterable[SourceReport]) -> MergedTopology:
    """Hold them against each other. The same for any order of accounts of different sources."""
    reports = sorted(source_reports, key=lambda each: (-each.basis, -each.capacity, each.source))
    view = _View(tuple(report.source for report in reports))
    for trust, report in enumerate(reports):
        view.add(report, trust)
    view.place_islands()
    reasons = nesting.settle([held.standing for held in view.tiers])
    for held, its in zip(view.tiers, reasons, strict=True):
        held.reasons = its
    levels = list(view.tiers)
    if view.islands and view.islands not in levels:
        levels.append(view.islands)
    return MergedTopology(
        tuple(view.tier(held) for held in view.tiers),
        view.tier(view.islands) if view.islands else None,
        tuple(conflict for held in levels for conflict in view.conflicts(held)),
        tuple(view.unmatched),
    )


def told(conflict: LocationConflict) -> str:
    """A conflict in words, with both sides."""
    which = ""
    if conflict.theirs != conflict.said:
        which = f", which is {conflict.theirs}" if conflict.theirs else ", which is no other's"
    counts = f"{conflict.held} counts" if conflict.held else "it stands in none of them"
    return f"{conflict.source} has it in {conflict.said}{which}; {counts}, by {conflict.by}"


def alike(conflicts: Iterable[LocationConflict]) -> list[list[LocationConflict]]:
    """Those of nodes that one source has in one domain and another in one, together."""
    return list(group((replace(each, node="", theirs=""), each) for each in conflicts).values())


@dataclass(slots=True, eq=False)
class _Held:
    """A level as it is so far, in the words of the source that counts. ``heard`` are what sources
    say of it, each with the domains here that are its own."""

    name: str
    trust: int
    standing: Standing = field(default_factory=dict)
    reports: list[tuple[int, Domains, Mapping[str, str]]] = field(default_factory=list)
    reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def domains(self) -> Domains:
        """The domain of each node so far."""
        return {node: domain for node, (domain, _) in self.standing.items()}

    def add(self, trust: int, source: str, theirs: Domains) -> None:
        """Take from another source what is not known yet."""
        ours = self.domains
        names = counterparts(theirs, ours)
        taken = {*ours.values()}
        for node, said in sorted(theirs.items()):
            if node not in ours:
                if said not in names:
                    names[said] = f"{source} {said}" if said in taken else said
                self.standing[node] = names[said], trust
        self.reports.append((trust, theirs, names))


class _View:
    """What is believed so far: each account is held against those more trusted than it. A source is
    known by its place among all, 0 the most trusted."""

    def __init__(self, sources: tuple[str, ...]) -> None:
        self.tiers: list[_Held] = []
        self.islands: _Held | None = None
        self.unmatched: list[tuple[str, str]] = []
        self._sources = sources

    def add(self, report: SourceReport, trust: int) -> None:
        pairs = self._pairs(report)
        same = {its: self.tiers[tier] for its, tier in sorted(pairs.items())}
        inner_tier: _Held | None = None
        for its, domains in enumerate(report.tiers):
            if its in same:
                inner_tier = same[its]
                inner_tier.add(trust, report.source, domains)
                continue
            outer_tier = next((held for outer, held in same.items() if outer > its), None)
            new = _Held(self._name(report, its), trust)
            new.add(trust, report.source, domains)
            if domains and self._insert(new, inner_tier, outer_tier):
                inner_tier = new
            elif domains:
                self.unmatched.append((report.source, report.name(its)))
        if report.islands:
            self.islands = self.islands or _Held(ISLAND, trust)
            self.islands.add(trust, report.source, report.islands)

    def place_islands(self) -> None:
        """Make them a tier once all others are, the nearest that they can be."""
        if self.islands and not self._insert(self.islands, None, None):
            self.unmatched.append((self._sources[self.islands.trust], ISLAND))

    def tier(self, held: _Held) -> MergedTier:
        """How a level came out."""
        stood = sorted(held.standing.items())
        return MergedTier(
            held.name,
            self._sources[held.trust],
            {node: domain for node, (domain, _) in stood},
            {node: self._sources[trust] for node, (_, trust) in stood if trust != held.trust},
        )

    def conflicts(self, held: _Held) -> Iterator[LocationConflict]:
        """Where what a source says is not how it came out."""
        for trust, theirs, names in held.reports:
            for node, said in sorted(theirs.items()):
                domain, placed = held.standing.get(node, ("", held.trust))
                if names.get(said) != domain:
                    source, by = self._sources[trust], held.reasons.get(node, placed)
                    here = names.get(said, "")
                    yield LocationConflict(
                        node, held.name, source, said, here, domain, self._sources[by]
                    )

    def _name(self, report: SourceReport, tier: int) -> str:
        name = report.name(tier)
        taken = {ISLAND, *(held.name for held in self.tiers)}
        return f"{name} ({report.source})" if name in taken else name

    def _pairs(self, report: SourceReport) -> dict[int, int]:
        """Who tells of other nodes alone can be compared with nobody: then the nearest tier is the
        nearest, and so on outwards."""
        placed_nodes = {node for held in self.tiers for node in held.standing}
        if not any(report.tiers):
            return {}
        if placed_nodes.isdisjoint(node for domains in report.tiers for node in domains):
            return {tier: tier for tier in range(min(len(self.tiers), len(report.tiers)))}
        return matched([held.domains for held in self.tiers], report.tiers)

    def _insert(self, new: _Held, inner_tier: _Held | None, outer_tier: _Held | None) -> bool:
        """Take it as a tier of its own if what is inside it stands together, and it in the next;
        in the order that its source has of its tiers."""
        if len(self.tiers) == TIERS_MAX:
            return False
        first = self.tiers.index(inner_tier) + 1 if inner_tier else 0
        last = self.tiers.index(outer_tier) if outer_tier else len(self.tiers)
        for at in range(first, last + 1):
            inner = self.tiers[at - 1].domains if at else {}
            outer = self.tiers[at].domains if at < len(self.tiers) else {}
            if _nests(inner, new.domains) and _nests(new.domains, outer):
                self.tiers.insert(at, new)
                return True
        return False


def matched(ours: Sequence[Domains], theirs: Sequence[Domains]) -> dict[int, int]:
    """Which of their tiers is which of ours: in order, as alike as can be in sum, and as near as
    can be where that is equal."""
    best: dict[tuple[int, int], tuple[float, tuple[tuple[int, int], ...]]] = {}
    for tier in range(len(ours), -1, -1):
        for its in range(len(theirs), -1, -1):
            if tier == len(ours) or its == len(theirs):
                best[tier, its] = 0.0, ()
                continue
            found = max(best[tier + 1, its], best[tier, its + 1], key=lambda each: each[0])
            alike = likeness(ours[tier], theirs[its])
            rest, pairs = best[tier + 1, its + 1]
            if alike >= ALIKE and rest + alike >= found[0]:
                found = rest + alike, ((its, tier), *pairs)
            best[tier, its] = found
    return dict(best[0, 0][1])


def likeness(one: Domains, other: Domains) -> float:
    """Which share of the nodes that both know stands in domains that are counterparts. 0 where no
    more than half of the domains have one."""
    both = one.keys() & other.keys()
    ours = {node: one[node] for node in both}
    theirs = {node: other[node] for node in both}
    names = counterparts(ours, theirs)
    if 2 * len(names) <= max(len({*ours.values()}), len({*theirs.values()})):
        return 0.0
    return sum(names.get(ours[node]) == theirs[node] for node in both) / len(both)


def counterparts(one: Domains, other: Domains) -> dict[str, str]:
    """For each domain its counterpart in another account: each has one at most, and pairs with the
    most nodes in common go first. Half of a rack is not the rack."""
    common = collections.Counter((one[node], other[node]) for node in one.keys() & other.keys())
    found: dict[str, str] = {}
    taken: set[str] = set()
    for mine, its in sorted(common, key=lambda pair: (-common[pair], pair)):
        if mine not in found and its not in taken:
            found[mine] = its
            taken.add(its)
    return found


def _nests(inner: Domains, outer: Domains) -> bool:
    """Whether each inner domain lies in one of the outer, all but a few nodes."""
    both = inner.keys() & outer.keys()
    above = most_frequent((inner[node], outer[node]) for node in both)
    outside = sum(above[inner[node]] != outer[node] for node in both)
    return outside <= ASTRAY * len(both)
