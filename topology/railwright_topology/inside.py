"""The inside of a node: what all sources show of it together, and what they disagree on.

A part is known by its PCI address; a source that has none is understood by the names and numbers
that another gives with one. For each single fact the most trusted source counts that knows it, and
each other one that says otherwise is a conflict, told with both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from railwright_topology import rails
from railwright_topology.accounts import Basis
from railwright_topology.folding import fold
from railwright_topology.parts import (
    Distance,
    Kind,
    Link,
    Look,
    Pair,
    Part,
    Role,
    Technology,
    pair,
)
from railwright_topology.plugs import natural
from railwright_topology.rails import Placed

SPEED_TOLERANCE = 0.05
"""Of two speeds that differ by less, one is rounded, or counts what the coding of a line takes."""

DISTANCE = "distance"
"""What the fact of how near two parts are is called."""

_FACTS = (
    "kind",
    "number",
    "model",
    "numa",
    "pcie_bytes_per_s",
    "bytes_per_s",
    "layer",
    "up",
    "rail",
    "role",
)
_SPEEDS = frozenset({"pcie_bytes_per_s", "bytes_per_s"})
_UNKNOWN: Mapping[str, object] = {"pcie_bytes_per_s": 0, "bytes_per_s": 0, "model": "", "count": 0}


@dataclass(frozen=True, slots=True)
class Conflict:
    """Of a part, or of two: ``source`` says ``said`` of a fact, and ``held`` counts, by ``by``."""

    part: str
    fact: str
    source: str
    said: str
    held: str
    by: str


@dataclass(frozen=True, slots=True)
class Inside:
    """``parts`` are accelerators before adapters, each as people count. ``placed`` says of each
    adapter what it is there for. ``sources`` gives who is believed, by part and fact, or by the
    ends of a link and its technology, or by two parts and DISTANCE. ``unknown`` is what no source
    says, in sentences."""

    parts: tuple[Part, ...] = ()
    links: tuple[Link, ...] = ()
    distances: Mapping[Pair, Distance] = field(default_factory=dict)
    placed: Mapping[str, Placed] = field(default_factory=dict)
    sources: Mapping[tuple[str, ...], str] = field(default_factory=dict)
    conflicts: tuple[Conflict, ...] = ()
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

    def of_role(self, role: Role) -> tuple[Part, ...]:
        """The adapters that are there for it."""
        return tuple(part for part in self.adapters if self.placed[part.id].role == role)


def of(looks: Iterable[Look]) -> Inside:
    """Put together what sources show of one node. The same for any order of different sources."""
    heard = sorted(looks, key=lambda look: (-look.basis, look.source))
    merging = _Merging()
    for look, ids in zip(heard, _identities(heard, merging.remarks), strict=True):
        merging.hear(look, ids)
    for technology in Technology:
        merging.settle_links(technology)
    parts = tuple(sorted(merging.parts.values(), key=_order))
    kept = {part.id for part in parts}
    distances = {both: near for both, near in merging.distances.items() if kept.issuperset(both)}
    placed = rails.of(parts, distances)
    hides_tree = not distances and any(look.hides_tree for look in heard)
    links = tuple(sorted(merging.links, key=lambda link: (link.ends, link.technology)))
    return Inside(
        parts,
        links,
        distances,
        placed,
        merging.sources,
        tuple(merging.conflicts),
        next((look.virtual for look in heard if look.virtual is not None), None),
        hides_tree,
        tuple(_unknown(parts, distances, heard, hides_tree=hides_tree)),
        tuple(sorted(merging.remarks)),
    )


def told(conflict: Conflict) -> str:
    """A conflict in words, with both sides."""
    return (
        f"{conflict.part}: by {conflict.source} its {conflict.fact} is {conflict.said};"
        f" {conflict.held} counts, by {conflict.by}"
    )


def _order(part: Part) -> tuple[object, ...]:
    number = part.number if part.number is not None else 1 << 16
    names = natural(part.names[0]) if part.names else ((1 << 17, ""),)
    return part.kind != Kind.ACCELERATOR, number, names, part.id


def _identities(looks: Sequence[Look], remarks: list[str]) -> list[dict[str, str]]:
    """For each look, what its parts are called here; those that cannot be told are left out."""
    located: dict[tuple[Kind, int | str], str] = {}
    unnamed: set[Kind] = set()
    for look in looks:
        for part in look.parts:
            if part.pci:
                for alias in _aliases(part):
                    located.setdefault(alias, _address(part))
    addresses = {(part.kind, _address(part)) for look in looks for part in look.parts if part.pci}
    named = {(kind, address) for (kind, _), address in located.items()}
    unnamed = {kind for kind, address in addresses if (kind, address) not in named}
    found: list[dict[str, str]] = []
    for look in looks:
        ids: dict[str, str] = {}
        left: list[str] = []
        for part in look.parts:
            known = next((located[its] for its in _aliases(part) if its in located), None)
            # Files give functions of one card one address: a name counts for more there.
            if part.pci and (part.kind != Kind.ADAPTER or known is None or look.basis > Basis.TOLD):
                ids[part.id] = _address(part)
            elif known is not None:
                ids[part.id] = known
            elif part.kind not in unnamed:
                ids[part.id] = part.id
            else:
                left.append(part.id)
        if left:
            which = f"{left[0]} and {len(left) - 1} more" if left[1:] else left[0]
            remarks.append(f"{look.source}: nobody says at which PCI address {which} is")
        found.append(ids)
    return found


def _aliases(part: Part) -> list[tuple[Kind, int | str]]:
    """What sources that have no addresses may call it."""
    found: list[tuple[Kind, int | str]] = [(part.kind, name) for name in part.names]
    return found if part.number is None else [(part.kind, part.number), *found]


def _address(part: Part) -> str:
    """The further ports of an adapter (``mlx4_0/2``) stand at one address."""
    port = part.names[0].partition("/")[2] if part.names else ""
    return f"{part.pci}/{port}" if port else part.pci


class _Merging:
    """What is believed so far; looks are heard from the most trusted one on."""

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self.links: list[Link] = []
        self.distances: dict[Pair, Distance] = {}
        self.sources: dict[tuple[str, ...], str] = {}
        self.conflicts: list[Conflict] = []
        self.remarks: list[str] = []
        self._linked: list[tuple[Look, set[str], dict[tuple[Pair, Technology], Link]]] = []

    def hear(self, look: Look, ids: Mapping[str, str]) -> None:
        for part in look.parts:
            if part.id in ids:
                self._hear_part(look, replace(part, id=ids[part.id]))
        for both, distance in sorted(look.distances.items()):
            if both[0] in ids and both[1] in ids:
                self._hear_distance(look, pair(ids[both[0]], ids[both[1]]), distance)
        links: dict[tuple[Pair, Technology], Link] = {}
        for link in look.links:
            one, other = link.ends
            if one in ids and other in ids:
                ends = pair(ids[one], ids[other])
                links[ends, link.technology] = replace(link, ends=ends)
        knows = {ids[part.id] for part in look.parts if part.id in ids}
        self._linked.append((look, knows, links))
        self.remarks += (f"{look.source}: {remark}" for remark in look.remarks)

    def _hear_part(self, look: Look, part: Part) -> None:
        held = self.parts.get(part.id)
        if held is None:
            held = Part(part.id, part.kind, part.pci)
        news: dict[str, object] = {}
        for fact in _FACTS:
            said, before = getattr(part, fact), getattr(held, fact)
            counts = self.sources.get((part.id, fact))
            if said == _UNKNOWN.get(fact):
                continue
            if counts is None:
                news[fact] = said
                self.sources[part.id, fact] = look.source
            elif not _same(fact, said, before):
                self._differ(
                    part.id,
                    fact,
                    look,
                    said=_words(fact, said),
                    held=_words(fact, before),
                    by=counts,
                )
        names = held.names + tuple(name for name in part.names if name not in held.names)
        if part.names and not held.names:
            self.sources[part.id, "names"] = look.source
        self.parts[part.id] = replace(held, names=names, **news)  # type: ignore[arg-type]

    def _hear_distance(self, look: Look, both: Pair, distance: Distance) -> None:
        key = (*both, DISTANCE)
        if both not in self.distances:
            self.distances[both] = distance
            self.sources[key] = look.source
        elif _coarse(self.distances[both]) != _coarse(distance):
            self._differ(
                " and ".join(both),
                DISTANCE,
                look,
                said=distance.name,
                held=self.distances[both].name,
                by=self.sources[key],
            )

    def settle_links(self, technology: Technology) -> None:
        """Take the links of one technology; that there is none is said by who tells of it."""
        every = sorted(
            {key[0] for _, _, links in self._linked for key in links if key[1] == technology}
        )
        for ends in every:
            held: Link | None = None
            by = ""
            for look, knows, links in self._linked:
                said = links.get((ends, technology))
                if said is None and (technology not in look.tells or not knows.issuperset(ends)):
                    continue
                if not by:
                    held, by = said, look.source
                elif held is not None and said is not None:
                    held = self._with(held, said, look, by)
                elif held is not said:
                    self._differ(
                        " and ".join(ends),
                        technology,
                        look,
                        said=_link(said),
                        held=_link(held),
                        by=by,
                    )
            if held is not None:
                self.links.append(held)
                self.sources[*ends, technology] = by

    def _with(self, held: Link, said: Link, look: Look, by: str) -> Link:
        """What is known of a link, and what another says of it beside."""
        counts = {held.count, said.count} - {0}
        speeds = {held.bytes_per_s, said.bytes_per_s} - {0}
        if len(counts) > 1 or not _same(
            "bytes_per_s", min(speeds, default=0), max(speeds, default=0)
        ):
            both = " and ".join(held.ends)
            self._differ(both, held.technology, look, said=_link(said), held=_link(held), by=by)
        return replace(
            held,
            count=held.count or said.count,
            bytes_per_s=held.bytes_per_s or said.bytes_per_s,
            switched=said.switched if held.switched is None else held.switched,
        )

    def _differ(self, part: str, fact: str, look: Look, *, said: str, held: str, by: str) -> None:
        self.conflicts.append(Conflict(part, fact, look.source, said, held, by))


def _same(fact: str, one: object, other: object) -> bool:
    if fact not in _SPEEDS:
        return one == other
    assert isinstance(one, int)
    assert isinstance(other, int)
    return abs(one - other) <= SPEED_TOLERANCE * max(one, other)


def _words(fact: str, value: object) -> str:
    return f"{value:,} bytes/s" if fact in _SPEEDS else str(value)


def _link(link: Link | None) -> str:
    if link is None:
        return "no link"
    known = [f"{link.count} links"] if link.count else []
    known += [f"{link.bytes_per_s:,} bytes/s"] if link.bytes_per_s else []
    return ", ".join(known) or "a link"


def _coarse(distance: Distance) -> Distance:
    """Some sources show NUMA nodes and no host bridges."""
    return Distance.NUMA if distance == Distance.BRIDGE else distance


def _unknown(
    parts: Sequence[Part],
    distances: Mapping[Pair, Distance],
    looks: Sequence[Look],
    *,
    hides_tree: bool,
) -> Iterator[str]:
    accelerators = [part.id for part in parts if part.kind == Kind.ACCELERATOR]
    adapters = [part for part in parts if part.kind == Kind.ADAPTER]
    if hides_tree:
        yield "which part is near which: the machine shows no PCI tree, as virtual ones do"
    elif accelerators and adapters and not distances:
        yield "which part is near which"
    if len(accelerators) > 1 and not any(look.tells for look in looks):
        yield "how accelerators are linked beside PCIe"
    slow = [part.names[0] if part.names else part.id for part in adapters if not part.bytes_per_s]
    if slow:
        yield f"the speed of {fold(slow)}"
