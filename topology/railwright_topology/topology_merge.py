"""Merge the source reports into one topology, and list the conflicts between them.

Sources name domains and count tiers differently, so their tiers are matched by the nodes that they
group, in the same order outwards. The most trusted source counts; the others add the nodes that it
lacks. A source that groups a node with other nodes is a conflict, which is reported with both
domains. `fabric` calls it.

Scale-up domains are a tier too if they nest with the tiers of the network but for a few nodes:
inside racks, or around several.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from railwright_topology import nesting
from railwright_topology.grouping import group, most_frequent
from railwright_topology.nesting import NodeLocations
from railwright_topology.source_reports import SCALE_UP, SourceReport

SIMILARITY_MIN = 0.7
"""Two tiers with at least this similarity are the same tier in two sources, and differences are
mistakes. Unrelated tiers, such as racks and rail groups, have a similarity of 0."""

CROSSING = "scale-up domains are no tier: they do not nest with the tiers of the network"
"""The remark on scale-up domains that are no tier."""

OUTSIDE_SHARE_MAX = 0.1
"""Share of nodes that may be outside the outer domain of the rest of their domain; they are
conflicts. A tier with more does not fit between its neighbours."""

TIERS_MAX = 8
"""Further tiers of less trusted sources are left unmatched."""

Domains = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LocationConflict:
    """Of ``node``, at a level: ``source`` has it in ``reported``, which is the merged domain
    ``theirs`` (empty: none). The merged domain of the node is ``held`` (empty: none) by ``by``."""

    node: str
    level: str
    source: str
    reported: str
    theirs: str
    held: str
    by: str


@dataclass(frozen=True, slots=True)
class MergedTier:
    """``domains`` and ``name`` are those of ``source``; ``filled`` maps the nodes that it lacks to
    the source that has them."""

    name: str
    source: str
    domains: Domains
    filled: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MergedTopology:
    """``tiers`` from the nearest outwards, each domain of one in one domain of the next; if
    ``scale_up_domains`` is one of them, it alone has the name SCALE_UP. ``unmatched`` are other
    tiers, as (source, tier's name)."""

    tiers: tuple[MergedTier, ...]
    scale_up_domains: MergedTier | None
    conflicts: tuple[LocationConflict, ...]
    unmatched: tuple[tuple[str, str], ...]


def of(source_reports: Iterable[SourceReport]) -> MergedTopology:
    """Merge the reports. The result does not depend on the order of different sources."""
    reports = sorted(source_reports, key=lambda report: report.order)
    view = _View(tuple(report.source for report in reports))
    for trust, report in enumerate(reports):
        view.add(report, trust)
    view.place_scale_up_domains()
    reasons = nesting.settle([level.locations for level in view.tiers])
    for level, its in zip(view.tiers, reasons, strict=True):
        level.reasons = its
    levels = list(view.tiers)
    if view.scale_up_domains and view.scale_up_domains not in levels:
        levels.append(view.scale_up_domains)
    return MergedTopology(
        tuple(view.tier(level) for level in view.tiers),
        view.tier(view.scale_up_domains) if view.scale_up_domains else None,
        tuple(conflict for level in levels for conflict in view.conflicts(level)),
        tuple(view.unmatched),
    )


def describe(conflict: LocationConflict) -> str:
    """A conflict as a sentence with both domains."""
    which = ""
    if conflict.theirs != conflict.reported:
        which = f", which is {conflict.theirs}" if conflict.theirs else ", which no other has"
    counts = f"{conflict.held} counts" if conflict.held else "it is in none of them"
    return f"{conflict.source} has it in {conflict.reported}{which}; {counts}, by {conflict.by}"


def group_conflicts(conflicts: Iterable[LocationConflict]) -> list[list[LocationConflict]]:
    """Group conflicts by their pair of domains."""
    return list(group((replace(each, node="", theirs=""), each) for each in conflicts).values())


@dataclass(slots=True, eq=False)
class _Level:
    """A tier while it is merged, with the names of the source that counts. ``reports`` are those of
    each source, with the merged domain of each of its domains."""

    name: str
    trust: int
    locations: NodeLocations = field(default_factory=dict)
    reports: list[tuple[int, Domains, Mapping[str, str]]] = field(default_factory=list)
    reasons: Mapping[str, int] = field(default_factory=dict)

    @property
    def domains(self) -> Domains:
        """The merged domain of each node so far."""
        return {node: domain for node, (domain, _) in self.locations.items()}

    def add(self, trust: int, source: str, theirs: Domains) -> None:
        """Add a source's report: nodes that are not in the tier yet get its domains."""
        ours = self.domains
        names = counterparts(theirs, ours)
        taken = {*ours.values()}
        for node, reported in sorted(theirs.items()):
            if node not in ours:
                if reported not in names:
                    names[reported] = f"{source} {reported}" if reported in taken else reported
                self.locations[node] = names[reported], trust
        self.reports.append((trust, theirs, names))


class _View:
    """The topology while it is merged; reports are added from the most trusted one on. A source is
    identified by its rank in trust, 0 the most trusted."""

    def __init__(self, sources: tuple[str, ...]) -> None:
        self.tiers: list[_Level] = []
        self.scale_up_domains: _Level | None = None
        self.unmatched: list[tuple[str, str]] = []
        self._sources = sources

    def add(self, report: SourceReport, trust: int) -> None:
        pairs = self._pairs(report)
        same = {its: self.tiers[tier] for its, tier in sorted(pairs.items())}
        inner_tier: _Level | None = None
        for its, domains in enumerate(report.tiers):
            if its in same:
                inner_tier = same[its]
                inner_tier.add(trust, report.source, domains)
                continue
            outer_tier = next((level for outer, level in same.items() if outer > its), None)
            new = _Level(self._name(report, its), trust)
            new.add(trust, report.source, domains)
            if domains and self._insert(new, inner_tier, outer_tier):
                inner_tier = new
            elif domains:
                self.unmatched.append((report.source, report.name(its)))
        if report.scale_up_domains:
            self.scale_up_domains = self.scale_up_domains or _Level(SCALE_UP, trust)
            self.scale_up_domains.add(trust, report.source, report.scale_up_domains)

    def place_scale_up_domains(self) -> None:
        """Insert scale-up domains as the nearest possible tier, after all others."""
        if self.scale_up_domains and not self._insert(self.scale_up_domains, None, None):
            self.unmatched.append((self._sources[self.scale_up_domains.trust], SCALE_UP))

    def tier(self, level: _Level) -> MergedTier:
        """The merged tier."""
        located = sorted(level.locations.items())
        return MergedTier(
            level.name,
            self._sources[level.trust],
            {node: domain for node, (domain, _) in located},
            {node: self._sources[trust] for node, (_, trust) in located if trust != level.trust},
        )

    def conflicts(self, level: _Level) -> Iterator[LocationConflict]:
        """The nodes whose merged domain differs from that of a source."""
        for trust, theirs, names in level.reports:
            for node, reported in sorted(theirs.items()):
                domain, placed = level.locations.get(node, ("", level.trust))
                if names.get(reported) != domain:
                    source, by = self._sources[trust], level.reasons.get(node, placed)
                    here = names.get(reported, "")
                    yield LocationConflict(
                        node, level.name, source, reported, here, domain, self._sources[by]
                    )

    def _name(self, report: SourceReport, tier: int) -> str:
        name = report.name(tier)
        taken = {SCALE_UP, *(level.name for level in self.tiers)}
        return f"{name} ({report.source})" if name in taken else name

    def _pairs(self, report: SourceReport) -> dict[int, int]:
        """Match a report's tiers with the merged ones. Without common nodes they are matched by
        order, from the nearest outwards."""
        placed_nodes = {node for level in self.tiers for node in level.locations}
        if not any(report.tiers):
            return {}
        if placed_nodes.isdisjoint(node for domains in report.tiers for node in domains):
            return {tier: tier for tier in range(min(len(self.tiers), len(report.tiers)))}
        return matched([level.domains for level in self.tiers], report.tiers)

    def _insert(self, new: _Level, inner_tier: _Level | None, outer_tier: _Level | None) -> bool:
        """Insert a tier if it nests with its neighbours, in the order of its source's tiers. Return
        whether it does."""
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
    """Match their tiers with ours, in order: with the largest sum of similarities; of equal sums,
    the nearest tiers."""
    best: dict[tuple[int, int], tuple[float, tuple[tuple[int, int], ...]]] = {}
    for tier in range(len(ours), -1, -1):
        for its in range(len(theirs), -1, -1):
            if tier == len(ours) or its == len(theirs):
                best[tier, its] = 0.0, ()
                continue
            found = max(best[tier + 1, its], best[tier, its + 1], key=lambda each: each[0])
            group_conflicts = similarity(ours[tier], theirs[its])
            rest, pairs = best[tier + 1, its + 1]
            if group_conflicts >= SIMILARITY_MIN and rest + group_conflicts >= found[0]:
                found = rest + group_conflicts, ((its, tier), *pairs)
            best[tier, its] = found
    return dict(best[0, 0][1])


def similarity(one: Domains, other: Domains) -> float:
    """The share of common nodes whose domains are counterparts; 0 if no more than half of the
    domains have a counterpart."""
    both = one.keys() & other.keys()
    ours = {node: one[node] for node in both}
    theirs = {node: other[node] for node in both}
    names = counterparts(ours, theirs)
    if 2 * len(names) <= max(len({*ours.values()}), len({*theirs.values()})):
        return 0.0
    return sum(names.get(ours[node]) == theirs[node] for node in both) / len(both)


def counterparts(one: Domains, other: Domains) -> dict[str, str]:
    """For each domain its counterpart in another tier, at most one each: pairs with the most common
    nodes first."""
    common = collections.Counter((one[node], other[node]) for node in one.keys() & other.keys())
    found: dict[str, str] = {}
    taken: set[str] = set()
    for mine, its in sorted(common, key=lambda pair: (-common[pair], pair)):
        if mine not in found and its not in taken:
            found[mine] = its
            taken.add(its)
    return found


def _nests(inner: Domains, outer: Domains) -> bool:
    """Whether each inner domain lies in one outer domain, but for a few nodes."""
    both = inner.keys() & outer.keys()
    above = most_frequent((inner[node], outer[node]) for node in both)
    outside = sum(above[inner[node]] != outer[node] for node in both)
    return outside <= OUTSIDE_SHARE_MAX * len(both)
