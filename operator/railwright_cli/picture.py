"""A fabric as a picture (SVG): each domain a box, each node a cell in it, a job's nodes marked.

Boxes flow from left to right and wrap, so that a picture of 2,000 nodes is about as high as wide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from railwright_cli.tree import count, in_order
from railwright_topology.fabric import UNKNOWN, Fabric, short

CELL = 22
GAP = 4
HEAD = 18
CHARACTER = 6.2
"""Pixels: a cell's side, between things, the line above a box, and a character in it."""

STYLE = """
  text { font: 11px sans-serif; fill: #333 } .rank { fill: #fff; text-anchor: middle }
  .box { fill: #000; fill-opacity: .035; stroke: #999; stroke-width: .7 }
  .long { font-size: 7px }
  .node { fill: #fff; stroke: #b0bec5; stroke-width: .7 } .job { fill: #1565c0 }
  .told { stroke: #c62828; stroke-width: 2 }
"""


@dataclass(frozen=True, slots=True)
class _Box:
    """A domain, or all of it: what stands in it, and how large it is drawn."""

    title: str
    width: float
    height: float
    nodes: tuple[str, ...] = ()
    boxes: tuple[tuple[float, float, _Box], ...] = ()


def svg(fabric: Fabric, ranks: Mapping[str, int], *, title: str) -> str:
    """The whole picture. Nodes that sources disagree on are outlined."""
    box = _box(fabric, in_order(fabric), 0, _title(fabric, title))
    doubtful = {conflict.node for conflict in fabric.agreement.conflicts}
    size = f'width="{box.width:.0f}" height="{box.height:.0f}"'
    seen = f'viewBox="0 0 {box.width:.0f} {box.height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {seen}>',
            f"<style>{STYLE}</style>",
            *_drawn(box, 0.0, 0.0, ranks=ranks, doubtful=doubtful),
            "</svg>",
            "",
        ]
    )


def _title(fabric: Fabric, job: str) -> str:
    said = f"{count(len(fabric.places), 'node')}, by {', '.join(fabric.levels) or 'nobody'}"
    return f"{said}; job {job}" if job else said


def _box(fabric: Fabric, nodes: Sequence[str], level: int, title: str) -> _Box:
    if level == len(fabric.levels):
        columns = max(1, math.ceil(math.sqrt(len(nodes) * 1.6)))
        rows = math.ceil(len(nodes) / columns)
        width = max(columns * (CELL + GAP) + GAP, len(title) * CHARACTER + 2 * GAP)
        return _Box(title, width, HEAD + rows * (CELL + GAP) + GAP, nodes=tuple(nodes))
    inside: dict[str, list[str]] = {}
    for node in nodes:
        inside.setdefault(fabric.place(node)[level], []).append(node)
    found = [
        _box(fabric, its, _next(fabric, its, level), _called(fabric, its[0], level))
        for its in inside.values()
    ]
    return _flowing(title, found)


def _next(fabric: Fabric, nodes: Sequence[str], level: int) -> int:
    """The next level at which something is known of these nodes."""
    known = any(any(fabric.place(node)[level + 1 :]) for node in nodes)
    return level + 1 if known else len(fabric.levels)


def _called(fabric: Fabric, node: str, level: int) -> str:
    place = fabric.place(node)
    above = place[level - 1] if level else UNKNOWN
    return short(place[level], above) if place[level] != UNKNOWN else "no known domain"


def _flowing(title: str, boxes: Sequence[_Box]) -> _Box:
    area = sum((box.width + GAP) * (box.height + GAP) for box in boxes)
    wide = max(math.sqrt(area * 1.6), *(box.width for box in boxes)) if boxes else 0.0
    placed: list[tuple[float, float, _Box]] = []
    x, y, row = float(GAP), float(HEAD), 0.0
    widest = len(title) * CHARACTER + 2 * GAP
    for box in boxes:
        if x > GAP and x + box.width > wide + 2 * GAP:
            x, y, row = float(GAP), y + row + GAP, 0.0
        placed.append((x, y, box))
        x, row = x + box.width + GAP, max(row, box.height)
        widest = max(widest, x)
    return _Box(title, widest, y + row + GAP, boxes=tuple(placed))


def _drawn(
    box: _Box, x: float, y: float, *, ranks: Mapping[str, int], doubtful: set[str]
) -> Iterator[str]:
    yield (
        f'<rect class="box" x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}"/>'
        f'<text x="{x + GAP:.1f}" y="{y + HEAD - 5:.1f}">{escape(box.title)}</text>'
    )
    for right, down, inner in box.boxes:
        yield from _drawn(inner, x + right, y + down, ranks=ranks, doubtful=doubtful)
    columns = max(1, math.ceil(math.sqrt(len(box.nodes) * 1.6)))
    for at, node in enumerate(box.nodes):
        left = x + GAP + at % columns * (CELL + GAP)
        top = y + HEAD + at // columns * (CELL + GAP)
        yield _cell(node, left, top, rank=ranks.get(node), doubtful=node in doubtful)


def _cell(node: str, x: float, y: float, *, rank: int | None, doubtful: bool) -> str:
    style = " ".join(filter(None, ("node" if rank is None else "job", "told" if doubtful else "")))
    said = node if rank is None else f"{node}, node rank {rank}"
    cell = (
        f"<g><title>{escape(said)}</title>"
        f'<rect class={quoteattr(style)} x="{x:.1f}" y="{y:.1f}" width="{CELL}" '
        f'height="{CELL}" rx="3"/>'
    )
    if rank is not None:
        style = "rank long" if rank > 999 else "rank"
        cell += f'<text class="{style}" x="{x + CELL / 2:.1f}" y="{y + 15:.1f}">{rank}</text>'
    return cell + "</g>"
