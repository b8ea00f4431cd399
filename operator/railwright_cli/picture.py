"""A fabric as a picture (SVG): each domain a box, and on it a job: the ranks of its nodes, coloured
by what they do, and what crosses the border of each domain in a step, as wide as it is much."""

from __future__ import annotations

from collections.abc import Iterator

from railwright_cli import boxes, colors, crossing, drawing, legend
from railwright_cli.amounts import size
from railwright_cli.boxes import GAP, HEAD, UPLINK, Box, Cell, Detail, Layout
from railwright_cli.gang import Gang
from railwright_cli.tree import count
from railwright_topology.fabric import Fabric
from railwright_topology.folding import fold

MARGIN = 16
TITLE, LINE = 28, 17
CHARACTER = 6.6
"""Pixels: around the picture, its title, lines of text, and a character of those."""

WIDEST, NARROWEST = 9.0, 1.0
"""Pixels of the line where the most crosses a border, and where next to nothing does."""

NAME_MAX = 13
DIGIT = 5.8
"""Characters of a node's name that fit into its cell; pixels of a digit in a strip."""

STYLE = """
  text { font: 11px "DejaVu Sans", Verdana, sans-serif; fill: #263238 }
  .title { font-size: 16px; font-weight: bold } .about { fill: #546e7a }
  .name { font-weight: bold } .note { fill: #78909c; font-weight: normal }
  .in { text-anchor: middle } .small { font-size: 9px } .bright { fill: #fff }
  .box { fill: #37474f; fill-opacity: .045; stroke: #b0bec5; stroke-width: .8 }
  .node { fill: #fff; stroke: #b0bec5; stroke-width: .8 } .others { fill: #e4e9ec }
  .panel { fill: #fff; fill-opacity: .88 }
  .told { fill: none; stroke: #d50000; stroke-width: 2 }
  .up { stroke: #37474f } .bus { stroke: #90a4ae; stroke-width: 1.2; fill: none }
  .size { font-size: 9.5px; fill: #37474f }
"""


def svg(fabric: Fabric, gang: Gang) -> str:
    """The whole picture. Nodes that sources disagree on are outlined."""
    return "\n".join([*_Picture(fabric, gang).drawn(), ""])


