"""A fabric as nested boxes: how much of it is shown, and where each box is drawn.

Boxes flow from left to right and wrap, so that a picture is somewhat wider than high. Each node is
shown as large as there is room for: with its name and its ranks where they are few, with its ranks,
or, of many hundreds, as a piece of its domain's strip. Where a job is shown, domains that it has no
node in are drawn together as one, behind the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from railwright_cli.crossing import Crossing
from railwright_cli.tree import count, in_order
from railwright_topology.fabric import UNKNOWN, Fabric, short
from railwright_topology.folding import fold

NAMED, NUMBERED = 64, 512
"""So many nodes at most are drawn with their names, and with their ranks."""

GAP = 8
HEAD = 20
UPLINK = 22
"""Pixels: between things, the line above what is in a box, and from a box up to its neighbours'."""

CHARACTER, BOLD = 6.6, 7.7
"""Pixels of a character."""

WIDE = 1.6
ABREAST = 64
"""A box is about so many times wider than high; so many boxes at most stand side by side."""

EMPTY = 1.5
"""What is empty is so much uglier than what is too wide or too high."""

COLUMNS = 4
STRIP = 256
"""Nodes that stand side by side, at least; pixels that a strip is long, at most."""

Alike = Mapping[str, tuple[tuple[int, ...], bool]]
"""Of each node what else it has to have to be drawn as one with its neighbour."""


class Detail(Enum):
    """How wide and how high each node is drawn, at most."""

    NAMED = 84, 34
    NUMBERED = 66, 17
    STRIP = 9, 30


@dataclass(frozen=True, slots=True)
class Cell:
    """One node, or some that are alike, side by side in one piece; ``x`` and ``y`` are within its
    box."""

    nodes: tuple[str, ...]
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Box:
    """A domain, all of the fabric, or several domains that nothing is shown of; ``boxes`` are
    inside, each with its place. ``bytes`` cross its border in a step; none where that is not known,
    or nothing does."""

    title: str
    note: str
    width: float
    height: float
    bytes: int | None = None
    cells: tuple[Cell, ...] = ()
    boxes: tuple[tuple[float, float, Box], ...] = ()

    @property
    def nodes(self) -> Iterator[str]:
        """Those that are drawn, here and further inside."""
        for cell in self.cells:
            yield from cell.nodes
        for _, _, inner in self.boxes:
            yield from inner.nodes


