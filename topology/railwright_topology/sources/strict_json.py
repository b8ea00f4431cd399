"""Decode untrusted JSON: bounded, with checked types, and without duplicate names."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, NoReturn, TypeVar, cast

from railwright_topology.sources.omissions import Omissions
from railwright_topology.wiring import WiringError

LENGTH_MAX = 8 * 1024 * 1024
TEXT_MAX = 1024
DIGITS_MAX = 20
INTEGER_MAX = 1 << 53
"""Beyond it JSON's readers disagree on what a number is."""

T = TypeVar("T")


def read(source: str, text: str, omissions: Omissions) -> object:
    """The whole value. JSON keeps no lines; what is wrong with a value is told with its path. Of a
    name that stands twice in one object the first counts."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, value in pairs:
            if name in found:
                rule = f"{name[:80]!r} occurs twice in one object: the first counts"
                omissions.note(0, rule)
            found.setdefault(name, value)
        return found

    def no_number(constant: str) -> NoReturn:
        raise WiringError(source, 1, f"{constant} is no number")

    if len(text) > LENGTH_MAX:
        raise WiringError(source, 1, f"{len(text)} characters: {LENGTH_MAX} are read at most")
    try:
        return json.loads(
            text, object_pairs_hook=once, parse_constant=no_number, parse_int=_integer
        )
    except json.JSONDecodeError as error:
        raise WiringError(source, error.lineno, f"no whole JSON document: {error.msg}") from error
    except RecursionError as error:
        raise WiringError(source, 1, "values lie too deep in each other") from error


def _integer(digits: str) -> int | float:
    """A number as it is read by others; one of too many digits is no whole number."""
    return int(digits) if len(digits) <= DIGITS_MAX else float(digits)


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value that ``read`` returned, with its path. What breaks a rule raises WiringError with it.
    Null is as good as a field that is not there."""

    omissions: Omissions
    content: object
    path: str = ""

    def error(self, rule: str) -> WiringError:
        return WiringError(self.omissions.source, 0, f"{self.path or 'the document'}: {rule}")

    def __getitem__(self, name: str) -> JsonValue:
        """A field of an object. Others are skipped: a later agent may send them."""
        if not isinstance(self.content, dict):
            raise self.error("an object stands here")
        return JsonValue(self.omissions, self.content.get(name), f"{self.path}.{name}".lstrip("."))

    def each(self, most: int) -> list[JsonValue]:
        values = [] if self.content is None else self.content
        if not isinstance(values, list) or len(values) > most:
            raise self.error(f"a list of up to {most} stands here")
        return [
            JsonValue(self.omissions, value, f"{self.path}[{at}]")
            for at, value in enumerate(values)
        ]

    def some(self, most: int, decode: Callable[[JsonValue], T]) -> list[T]:
        """Those of a list that break no rule."""
        found: list[T] = []
        with self.omissions.part():
            for each in self.each(most):
                with self.omissions.part():
                    found.append(decode(each))
        return found

    def decode(self, kind: type[T], decoders: Decoders, **more: object) -> T:
        """A dataclass of the fields that are there."""
        required = _required(cast(Any, kind))
        found: dict[str, object] = {}
        for name, decode in decoders.items():
            if (field := self[name]).content is not None or name in required:
                found[name] = decode(field)
        return kind(**found, **more)

    def text(self) -> str:
        if not (text := self.printable()):
            raise self.error("a text stands here, and not an empty one")
        return text

    def printable(self) -> str:
        """A text that may be empty."""
        text = self.content
        if not isinstance(text, str) or len(text) > TEXT_MAX or not text.isprintable():
            raise self.error(f"up to {TEXT_MAX} printable characters stand here")
        return text

    def whole(self, most: int = INTEGER_MAX) -> int:
        number = self.content
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < most:
            raise self.error(f"a whole number below {most} stands here")
        return number

    def truth(self) -> bool:
        if not isinstance(self.content, bool):
            raise self.error("true, false or null stands here")
        return self.content


@functools.cache
def _required(kind: type) -> frozenset[str]:
    """The fields of a dataclass that have no default."""
    return frozenset(each.name for each in fields(kind) if each.default is MISSING)


def one_of(values: Iterable[T], other: T | None = None) -> Callable[[JsonValue], T]:
    """Decode one of these: by its value where that is a word, else by its name. ``other`` is what a
    word of a later version is read as; without it, that is refused."""
    words = {each if isinstance(each, str) else cast(Any, each).name: each for each in values}

    def decode(node: JsonValue) -> T:
        found = words.get(node.content, other) if isinstance(node.content, str) else None
        if found is None:
            raise node.error(f"one of these stands here: {', '.join(words)}")
        return found

    return decode


Decoders = Mapping[str, Callable[[JsonValue], object]]
