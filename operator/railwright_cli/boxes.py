"""Lay a fabric out as nested boxes: which domains and nodes a picture shows, and where.

Boxes flow from left to right and wrap, so that a picture is somewhat wider than high. The fewer
nodes there are, the larger each is drawn: with its name and ranks, with its ranks, or as a piece of
its domain's strip. Where a job is shown, the domains without one of its nodes are one box.
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from railwright_cli.amounts import count
from railwright_cli.tree import domains_at, in_order
from railwright_conversion.bounds import without_middle
from railwright_topology.fabric import Fabric, short
from railwright_topology.folding import fold
from railwright_topology.interconnect import UNKNOWN

GAP = 8
CELL_GAP = 4
HEAD = 20
UPLINK = 22
"""Pixels: between boxes and between cells, of a box's title, from a box up to its row's bus."""

CHARACTER, BOLD = 6.6, 7.7
"""Pixels of a character."""

ASPECT = 2.0
"""Width of a box over its height, where its content allows."""

AREA_WEIGHT = 1.5
"""How much a larger area counts against a row width, beside an aspect that is off."""

ROW_BOXES_MAX = 64
STRIP_MAX = 256
"""Boxes in a row, and pixels of a strip."""

FOLDED_NAMES_MAX = 30
"""Characters of the names of domains without a node of the job."""

Kinds = Mapping[str, tuple[tuple[int, ...], bool]]
"""The property of each node by which neighbours in a strip become one cell."""


class Detail(Enum):
    """How a node is drawn: pixels of its cell (of a piece of a strip at most), and up to how many
    nodes."""

    NAMED = 84, 34, 64
    NUMBERED = 66, 17, 512
    STRIP = 9, 30, math.inf


@dataclass(frozen=True, slots=True)
class Box:
    """A domain, several domains without a node of the job, or the cell of some ``nodes``.

    ``boxes`` are inside, each at its x and y. ``bytes`` cross the border in a step; None if that is
    unknown or nothing does.
    """

    title: str = ""
    note: str = ""
    bytes: int | None = None
    width: float = 0.0
    height: float = 0.0
    nodes: tuple[str, ...] = ()
    boxes: tuple[tuple[float, float, Box], ...] = ()


class Layout:
    """The boxes of one picture, from ``root`` on, and the nodes that are ``drawn``.

    ``ranks`` order the nodes of a job. Neighbours in a strip that have the same of ``kinds`` are
    one cell. ``crossing`` has the bytes that cross each domain's border, by level and domain.
    """

    def __init__(
        self,
        fabric: Fabric,
        ranks: Mapping[str, int],
        kinds: Kinds,
        crossing: Mapping[tuple[int, str], int],
    ) -> None:
        self._fabric, self._ranks, self._kinds, self._crossing = fabric, ranks, kinds, crossing
        nodes = in_order(fabric)
        places = {fabric.place(node) for node in ranks or nodes}
        shown = collections.Counter(filter(places.__contains__, map(fabric.place, nodes)))
        self.detail = next(each for each in Detail if shown.total() <= each.value[2])
        self.drawn: set[str] = set()
        self._piece = min(Detail.STRIP.value[0], STRIP_MAX / max(shown.values(), default=1))
        self.root = self._domain(nodes, 0, Box(note=count(len(nodes), "node")))

    def _domain(self, nodes: Sequence[str], level: int, frame: Box) -> Box:
        """The box of these nodes, with the domains of ``level`` and further in."""
        if not any(any(self._fabric.place(node)[level:]) for node in nodes):
            return _arranged(frame, *self._cells(nodes))
        domains = domains_at(self._fabric, level, nodes)
        names = {domain: self._name(domain, its[0], level) for domain, its in domains.items()}
        if len(domains) == 1 and not level:
            return self._domain(nodes, 1, replace(frame, title="".join(names.values())))
        boxes: list[Box] = []
        others: list[str] = []
        for domain, its in domains.items():
            mine = sum(node in self._ranks for node in its)
            if self._ranks and not mine:
                others.append(domain)
                continue
            every = count(len(its), "node")
            share = every if mine in (0, len(its)) else f"{mine:,} of {every}"
            crossing = self._crossing.get((level, domain)) or None
            boxes.append(self._domain(its, level + 1, Box(names[domain], share, crossing)))
        if others:
            named = without_middle(fold(names[each] for each in others), FOLDED_NAMES_MAX)
            number = sum(len(domains[each]) for each in others)
            boxes.append(_arranged(Box(named, count(number, "other node")), []))
        return _arranged(frame, boxes)

    def _name(self, domain: str, node: str, level: int) -> str:
        above = self._fabric.place(node)[level - 1] if level else UNKNOWN
        return short(domain, above) if domain != UNKNOWN else "no known domain"

    def _cells(self, nodes: Sequence[str]) -> tuple[list[Box], int]:
        """Cells and the gap between them: the nodes of the job first, in the order of their ranks;
        in a strip those of one kind together."""
        width, height, _ = self.detail.value
        if self.detail is Detail.STRIP and not self._ranks:
            return [], GAP
        self.drawn.update(nodes)
        nodes = sorted(nodes, key=lambda node: self._ranks.get(node, math.inf))
        if self.detail is not Detail.STRIP:
            return [Box(nodes=(node,), width=width, height=height) for node in nodes], CELL_GAP

        def kind(node: str) -> tuple[bool, tuple[tuple[int, ...], bool]]:
            return node not in self._ranks, self._kinds[node]

        runs = itertools.groupby(sorted(nodes, key=kind), key=kind)
        cells = (tuple(run) for _, run in runs)
        return [Box(nodes=its, width=len(its) * self._piece, height=height) for its in cells], 0


def _arranged(frame: Box, boxes: Sequence[Box], gap: int = GAP) -> Box:
    """The frame around boxes in rows of the best width; without a gap in one row."""
    widths = itertools.accumulate(box.width + gap for box in boxes[:ROW_BOXES_MAX])
    limits = (math.inf, *(widths if gap else ()))
    return min((_rows(frame, boxes, gap, limit) for limit in limits), key=_cost)


def _cost(box: Box) -> float:
    """How far its aspect is off, and how large it is."""
    aspect = abs(math.log(box.width / box.height / ASPECT))
    return aspect + AREA_WEIGHT * math.log(box.width * box.height)


def _rows(frame: Box, boxes: Sequence[Box], gap: int, limit: float) -> Box:
    uplink = UPLINK if any(box.bytes is not None for box in boxes) else 0
    widest = len(frame.title) * BOLD + len(frame.note) * CHARACTER + 3 * GAP
    x, y, high = float(GAP), float(HEAD + uplink), 0.0
    placed: list[tuple[float, float, Box]] = []
    for box in boxes:
        if x > GAP and x - GAP + box.width > limit:
            x, y, high = float(GAP), y + high + gap + uplink, 0.0
        placed.append((x, y, box))
        x, high = x + box.width + gap, max(high, box.height)
        widest = max(widest, x - gap + GAP)
    return replace(frame, width=widest, height=y + high + GAP, boxes=tuple(placed))