class Layout:
    """Where everything of one picture is drawn. ``ranks`` are the nodes of a job; in a strip those
    that are ``alike`` are one piece."""

    def __init__(
        self, fabric: Fabric, ranks: Mapping[str, int], alike: Alike, crossing: Crossing
    ) -> None:
        self._fabric, self._ranks, self._alike = fabric, ranks, alike
        self._crossing = crossing
        nodes = in_order(fabric)
        self._touched = self._domains_of_job()
        shown = [node for node in nodes if not ranks or self._is_touched(node)]
        self.detail = Detail.STRIP
        if len(shown) <= NUMBERED:
            self.detail = Detail.NAMED if len(shown) <= NAMED else Detail.NUMBERED
        leaves = (len([*its]) for _, its in itertools.groupby(shown, key=fabric.place))
        self._piece = min(Detail.STRIP.value[0], STRIP / max(leaves, default=1))
        self.root = self._box(nodes, 0, "", count(len(nodes), "node"))

    def _domains_of_job(self) -> frozenset[tuple[int, str]]:
        places = map(self._fabric.place, self._ranks)
        return frozenset(
            (level, domain) for place in places for level, domain in enumerate(place) if domain
        )

    def _is_touched(self, node: str) -> bool:
        """Whether the node stands beside one of the job in the nearest domain that is known."""
        place = self._fabric.place(node)
        known = [level for level, domain in enumerate(place) if domain]
        if not known:
            return node in self._ranks
        return (known[-1], place[known[-1]]) in self._touched

    def _box(
        self, nodes: Sequence[str], level: int, title: str, note: str, sent: int | None = None
    ) -> Box:
        """What stands in a domain of the level before this one."""
        if not any(any(self._fabric.place(node)[level:]) for node in nodes):
            return self._of_nodes(nodes, title, note, sent)
        inside: dict[str, list[str]] = {}
        for node in nodes:
            inside.setdefault(self._fabric.place(node)[level], []).append(node)
        if len(inside) == 1 and not level:
            (domain,) = inside
            return self._box(nodes, level + 1, self._called(domain, nodes[0], level), note)
        return _flowing(title, note, sent, [*self._inner(inside, level)])

    def _inner(self, inside: Mapping[str, Sequence[str]], level: int) -> Iterator[Box]:
        others: list[str] = []
        for domain, nodes in inside.items():
            called = self._called(domain, nodes[0], level)
            if self._ranks and self._ranks.keys().isdisjoint(nodes):
                others.append(domain)
                continue
            sent = self._crossing.of(level, domain)
            yield self._box(nodes, level + 1, called, self._note(nodes), sent or None)
        if others:
            names = fold(self._called(each, inside[each][0], level) for each in others)
            note = count(sum(len(inside[each]) for each in others), "other node")
            yield _plain(shortened(names, 30), note)

    def _called(self, domain: str, node: str, level: int) -> str:
        above = self._fabric.place(node)[level - 1] if level else UNKNOWN
        return short(domain, above) if domain != UNKNOWN else "no known domain"

    def _note(self, nodes: Sequence[str]) -> str:
        mine = sum(node in self._ranks for node in nodes)
        every = count(len(nodes), "node")
        return every if mine in (0, len(nodes)) else f"{mine:,} of {every}"

    def _of_nodes(self, nodes: Sequence[str], title: str, note: str, sent: int | None) -> Box:
        """The nodes of the job first, in the order of their ranks; in a strip those that are alike
        together."""
        strip = self.detail is Detail.STRIP
        if strip and not self._ranks:
            return _plain(title, note)
        others = len(self._ranks)
        nodes = sorted(nodes, key=lambda node: self._ranks.get(node, others))
        cells = tuple(self._strip(nodes) if strip else self._grid(nodes))
        right = max((cell.x + cell.width for cell in cells), default=0.0)
        bottom = max((cell.y + cell.height for cell in cells), default=float(HEAD))
        width = max(right + GAP, _wide(title, note))
        return Box(title, note, width, bottom + GAP, sent, cells=cells)

    def _grid(self, nodes: Sequence[str]) -> Iterator[Cell]:
        width, height = self.detail.value
        columns = min(
            len(nodes), max(COLUMNS, math.ceil(math.sqrt(len(nodes) * WIDE * height / width)))
        )
        for at, node in enumerate(nodes):
            row, column = divmod(at, columns)
            x, y = GAP + column * (width + 4), HEAD + row * (height + 4)
            yield Cell((node,), x, y, width, height)

    def _strip(self, nodes: Sequence[str]) -> Iterator[Cell]:
        def kind(node: str) -> tuple[bool, tuple[tuple[int, ...], bool]]:
            return node not in self._ranks, self._alike[node]

        x, height = float(GAP), Detail.STRIP.value[1]
        for _, run in itertools.groupby(sorted(nodes, key=kind), key=kind):
            its = tuple(run)
            yield Cell(its, x, HEAD, len(its) * self._piece, height)
            x += len(its) * self._piece


def shortened(text: str, most: int) -> str:
    """The text, or as much of its ends as there is room for."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"


def _plain(title: str, note: str) -> Box:
    return Box(title, note, _wide(title, note), HEAD + GAP / 2)


def _wide(title: str, note: str) -> float:
    return len(title) * BOLD + len(note) * CHARACTER + 3 * GAP


def _flowing(title: str, note: str, sent: int | None, boxes: Sequence[Box]) -> Box:
    """As wide as leaves the least empty and looks best; of equal ways the widest."""
    widths = itertools.accumulate(box.width + GAP for box in boxes[:ABREAST])
    tried = (_rows(title, note, sent, boxes, wide) for wide in reversed([*widths]))
    filled = sum(box.width * box.height for box in boxes)

    def ugliness(box: Box) -> float:
        odd = abs(math.log(box.width / box.height / WIDE))
        return odd + EMPTY * math.log(box.width * box.height / filled)

    return min(tried, key=ugliness)


def _rows(title: str, note: str, sent: int | None, boxes: Sequence[Box], wide: float) -> Box:
    rows: list[list[Box]] = []
    right = math.inf
    for box in boxes:
        if right + box.width + GAP > wide:
            rows.append([])
            right = 0.0
        rows[-1].append(box)
        right += box.width + GAP
    placed: list[tuple[float, float, Box]] = []
    y, widest = float(HEAD), _wide(title, note)
    for row in rows:
        x = float(GAP)
        y += UPLINK if any(box.bytes is not None for box in row) else 0
        for box in row:
            placed.append((x, y, box))
            x += box.width + GAP
        widest = max(widest, x)
        y += max(box.height for box in row) + GAP
    return Box(title, note, widest, y, sent, boxes=tuple(placed))