class _Picture:
    def __init__(self, fabric: Fabric, gang: Gang) -> None:
        self._fabric, self._gang, self._parts = fabric, gang, colors.parts(gang)
        self._ranks = {node: r for node, r in gang.ranks.items() if node in fabric.places}
        self._crossing = crossing.of(fabric, gang)
        doubtful = {conflict.node for conflict in fabric.agreement.conflicts}
        parts = {node: self._parts.of[rank] for node, rank in self._ranks.items()}
        alike = {node: (parts.get(node, ()), node in doubtful) for node in fabric.places}
        self._layout = Layout(fabric, self._ranks, alike, self._crossing)
        self._doubtful = doubtful.intersection(self._layout.root.nodes)

    def drawn(self) -> Iterator[str]:
        """Line by line."""
        root, about = self._layout.root, [*self._about()]
        keys = legend.keys(
            self._parts,
            most=self._crossing.most,
            widest=WIDEST,
            others=0 < len(self._ranks) < len(self._fabric.places),
            doubtful=bool(self._doubtful),
        )
        wide = max(root.width, *(CHARACTER * len(said) for said in about), 420.0)
        rows = [*legend.rows(keys, wide)]
        top = MARGIN + TITLE + LINE * len(about)
        bottom = top + root.height + GAP
        width, height = wide + 2 * MARGIN, bottom + legend.ROW * len(rows) + MARGIN
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
            f'viewBox="0 0 {width:.0f} {height:.0f}">'
        )
        yield f"<style>{STYLE}</style>"
        yield drawing.rectangle(0, 0, width, height, 'fill="#fff"')
        yield drawing.text("title", MARGIN, MARGIN + 14, self._title())
        for at, said in enumerate(about):
            yield drawing.text("about", MARGIN, MARGIN + TITLE + 4 + at * LINE, said)
        yield from self._box(root, float(MARGIN), float(top))
        for at, row in enumerate(rows):
            yield from legend.drawn(row, MARGIN, bottom + at * legend.ROW)
        yield "</svg>"

    def _title(self) -> str:
        every = count(len(self._fabric.places), "node")
        if not self._gang.name:
            return every
        mine = len(self._ranks)
        share = every if mine == len(self._fabric.places) else f"{mine:,} of {every}"
        return f"{self._gang.name} on {share}"

    def _about(self) -> Iterator[str]:
        if self._fabric.levels:
            levels = " > ".join(boxes.shortened(each, 60) for each in self._fabric.levels)
            yield f"boxes within boxes: {levels}{self._inside()}"
        yield from self._gang.about()

    def _inside(self) -> str:
        """What cells say."""
        if not self._ranks:
            return ""
        ranks = "ranks" if self._gang.ranks_per_node else "node ranks"
        if self._layout.detail is not Detail.STRIP:
            return f"; in each cell a node and its {ranks}"
        return f"; in each strip {self._parts.what or 'node'}s and their {ranks}"

    def _box(self, box: Box, x: float, y: float) -> Iterator[str]:
        yield drawing.rectangle(x, y, box.width, box.height, 'class="box" rx="3"')
        apart = 6 if box.title else 0
        note = f'<tspan class="note" dx="{apart}">{drawing.said(box.note)}</tspan>'
        yield (
            f'<text class="name" x="{x + GAP:.1f}" y="{y + HEAD - 6:.1f}">'
            f"{drawing.said(box.title)}{note}</text>"
        )
        yield from self._uplinks(box, x, y)
        for right, down, inner in box.boxes:
            yield from self._box(inner, x + right, y + down)
        for cell in box.cells:
            yield from self._cell(cell, x + cell.x, y + cell.y)

    def _uplinks(self, box: Box, x: float, y: float) -> Iterator[str]:
        """From each box of the job up to a line along its row; the lines meet at the left."""
        rows: dict[float, list[tuple[float, int]]] = {}
        for right, down, inner in box.boxes:
            if inner.bytes is not None:
                rows.setdefault(y + down, []).append((x + right + 24, inner.bytes))
        buses = [top - UPLINK + 6 for top in rows]
        if buses:
            left = x + GAP / 2
            yield drawing.line(left, buses[0], left, buses[-1], 'class="bus"')
        for (top, ends), bus in zip(rows.items(), buses, strict=True):
            yield drawing.line(x + GAP / 2, bus, ends[-1][0], bus, 'class="bus"')
            for right, sent in ends:
                wide = max(NARROWEST, WIDEST * sent / max(1, self._crossing.most))
                yield drawing.line(right, bus, right, top, f'class="up" stroke-width="{wide:.1f}"')
                yield drawing.text("size", right + wide / 2 + 4, top - 4, size(sent))

    def _cell(self, cell: Cell, x: float, y: float) -> Iterator[str]:
        yield f"<g><title>{drawing.said(self._told(cell))}</title>"
        rank = self._ranks.get(cell.nodes[0])
        paints = self._parts.colors(rank) if rank is not None else ()
        for at, color in enumerate(paints):
            part = cell.width / len(paints)
            yield drawing.rectangle(x + at * part, y, part, cell.height, f'fill="{color}"')
        if rank is None:
            look = 'class="node others"' if self._ranks else 'class="node"'
            yield drawing.rectangle(x, y, cell.width, cell.height, look)
        ink = " bright" if len(paints) == 1 and not colors.is_bright(paints[0]) else ""
        if len(paints) > 1:
            look = 'class="panel" rx="2"'
            yield drawing.rectangle(x + 6, y + 2.5, cell.width - 12, cell.height - 5, look)
        yield from self._words(cell, rank, x + cell.width / 2, y, ink)
        if not self._doubtful.isdisjoint(cell.nodes):
            yield drawing.rectangle(x, y, cell.width, cell.height, 'class="told"')
        yield "</g>"

    def _words(self, cell: Cell, rank: int | None, x: float, y: float, ink: str) -> Iterator[str]:
        """What is written into a cell, the middle of whose top this is."""
        detail = self._layout.detail
        name = boxes.shortened(cell.nodes[0].partition(".")[0], NAME_MAX)
        if detail is Detail.NAMED and rank is None:
            yield drawing.text("in small note", x, y + cell.height / 2 + 3, name)
        elif detail is Detail.NAMED and rank is not None:
            yield drawing.text(f"in name{ink}", x, y + 15, self._gang.called(rank))
            yield drawing.text(f"in small{ink}", x, y + 28, name)
        elif detail is Detail.NUMBERED and rank is not None:
            yield drawing.text(f"in small{ink}", x, y + 12, self._gang.called(rank))
        elif rank is not None:
            words = [*map(str, self._parts.of[rank][:1]), self._gang.called(*self._ranks_of(cell))]
            for at, said in enumerate(words):
                if DIGIT * (len(said) + 1) <= cell.width:
                    yield drawing.text(f"in small{ink}", x, y + 12 + 12 * at, said)

    def _told(self, cell: Cell) -> str:
        """For who points at it."""
        ranks = self._ranks_of(cell)
        if not ranks:
            return fold(cell.nodes)
        told = [fold(cell.nodes), f"node rank {fold(map(str, ranks))}"]
        if self._gang.ranks_per_node > 1:
            told.append(f"ranks {self._gang.called(*ranks)}")
        return ", ".join([*told, *filter(None, [self._parts.told(ranks[0])])])

    def _ranks_of(self, cell: Cell) -> list[int]:
        return [self._ranks[node] for node in cell.nodes if node in self._ranks]
