"""XML from a machine that nobody vouches for: bounded, with no entities, and the line of every
element.

A document type may be named, as hwloc does, and is never fetched. Entities of its own are refused:
with them a few hundred bytes stand for more than fits in memory. Comments are left out before the
text is read: NCCL reads those that XML forbids, such as a line of dashes, and RCCL's own files have
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from railwright_topology.wiring import WiringError

CHARACTERS_MAX = 8 * 1024 * 1024
ELEMENTS_MAX = 1 << 17
DEPTH_MAX = 64


@dataclass(slots=True)
class Element:
    """``text`` is that between its start and its first child, and so on, put together."""

    source: str
    line: int
    name: str
    attributes: Mapping[str, str]
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def error(self, rule: str) -> WiringError:
        return WiringError(self.source, self.line, rule)

    def each(self, name: str) -> Iterator[Element]:
        """The children of a name."""
        return (child for child in self.children if child.name == name)

    def said(self, attribute: str) -> str:
        """An attribute that has to be there, and not empty."""
        found = self.attributes.get(attribute, "")
        if not found:
            raise self.error(f"<{self.name}> has an attribute {attribute}")
        return found

    def number(self, attribute: str, default: int | None = None) -> int:
        """An attribute that is a whole number; ``default`` where it is left out or empty."""
        found = self.attributes.get(attribute, "")
        if not found and default is not None:
            return default
        digits = found.removeprefix("-")
        if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
            raise self.error(f"{attribute}={found[:80]!r}: a whole number stands here")
        return int(found)


def read(source: str, text: str, root: str) -> Element:
    """The whole document, whose outermost element has this name."""
    if len(text) > CHARACTERS_MAX:
        raise WiringError(source, 1, f"has {len(text)} characters, at most {CHARACTERS_MAX}")
    reading = _Reading(source)
    try:
        found = reading.read(_without_comments(text))
    except expat.ExpatError as broken:
        rule = f"is not XML: {expat.errors.messages[broken.code]}"
        raise WiringError(source, broken.lineno, rule) from None
    except UnicodeEncodeError as broken:
        raise WiringError(source, 1, f"is not XML: {broken.reason}") from None
    if found.name != root:
        raise found.error(f"<{root}> is the outermost element, not <{found.name[:80]}>")
    return found


def _without_comments(text: str) -> str:
    """The same lines, with nothing where comments stand."""
    kept: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0:
        end = text.find("-->", start + len("<!--"))
        if end < 0:
            break
        kept += (text[at:start], "\n" * text.count("\n", start, end))
        at = end + len("-->")
    return "".join((*kept, text[at:]))


class _Reading:
    def __init__(self, source: str) -> None:
        self._source = source
        # The text is decoded already, whatever its first line says of how it was encoded.
        self._parser = expat.ParserCreate(encoding="utf-8")
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.EntityDeclHandler = self._entity
        self._open: list[Element] = []
        self._root: Element | None = None
        self._count = 0

    def read(self, text: str) -> Element:
        self._parser.Parse(text.encode(), True)
        assert self._root is not None, "expat refuses a document without an element"
        return self._root

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        element = Element(self._source, self._parser.CurrentLineNumber, name, attributes)
        self._count += 1
        if self._count > ELEMENTS_MAX:
            raise element.error(f"has more than {ELEMENTS_MAX} elements")
        if len(self._open) == DEPTH_MAX:
            raise element.error(f"is more than {DEPTH_MAX} levels deep")
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, _name: str) -> None:
        self._open.pop()

    def _text(self, text: str) -> None:
        self._open[-1].text += text

    def _entity(self, name: str, *_more: object) -> None:
        line = self._parser.CurrentLineNumber
        raise WiringError(self._source, line, f"entity {name[:80]!r}: none is read")
