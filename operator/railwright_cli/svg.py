"""Elements of an SVG picture as text."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def words(text: str) -> str:
    """Text between tags; a character that XML does not have is replaced."""
    return escape(_NOT_IN_XML.sub("\ufffd", text))


def element(name: str, *content: str, **attributes: str | float) -> str:
    """An element around others; ``class_`` is the attribute ``class``, numbers are pixels."""
    shown = (
        f"{key.rstrip('_').replace('_', '-')}="
        + quoteattr(value if isinstance(value, str) else f"{value:.1f}")
        for key, value in attributes.items()
    )
    return f"<{' '.join([name, *shown])}>{''.join(content)}</{name}>"


def rectangle(x: float, y: float, width: float, height: float, **style: str | float) -> str:
    """A rectangle by its top left corner."""
    return element("rect", x=x, y=y, width=width, height=height, **style)


def text(x: float, y: float, content: str, **style: str | float) -> str:
    """One line of text that begins here; by its class it has its middle here."""
    return element("text", words(content), x=x, y=y, **style)
