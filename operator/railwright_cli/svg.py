"""Elements of an SVG picture as text."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def words(text: str) -> str:
    """Text between tags; a character that XML does not have is replaced."""
    return escape(_NOT_IN_XML.sub("\ufffd", text))


def element(name: str, *inside: str, **attributes: str | float) -> str:
    """An element around others; ``class_`` is the attribute ``class``, numbers are pixels."""
    shown = (
        f"{key.rstrip('_').replace('_', '-')}="
        + quoteattr(value if isinstance(value, str) else f"{value:.1f}")
        for key, value in attributes.items()
    )
    return f"<{' '.join([name, *shown])}>{''.join(inside)}</{name}>"


def rectangle(x: float, y: float, width: float, height: float, **look: str | float) -> str:
    """A rectangle by its top left corner."""
    return element("rect", x=x, y=y, width=width, height=height, **look)


def text(x: float, y: float, content: str, **look: str | float) -> str:
    """One line of text that begins here, or has its middle here by its class."""
    return element("text", words(content), x=x, y=y, **look)
