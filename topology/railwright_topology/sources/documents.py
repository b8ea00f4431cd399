"""YAML as people and tools write it for us, with the line of every value.

Scalars stay the text they are: a rack may be called ``no``, and node ``0012`` is not node 10.
Aliases and tags are refused: with aliases a few hundred bytes stand for more values than fit in
memory. A key that stands twice, of which YAML's own loaders keep the last in silence, is refused or
recorded.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml

from railwright_topology.sources.omissions import Omissions
from railwright_topology.wiring import WiringError

CHARACTERS_MAX = 1 << 20
DEPTH_MAX = 24

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULLS = ("", "~", "null", "Null", "NULL")
_FRAMES = (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentEndEvent)


@dataclass(frozen=True, slots=True)
class Value:
    """A scalar's text, a sequence or a mapping; what is left empty is empty text, and is as good as
    an empty sequence or mapping."""

    source: str
    line: int
    content: str | tuple[Value, ...] | Mapping[str, Value]

    def error(self, rule: str) -> WiringError:
        return WiringError(self.source, self.line, rule)

    def text(self, what: str) -> str:
        """The text, which may not be empty; ``what`` says in the refusal what it should be."""
        if not isinstance(self.content, str) or not self.content:
            raise self.error(f"{what} stands here, as text")
        return self.content

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

    def fields(
        self, what: str, known: tuple[str, ...], omissions: Omissions
    ) -> Mapping[str, Value]:
        """The entries of a mapping whose keys are known beforehand; others are left out."""
        found = self.entries(what)
        for key in found.keys() - known:
            (nearest,) = difflib.get_close_matches(key[:80], known, n=1, cutoff=0)
            rule = f"{key[:80]!r} is no field of {what}, the nearest is {nearest}: it is left out"
            omissions.add(found[key].error(rule))
        return {key: value for key, value in found.items() if key in known}


def read(source: str, text: str, omissions: Omissions | None = None) -> Value:
    """The one document of a text. Raises WiringError where it is not YAML, or not just one. Of a
    key that stands twice the first counts, where ``omissions`` are collected."""
    if len(text) > CHARACTERS_MAX:
        raise WiringError(source, 1, f"has {len(text)} characters, at most {CHARACTERS_MAX}")
    try:
        events = _events(source, text)
        if next(events, None) is None:
            raise WiringError(source, 1, "nothing is in it")
        found = _value(source, next(events), events, 1, omissions)
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
    source: str,
    event: yaml.Event,
    rest: Iterator[yaml.Event],
    depth: int,
    omissions: Omissions | None,
) -> Value:
    """The value that starts with an event, and takes its parts from the rest of them."""
    if depth > DEPTH_MAX:
        raise _error(source, event, f"is more than {DEPTH_MAX} levels deep")
    line = _line(event)
    if isinstance(event, yaml.ScalarEvent):
        empty = event.implicit[0] and event.value in _NULLS
        return Value(source, line, "" if empty else event.value)
    if isinstance(event, yaml.SequenceStartEvent):
        parts = []
        while not isinstance(part := next(rest), yaml.SequenceEndEvent):
            parts.append(_value(source, part, rest, depth + 1, omissions))
        return Value(source, line, tuple(parts))
    entries: dict[str, Value] = {}
    while not isinstance(part := next(rest), yaml.MappingEndEvent):
        if not isinstance(part, yaml.ScalarEvent):
            raise _error(source, part, "a key is text, no list and no mapping")
        value = _value(source, next(rest), rest, depth + 1, omissions)
        if part.value not in entries:
            entries[part.value] = value
            continue
        twice = _error(source, part, f"{part.value[:80]!r} stands twice")
        if omissions is None:
            raise twice
        omissions.note(twice.line, f"{twice.rule}: the first counts")
    return Value(source, line, entries)


def _error(source: str, event: yaml.Event, rule: str) -> WiringError:
    return WiringError(source, _line(event), rule)


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1
