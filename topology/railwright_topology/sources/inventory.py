"""Collect what one source shows of one node: each accelerator and adapter once, and the links.

Every reader of a node's hardware fills an inventory and makes its report of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from railwright_topology.parts import (
    LINKS_MAX,
    PARTS_MAX,
    Distance,
    HardwareReport,
    Kind,
    Link,
    Pair,
    Part,
    Technology,
    pair,
)
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import pci
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.pci import Way
from railwright_topology.wiring import WiringError

LINKS_OF_ONE_MAX = 1024
"""Links of one accelerator; 18 are the most there are."""


@dataclass(slots=True)
class Inventory:
    """``parts`` by their ids, and ``ways`` from the processor to them, where these are known."""

    omissions: Omissions
    parts: dict[str, Part] = field(default_factory=dict)
    ways: dict[str, Way] = field(default_factory=dict)

    def add(self, part: Part, error: Callable[[str], WiringError], way: Way | None = None) -> None:
        """Raises an error of the element that it is of where the part cannot be added."""
        if part.id in self.parts:
            raise error(f"{part.id[:80]!r} is described twice")
        if len(self.parts) == PARTS_MAX:
            raise error(f"has more than {PARTS_MAX} accelerators and adapters")
        self.parts[part.id] = part
        self.ways[part.id] = way or Way()

    def has_accelerators(self, ids: Iterable[str]) -> bool:
        """Whether all of these are accelerators in it."""
        return all(id_ in self.parts and self.parts[id_].kind == Kind.ACCELERATOR for id_ in ids)

    def report(
        self,
        provenance: Provenance,
        links: Iterable[Link] = (),
        distances: Mapping[Pair, Distance] | None = None,
        *,
        complete: Iterable[Technology] = (),
        virtual: bool | None = None,
        hides_tree: bool | None = None,
    ) -> HardwareReport:
        """What the source shows. Distances follow from the ways where none are given; ``complete``
        are the technologies of which it shows every link."""
        if distances is None:
            distances = pci.distances(self.parts.values(), self.ways)
        return HardwareReport(
            self.omissions.source,
            provenance,
            tuple(self.parts[id_] for id_ in sorted(self.parts)),
            tuple(links),
            {} if hides_tree else distances,
            frozenset(complete),
            virtual,
            hides_tree,
            self.omissions.sentences,
        )


@dataclass(slots=True)
class LinkEnds:
    """How many links each end reports, and bytes a second of them in sum; 0 is not known. ``seen``
    are the accelerators whose links are shown at all. An accelerator's links end at another one, or
    at a switch. All that are on a switch reach each other with as many links as the one that has
    fewer."""

    seen: set[str] = field(default_factory=set)
    _reported: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)

    def add(self, end: str, far: str, *, count: int = 0, bytes_per_s: int = 0) -> None:
        """Record so many links of ``end``: to ``far``, or to switches where that is empty."""
        before = self._reported.get((end, far), (0, 0))
        self._reported[end, far] = (before[0] + count, before[1] + bytes_per_s)

    def add_shared(self, end: str, far: str, *, bytes_per_s: int) -> None:
        """Record links of ``end`` that may be recorded already, as each partition of an accelerator
        reports all links of it: they count once."""
        before = self._reported.get((end, far), (0, 0))
        self._reported[end, far] = (before[0], max(before[1], bytes_per_s))

    def links(self, technology: Technology, omissions: Omissions, line: int = 0) -> Iterator[Link]:
        """Each link; one of which both ends report something else is left out."""
        switched = {end: its for (end, far), its in self._reported.items() if not far}
        direct = {pair(*ends): its for ends, its in sorted(self._reported.items()) if ends[1]}
        if len(direct) > LINKS_MAX or len(switched) ** 2 > 2 * LINKS_MAX:
            rule = f"more than {LINKS_MAX} pairs are linked"
            raise WiringError(omissions.source, line or 1, rule)
        for ends, its in sorted(direct.items()):
            if not (rule := self._contradiction(*ends)):
                yield Link(ends, technology, *its, switched=False)
            else:
                omissions.note(line, f"{rule}: it is left out")
        for ends in itertools.combinations(sorted(switched), 2):
            if ends not in direct:
                least = min(switched[ends[0]], switched[ends[1]])
                yield Link(ends, technology, *least, switched=True)

    def _contradiction(self, one: str, other: str) -> str:
        """What the two ends of a link report otherwise; empty where nothing is."""
        there, back = self._reported.get((one, other)), self._reported.get((other, one))
        if there and back:
            differ = f"{one} and {other} do not say the same of what links them"
            return "" if there == back else differ
        end, far = (one, other) if there else (other, one)
        missing = f"{end} is linked to {far}, and {far} not to {end}"
        return missing if self.seen >= {end, far} else ""
