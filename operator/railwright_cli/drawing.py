"""Pieces of a picture as SVG has them."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

_UNSPEAKABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML has no way to say."""


def said(text: str) -> str:
    """Text as XML has it."""
    return escape(_UNSPEAKABLE.sub("\ufffd", text), {'"': "&quot;"})


def text(style: str, x: float, y: float, words: str) -> str:
    """One line of text that begins here, or has its middle here by its style."""
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}">{said(words)}</text>'


def rectangle(x: float, y: float, width: float, height: float, look: str) -> str:
    """``look`` is how it is painted, as attributes."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {look}/>'


def line(x: float, y: float, to_x: float, to_y: float, look: str) -> str:
    """From one point to another; ``look`` is how it is painted, as attributes."""
    return f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}" {look}/>'
