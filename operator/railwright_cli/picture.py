"""Draw a fabric as SVG: each domain a box, and on it a job.

Each node of the job has its ranks, in the colour of what it does. The line from a box upwards is as
wide as there are bytes that cross the border of its domain in a step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from railwright_cli import legend, svg
from railwright_cli.amounts import count, size
from railwright_cli.boxes import CHARACTER, GAP, HEAD, UPLINK, Box, Detail, Layout
from railwright_cli.gang import Gang, crossing_bytes
from railwright_cli.legend import LegendKey
from railwright_cli.parts import parts
from railwright_conversion.bounds import without_middle
from railwright_topology.fabric import Fabric
from railwright_topology.folding import fold

MARGIN, TITLE, LINE, WIDTH_MIN = 16, 28, 17, 420
"""Pixels: around the picture, of its title, of a line of text, of the narrowest picture."""

WIDEST, NARROWEST = 9.0, 1.0
"""Pixels of the line where the most bytes cross a border, and where the fewest do."""

LABEL, DIGIT = 12, 5.4
"""Pixels of a line in a cell, and of a character there."""

NAME_MAX, LEVEL_MAX = 13, 60
"""Characters of a node's name, and of a level's."""

XMLNS = "http://www.w3.org/2000/svg"
STYLE = """
  text { font: 11px "DejaVu Sans", Verdana, sans-serif; fill: #263238 }
  .title { font-size: 16px; font-weight: bold } .about { fill: #546e7a }
  .name { font-weight: bold } .note { fill: #78909c; font-weight: normal }
  .in { text-anchor: middle; font-size: 9px }
  .on { fill: #fff; stroke: #263238; stroke-width: 1.4px; stroke-opacity: .45; paint-order: stroke }
  .box { fill: #37474f; fill-opacity: .045; stroke: #b0bec5; stroke-width: .8 }
  .node { fill: #fff; stroke: #b0bec5; stroke-width: .8 } .others { fill: #e4e9ec }
  .conflict { fill: none; stroke: #d50000; stroke-width: 2 }
  .up { fill: #37474f } .bus { stroke: #90a4ae; stroke-width: 1.2; fill: none }
  .size { font-size: 9.5px; fill: #37474f }
"""


class Picture:
    """The picture of a fabric and a job, whose nodes outside of the fabric are left out."""

    def __init__(self, fabric: Fabric, gang: Gang) -> None:
        self._fabric, self._gang, self._parts = fabric, gang, parts(gang)
        self._places = {node: at for node, at in gang.places.items() if node in fabric.places}
        self._crossing = crossing_bytes(fabric, gang)
        self._most_bytes = max(self._crossing.values(), default=0)
        self._conflicts = {conflict.node for conflict in fabric.merged_topology.conflicts}
        of = {node: self._parts.of[at] for node, at in self._places.items()}
        kinds = {node: (of.get(node, ()), node in self._conflicts) for node in fabric.places}
        self._layout = Layout(fabric, self._places, kinds, self._crossing)

    def draw(self) -> str:
        """The SVG document as text."""
        root, about = self._layout.root, [*self._about()]
        width = max(root.width, WIDTH_MIN, *(CHARACTER * len(line) for line in about))
        top = MARGIN + TITLE + LINE * len(about)
        bottom = top + root.height + GAP
        keys = [*legend.place([*self._keys()], width)]
        height = bottom + (keys[-1][1] + legend.ROW if keys else 0) + MARGIN
        width += 2 * MARGIN
        lines = [
            f"<style>{STYLE}</style>",
            svg.rectangle(0, 0, width, height, fill="#fff"),
            svg.text(MARGIN, MARGIN + 14, self._title(), class_="title"),
        ]
        for at, line in enumerate(about):
            lines.append(svg.text(MARGIN, MARGIN + TITLE + 4 + at * LINE, line, class_="about"))
        lines += self._box(root, MARGIN, top)
        lines += (line for x, y, key in keys for line in key.draw(MARGIN + x, bottom + y))
        view, content = f"0 0 {width:.1f} {height:.1f}", "\n".join(["", *lines, ""])
        return svg.element("svg", content, xmlns=XMLNS, width=width, height=height, viewBox=view)

    def _title(self) -> str:
        every, mine = count(len(self._fabric.places), "node"), len(self._places)
        if not self._gang.name:
            return every
        share = every if mine == len(self._fabric.places) else f"{mine:,} of {every}"
        return f"{self._gang.name} on {share}"

    def _about(self) -> Iterator[str]:
        if self._fabric.levels:
            levels = (without_middle(level, LEVEL_MAX) for level in self._fabric.levels)
            ranks = "ranks" if self._gang.ranks_per_node else "node ranks"
            cells = f"; in each cell a node and its {ranks}"
            if self._layout.detail is Detail.STRIP:
                cells = f"; in each strip {self._parts.kind or 'node'}s and their {ranks}"
            yield f"boxes within boxes: {' > '.join(levels)}{cells if self._places else ''}"
        yield from self._gang.describe()

    def _keys(self) -> Iterator[LegendKey]:
        yield from legend.part_keys(self._parts)
        if 0 < len(self._places) < len(self._fabric.places):
            yield LegendKey("other nodes", ({"class_": "node others"},))
        if not self._conflicts.isdisjoint(self._layout.drawn):
            yield LegendKey("sources disagree about the location", ({"class_": "conflict"},))
        if self._most_bytes:
            across = f"{size(self._most_bytes)} a step across a border, both ways"
            yield LegendKey(across, ({"class_": "up"},), WIDEST)

    def _box(self, box: Box, x: float, y: float) -> Iterator[str]:
        if box.nodes:
            yield svg.element("g", *self._cell(box, x, y))
            return
        yield svg.rectangle(x, y, box.width, box.height, class_="box", rx="3")
        title, apart = svg.words(box.title), 6 if box.title else 0
        note = svg.element("tspan", svg.words(box.note), class_="note", dx=apart)
        yield svg.element("text", title, note, class_="name", x=x + GAP, y=y + HEAD - 6)
        yield from self._uplinks(box, x, y)
        for right, down, inner in box.boxes:
            yield from self._box(inner, x + right, y + down)

    def _uplinks(self, box: Box, x: float, y: float) -> Iterator[str]:
        """From each box of the job up to the bus of its row; the buses meet at the left."""
        ends = [
            (x + right + 24, y + down, inner.bytes)
            for right, down, inner in box.boxes
            if inner.bytes is not None
        ]
        if not ends:
            return
        left, rise = x + GAP / 2, UPLINK - 6
        buses = "".join(f"M{left:.1f} {top - rise:.1f}H{end:.1f}" for end, top, _ in ends)
        trunk = f"M{left:.1f} {ends[0][1] - rise:.1f}V{ends[-1][1] - rise:.1f}"
        yield svg.element("path", d=trunk + buses, class_="bus")
        for end, top, sent in ends:
            wide = max(NARROWEST, WIDEST * sent / self._most_bytes)
            yield svg.rectangle(end - wide / 2, top - rise, wide, rise, class_="up")
            yield svg.text(end + wide / 2 + 4, top - 4, size(sent), class_="size")

    def _cell(self, cell: Box, x: float, y: float) -> Iterator[str]:
        places = [self._places[node] for node in cell.nodes if node in self._places]
        yield svg.element("title", svg.words(", ".join(self._describe(cell.nodes, places))))
        fills: list[dict[str, str | float]] = [
            {"class_": "node others" if self._places else "node"}
        ]
        if places:
            fills = [{"fill": color} for color in self._parts.colors(places[0])]
        width = cell.width / len(fills)
        for at, fill in enumerate(fills):
            yield svg.rectangle(x + at * width, y, width, cell.height, **fill)
        labels = self._labels(cell, places)
        for at, label in enumerate(labels):
            middle = y + cell.height / 2 + 3 + LABEL * (at - (len(labels) - 1) / 2)
            style = "in on" if places else "in note"
            yield svg.text(x + cell.width / 2, middle, label, class_=style)
        if not self._conflicts.isdisjoint(cell.nodes):
            yield svg.rectangle(x, y, cell.width, cell.height, class_="conflict")

    def _labels(self, cell: Box, places: Sequence[int]) -> list[str]:
        """The lines of a cell that have room."""
        detail = self._layout.detail
        found = [self._gang.describe_ranks(places)] if places else []
        if detail is Detail.NAMED:
            found.append(without_middle(cell.nodes[0].partition(".")[0], NAME_MAX))
        elif detail is Detail.STRIP and places:
            found[:0] = map(str, self._parts.of[places[0]][:1])
        return [label for label in found if DIGIT * (len(label) + 1) <= cell.width]

    def _describe(self, nodes: Sequence[str], places: Sequence[int]) -> Iterator[str]:
        """What a tooltip shows."""
        yield fold(nodes)
        if places:
            yield f"node rank {self._gang.node_ranks(places)}"
            if self._gang.ranks_per_node > 1:
                yield f"ranks {self._gang.describe_ranks(places)}"
            if described := self._parts.describe(places[0]):
                yield described
