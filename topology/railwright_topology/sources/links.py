"""Links between accelerators, as each of both ends tells of them.

An accelerator's links end at another one, or at a switch. All who are on a switch reach each other
with as many links as the one that has fewer.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

from railwright_topology.parts import LINKS_MAX, Link, Pair, Technology, pair
from railwright_topology.sources.omissions import Omissions
from railwright_topology.wiring import WiringError

COUNT_MAX = 1024
"""Links of one accelerator; 18 are the most there are."""


@dataclass(slots=True)
class Ends:
    """What each end says: how many links, and bytes a second of them in sum; 0 is not known.
    ``seen`` are those that were asked at all."""

    seen: set[str] = field(default_factory=set)
    _direct: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    _switched: dict[str, tuple[int, int]] = field(default_factory=dict)

    def between(self, end: str, other: str, *, count: int = 0, bytes_per_s: int = 0) -> None:
        """``end`` says that so many of its links end at ``other``."""
        before = self._direct.get((end, other), (0, 0))
        self._direct[end, other] = (before[0] + count, before[1] + bytes_per_s)

    def to_switches(self, end: str, *, count: int = 0, bytes_per_s: int = 0) -> None:
        """``end`` says that so many of its links end at switches."""
        before = self._switched.get(end, (0, 0))
        self._switched[end] = (before[0] + count, before[1] + bytes_per_s)

    def links(self, technology: Technology, omissions: Omissions, line: int = 0) -> Iterator[Link]:
        """Each link; one of which both ends say different things is left out."""
        found: dict[Pair, tuple[int, int]] = {}
        doubtful: set[Pair] = set()
        for (end, other), said in sorted(self._direct.items()):
            back = self._direct.get((other, end))
            if back is None and other in self.seen and end in self.seen:
                rule = f"{end} is linked to {other}, and {other} not to {end}: it is left out"
                omissions.note(line, rule)
                doubtful.add(pair(end, other))
            if back is not None and back != said:
                one, far = pair(end, other)
                rule = f"{one} and {far} do not say the same of what links them: it is left out"
                omissions.note(line, rule)
                doubtful.add(pair(end, other))
            found[pair(end, other)] = said
        if len(found) > LINKS_MAX or len(self._switched) ** 2 > 2 * LINKS_MAX:
            raise WiringError(
                omissions.source, line or 1, f"more than {LINKS_MAX} pairs are linked"
            )
        for ends, (count, bytes_per_s) in sorted(found.items()):
            if ends not in doubtful:
                yield Link(ends, technology, count, bytes_per_s, switched=False)
        for one, other in itertools.combinations(sorted(self._switched), 2):
            if (one, other) in found:
                continue
            least = min(self._switched[one], self._switched[other])
            yield Link(pair(one, other), technology, *least, switched=True)
