"""YAML as people and tools write it for us, with the line of every value.

Scalars stay the text they are: a rack may be called ``no``, and node ``0012`` is not node 10.
Aliases and tags are refused: with aliases a few hundred bytes stand for more values than fit in
memory. A key that stands twice, of which YAML's own loaders keep the last in silence, is refused or
recorded.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import yaml

from railwright_topology.sources import hostlist
from railwright_topology.sources.omissions import Omissions
from railwright_topology.wiring import WiringError

CHARACTERS_MAX = 1 << 20
DEPTH_MAX = 24

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULLS = ("", "~", "null", "Null", "NULL")
_DIGITS = re.compile(r"[0-9]{1,7}")
_FRAMES = (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentEndEvent)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Value:
    """A scalar's text, a sequence or a mapping; what is left empty is empty text, and is as good as
    an empty sequence or mapping."""

    omissions: Omissions
    line: int
    content: str | tuple[Value, ...] | Mapping[str, Value]

    def error(self, rule: str) -> WiringError:
        return WiringError(self.omissions.source, self.line, rule)

    def unexpected(self, expected: str) -> WiringError:
        """The error of a text that is something else than expected."""
        return self.error(f"{str(self.content)[:80]!r}: expected {expected}")

    def text(self, what: str) -> str:
        """The text, which may not be empty; ``what`` says in the refusal what it should be."""
        if not isinstance(self.content, str) or not self.content:
            raise self.error(f"{what} stands here, as text")
        return self.content

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        """The text, which has to match."""
        if not pattern.fullmatch(text := self.text(what)):
            raise self.unexpected(what)
        return text

    def name(self, what: str) -> str:
        """The text, which has to be short enough for a name."""
        if not hostlist.is_name(text := self.text(what)):
            rule = f"{what} has up to {hostlist.NAME_MAX} printable characters"
            raise self.error(f"{text[:80]!r}: {rule}")
        return text

    def number(self, most: int) -> int:
        """A whole number from 0."""
        what = f"a number up to {most}"
        if int(self.match(_DIGITS, what)) > most:
            raise self.unexpected(what)
        return int(self.text(what))

    def each(self, what: str) -> tuple[Value, ...]:
        if self.content == "":
            return ()
        if not isinstance(self.content, tuple):
            raise self.error(f"a list of {what} stands here")
        return self.content

    def entries(self, what: str) -> Mapping[str, Value]:
        if self.content == "":
            return {}
        if isinstance(self.content, str | tuple):
            raise self.error(f"a mapping of {what} stands here")
        return self.content

    def some(self, what: str, decode: Callable[[Value], T]) -> list[T]:
        """The parts of a list that break no rule, decoded."""
        found: list[T] = []
        for value in self.each(what):
            with self.omissions.part():
                found.append(decode(value))
        return found

    def fields(self, what: str, allowed: Sequence[str] = ()) -> Fields:
        """The entries of a mapping whose keys are known beforehand. Others are left out with a
        remark; where none are given, every key may be there."""
        found = self.entries(what)
        for key in found.keys() - allowed if allowed else ():
            (nearest,) = difflib.get_close_matches(key[:80], allowed, n=1, cutoff=0)
            rule = f"{key[:80]!r} is no field of {what}, the nearest is {nearest}: it is left out"
            self.omissions.add(found[key].error(rule))
        fields = {key: value for key, value in found.items() if not allowed or key in allowed}
        return Fields(self, fields)


@dataclass(frozen=True, slots=True)
class Fields:
    """A mapping with known keys. A field that breaks a rule can be left out alone."""

    value: Value
    fields: Mapping[str, Value]

    @property
    def omissions(self) -> Omissions:
        return self.value.omissions

    def __contains__(self, name: str) -> bool:
        return name in self.fields

    def __getitem__(self, name: str) -> Value:
        """A field that has to be there."""
        if name not in self.fields:
            raise self.value.error(f"{name} is not there")
        return self.fields[name]

    def get(self, name: str, decode: Callable[[Value], T], default: T) -> T:
        """A field decoded; the default where it is not there or breaks a rule."""
        with self.omissions.part():
            return decode(self.fields[name]) if name in self.fields else default
        return default

    def some(self, name: str, decode: Callable[[Value], T], what: str = "") -> list[T]:
        """The parts of a field that break no rule, decoded; none where it is no list."""
        return self.get(name, lambda value: value.some(what or name, decode), [])


class _Refusal(Omissions):
    """Where nothing may be left out."""

    def add(self, error: WiringError) -> None:
        raise error


def read_versioned(
    text: str,
    omissions: Omissions,
    what: str,
    allowed: Sequence[str] = (),
    versions: Sequence[str] = ("1",),
) -> Fields:
    """A document with a version; that of another version is read as of the last one known."""
    record = read(omissions.source, text, omissions).fields(what, allowed)
    if (version := record["version"].text("a version")) not in versions:
        rule = f"version {version[:16]!r} is read as {versions[-1]}"
        omissions.add(record["version"].error(rule))
    return record


def read(source: str, text: str, omissions: Omissions | None = None) -> Value:
    """The one document of a text. Raises WiringError where it is not YAML, or not just one. Of a
    key that stands twice the first counts, where ``omissions`` are collected."""
    omissions = omissions or _Refusal(source)
    if len(text) > CHARACTERS_MAX:
        raise WiringError(source, 1, f"has {len(text)} characters, at most {CHARACTERS_MAX}")
    try:
        events = _events(source, text)
        if next(events, None) is None:
            raise WiringError(source, 1, "nothing is in it")
        found = _value(omissions, next(events), events, 1)
        if (another := next(events, None)) is not None:
            raise _error(source, another, "a second document starts: one is read")
        return found
    except yaml.MarkedYAMLError as broken:
        mark = broken.problem_mark
        line = mark.line + 1 if mark else 1
        raise WiringError(source, line, f"is not YAML: {broken.problem}") from None
    except (yaml.YAMLError, UnicodeEncodeError) as broken:
        raise WiringError(source, 1, f"is not YAML: {str(broken)[:200]}") from None


def _events(source: str, text: str) -> Iterator[yaml.Event]:
    """What the text holds, from the start of its first document on."""
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _error(source, event, "anchors and aliases are not read: write the value out")
        if getattr(event, "tag", None):
            raise _error(source, event, "tags are not read: every value is text")
        if not isinstance(event, _FRAMES):
            yield event


def _value(
    omissions: Omissions, event: yaml.Event, rest: Iterator[yaml.Event], depth: int
) -> Value:
    """The value that starts with an event, and takes its parts from the rest of them."""
    source, line = omissions.source, _line(event)
    if depth > DEPTH_MAX:
        raise _error(source, event, f"is more than {DEPTH_MAX} levels deep")
    if isinstance(event, yaml.ScalarEvent):
        empty = event.implicit[0] and event.value in _NULLS
        return Value(omissions, line, "" if empty else event.value)
    if isinstance(event, yaml.SequenceStartEvent):
        parts = []
        while not isinstance(part := next(rest), yaml.SequenceEndEvent):
            parts.append(_value(omissions, part, rest, depth + 1))
        return Value(omissions, line, tuple(parts))
    entries: dict[str, Value] = {}
    while not isinstance(part := next(rest), yaml.MappingEndEvent):
        if not isinstance(part, yaml.ScalarEvent):
            raise _error(source, part, "a key is text, no list and no mapping")
        value = _value(omissions, next(rest), rest, depth + 1)
        if entries.setdefault(part.value, value) is not value:
            rule = f"{part.value[:80]!r} stands twice: at most the first counts"
            omissions.add(_error(source, part, rule))
    return Value(omissions, line, entries)


def _error(source: str, event: yaml.Event, rule: str) -> WiringError:
    return WiringError(source, _line(event), rule)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
