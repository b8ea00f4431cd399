"""Parse untrusted XML: bounded, without entities, and with the line of every element.

A document type may be named, as hwloc does, and is never fetched. Entities of its own are refused:
with them a few hundred bytes stand for more than fits in memory. Comments are left out before the
text is read: NCCL reads those that XML forbids, such as a line of dashes, and RCCL's own files have
them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from railwright_topology.sources import pci
from railwright_topology.wiring import WiringError

CHARACTERS_MAX = 8 * 1024 * 1024
ELEMENTS_MAX = 1 << 17
DEPTH_MAX = 64

_COMMENT = re.compile("<!--.*?-->", re.DOTALL)


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

    def unexpected(self, attribute: str, expected: str) -> WiringError:
        """The error of an attribute that is something else than expected."""
        value = self.attributes.get(attribute, "")
        return self.error(f"{attribute}={value[:80]!r}: expected {expected}")

    def required(self, attribute: str) -> str:
        """An attribute that has to be there, and not empty."""
        found = self.attributes.get(attribute, "")
        if not found:
            raise self.error(f"<{self.name}> has an attribute {attribute}")
        return found

    def address(self, attribute: str) -> str:
        """An attribute that is a PCI address."""
        if not (found := pci.address(self.required(attribute))):
            raise self.unexpected(attribute, "a PCI address such as 0000:17:00.0")
        return found

    def number(self, attribute: str, default: int | None = None) -> int:
        """An attribute that is a whole number; ``default`` where it is left out or empty."""
        found = self.attributes.get(attribute, "")
        if not found and default is not None:
            return default
        digits = found.removeprefix("-")
        if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
            raise self.unexpected(attribute, "a whole number")
        return int(found)


def read(source: str, text: str, root: str) -> Element:
    """The whole document, whose outermost element has this name."""
    if len(text) > CHARACTERS_MAX:
        raise WiringError(source, 1, f"has {len(text)} characters, at most {CHARACTERS_MAX}")
    try:
        found = _parse(source, _without_comments(text).encode())
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
    # Behind the last end of one none has an end, and each would be searched for it.
    end = text.rfind("-->") + len("-->")
    return _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text[:end]) + text[end:]


def _parse(source: str, text: bytes) -> Element:
    # The text is decoded already, whatever its first line says of how it was encoded.
    parser = expat.ParserCreate(encoding="utf-8")
    document = Element(source, 1, "", {})
    opened, count = [document], itertools.count(1)

    def start(name: str, attributes: dict[str, str]) -> None:
        element = Element(source, parser.CurrentLineNumber, name, attributes)
        if next(count) > ELEMENTS_MAX:
            raise element.error(f"has more than {ELEMENTS_MAX} elements")
        if len(opened) > DEPTH_MAX:
            raise element.error(f"is more than {DEPTH_MAX} levels deep")
        opened[-1].children.append(element)
        opened.append(element)

    def add_text(data: str) -> None:
        opened[-1].text += data

    def refuse_entity(name: str, *_more: object) -> None:
        rule = f"entity {name[:80]!r}: none is read"
        raise WiringError(source, parser.CurrentLineNumber, rule)

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _name: opened.pop()
    parser.CharacterDataHandler = add_text
    parser.EntityDeclHandler = refuse_entity
    parser.Parse(text, True)
    return document.children[0]
