"""What the colours and lines of a picture mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from railwright_cli import drawing
from railwright_cli.amounts import size
from railwright_cli.colors import ALONE, FEW, SERVER, Parts

ROW = 22
SWATCH = 14
RAMP, STOPS = 150, 24
"""Pixels of a swatch, and of the colours of many parts beside each other in so many steps."""

CHARACTER = 6.6
GAP = 18


@dataclass(frozen=True, slots=True)
class Key:
    """``looks`` are swatches beside each other, or the width of a line; ``words`` is their
    meaning."""

    words: str
    looks: tuple[str, ...] = ()
    line: float = 0.0

    @property
    def width(self) -> float:
        """Pixels, with the words."""
        return self.drawn_width + 6 + CHARACTER * len(self.words) + GAP

    @property
    def drawn_width(self) -> float:
        """Pixels, without."""
        return RAMP if len(self.looks) > 1 else SWATCH


def keys(parts: Parts, *, most: int, widest: float, others: bool, doubtful: bool) -> list[Key]:
    """What has to be said: of these parts of a job, of bytes across a border of which ``most`` is
    drawn as wide as ``widest``, and of nodes."""
    found: list[Key] = []
    if parts.count > len(FEW):
        ramp = (parts.color(at * (parts.count - 1) // (STOPS - 1)) for at in range(STOPS))
        words = f"{parts.what} 0 to {parts.count - 1}"
        found.append(Key(words, tuple(f'fill="{each}"' for each in ramp)))
    else:
        found += [_filled(f"{parts.what} {at}", parts.color(at)) for at in range(parts.count)]
    if parts.count and not all(parts.of):
        found.append(_filled("parameter servers", SERVER))
    if parts.of and not parts.count:
        found.append(_filled("the job", ALONE))
    if others:
        found.append(Key("other nodes", ('class="node others"',)))
    if doubtful:
        found.append(Key("sources disagree where it stands", ('class="told"',)))
    if most:
        found.append(Key(f"{size(most)} a step across a border, both ways", line=widest))
    return found


def _filled(words: str, color: str) -> Key:
    return Key(words, (f'fill="{color}"',))


def rows(found: Sequence[Key], width: float) -> Iterator[list[Key]]:
    """As many beside each other as there is room for."""
    row: list[Key] = []
    for key in found:
        if row and sum(each.width for each in row) + key.width > width + GAP:
            yield row
            row = []
        row.append(key)
    if row:
        yield row


def drawn(row: Sequence[Key], x: float, y: float) -> Iterator[str]:
    """One row of it."""
    for key in row:
        each = key.drawn_width / max(1, len(key.looks))
        for at, look in enumerate(key.looks):
            yield drawing.rectangle(x + at * each, y, each + 0.5 * (each < SWATCH), SWATCH, look)
        if key.line:
            middle, look = x + SWATCH / 2, f'class="up" stroke-width="{key.line:.1f}"'
            yield drawing.line(middle, y, middle, y + SWATCH, look)
        yield drawing.text("key", x + key.drawn_width + 6, y + SWATCH - 3, key.words)
        x += key.width
