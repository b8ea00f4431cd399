"""What the colours and lines of a picture mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from railwright_cli import svg
from railwright_cli.boxes import CHARACTER
from railwright_cli.parts import FEW, JOB_COLOR, Parts

ROW, SWATCH, GAP = 22, 14, 18
"""Pixels: of a row, of the side of a swatch, between keys."""

STOPS = 11
"""Swatches of a ramp of many colours."""


@dataclass(frozen=True, slots=True)
class LegendKey:
    """Swatches side by side, each ``side`` pixels wide with its attributes in SVG, and their
    meaning."""

    meaning: str
    swatches: tuple[dict[str, str], ...]
    side: float = SWATCH

    @property
    def width(self) -> float:
        """Pixels up to the next key."""
        return self.side * len(self.swatches) + 6 + CHARACTER * len(self.meaning) + GAP

    def draw(self, x: float, y: float) -> Iterator[str]:
        """The swatches, and the meaning at their right."""
        for style in self.swatches:
            yield svg.rectangle(x, y, self.side, SWATCH, **style)
            x += self.side
        yield svg.text(x + 6, y + SWATCH - 3, self.meaning)


def part_keys(parts: Parts) -> Iterator[LegendKey]:
    """The keys of the colours of nodes of a job."""
    colors = [parts.color(part) for part in range(parts.count)]
    if parts.count > len(FEW):
        stops = (colors[at * (parts.count - 1) // (STOPS - 1)] for at in range(STOPS))
        yield LegendKey(
            f"{parts.kind} 0 to {parts.count - 1}", tuple({"fill": each} for each in stops)
        )
    else:
        yield from (
            LegendKey(f"{parts.kind} {at}", ({"fill": color},)) for at, color in enumerate(colors)
        )
    if not colors:
        yield LegendKey("the job", ({"fill": JOB_COLOR},))


def place(keys: Sequence[LegendKey], width: float) -> Iterator[tuple[float, float, LegendKey]]:
    """The x and y of each key: as many in a row as ``width`` pixels have room for."""
    x, y = 0.0, 0.0
    for key in keys:
        if x and x + key.width > width + GAP:
            x, y = 0.0, y + ROW
        yield x, y, key
        x += key.width
