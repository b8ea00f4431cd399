"""Encode dataclasses as JSON, and decode JSON with every field checked against its type.

The messages are in ``railwright.protocol``. The type of a field states its range, and a value
outside is refused with a ProtocolError that names the field. Readers and writers of neighbouring
versions work together: a field that this version does not have is skipped, and a value that an enum
does not have is read as the neutral one that the type of its field states. Standard library only:
this file is copied into users' images.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Never, TypeVar

DEPTH_MAX = 8
SHOWN_CHARACTERS_MAX = 60
MESSAGE_BYTES_MAX = 16 * 1024

# An unterminated string extends to the end, so that each byte is read once.
STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
SURROGATE = re.compile("[\ud800-\udfff]")
FLOAT_MAX = 1e300

Kind = TypeVar("Kind")


class ProtocolError(ValueError):
    """A message that cannot be read: which field, what was seen, what was expected."""


@dataclass(frozen=True, slots=True)
class Between:
    """The range of a whole number, both ends included."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class AtMost:
    """The most UTF-8 bytes of a string, or items of a list."""

    count: int


@dataclass(frozen=True, slots=True)
class Neutral:
    """What a value that an enum does not have is read as: a later version may have it."""

    value: StrEnum


def encode(message: Any, *, bytes_max: int = MESSAGE_BYTES_MAX) -> bytes:
    """The message, a dataclass such as those of ``protocol``, as JSON.

    Raises ProtocolError when it is larger than a receiver will read, or holds a number or a string
    that JSON in UTF-8 cannot carry.
    """
    kind = type(message).__name__
    try:
        text = json.dumps(
            dataclasses.asdict(message),
            allow_nan=False,
            ensure_ascii=False,
            separators=(",", ":"),
        )
        data = text.encode()
    except ValueError as error:
        raise ProtocolError(f"{kind} cannot be sent: {error}") from error
    if len(data) > bytes_max:
        raise ProtocolError(f"{kind} has {len(data)} bytes, at most {bytes_max}")
    return data


def decode(kind: type[Kind], data: bytes, *, bytes_max: int = MESSAGE_BYTES_MAX) -> Kind:
    """The message of the given kind in the bytes.

    Raises ProtocolError, and nothing else, for what is no such message: not JSON in UTF-8, too
    large or too deep, duplicate or missing fields, wrong types, numbers that are not finite or out
    of range.
    """
    if len(data) > bytes_max:
        raise ProtocolError(f"{kind.__name__} has {len(data)} bytes, at most {bytes_max}")
    _check_depth(kind.__name__, data)
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_fields_once, parse_constant=_refuse_constant
        )
    except ProtocolError:
        raise
    except ValueError as error:
        raise ProtocolError(f"{kind.__name__}: expected JSON in UTF-8: {error}") from error
    return typing.cast("Kind", _message(kind, value, kind.__name__))


def fitted(text: str, bytes_max: int) -> str:
    """As much of the start of the text as a field of that many bytes takes."""
    return text.encode("utf-8", "replace")[:bytes_max].decode("utf-8", "ignore")


def _check_depth(name: str, data: bytes) -> None:
    """Refuses nesting before the parser recurses into it."""
    if data.count(b"[") + data.count(b"{") <= DEPTH_MAX:
        return
    depth = 0
    for bracket in re.finditer(rb"[\[\]{}]", STRING.sub(b"", data)):
        depth += 1 if bracket[0] in b"[{" else -1
        if depth > DEPTH_MAX:
            raise ProtocolError(f"{name} is nested deeper than {DEPTH_MAX}")


def _fields_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise ProtocolError(f"{_shown(name)}: seen twice in one object, expected once")
        fields[name] = value
    return fields


def _refuse_constant(constant: str) -> Never:
    raise ProtocolError(f"seen {constant}, expected a finite number")


def _message(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        _refuse(where, value, "an object")
    hints = _hints(kind)
    for field in dataclasses.fields(kind):
        if field.name not in value and field.default is dataclasses.MISSING:
            raise ProtocolError(f"{where}.{field.name}: missing")
    return kind(
        **{
            name: _value(hints[name], item, f"{where}.{name}")
            for name, item in value.items()
            if name in hints
        }
    )


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, include_extras=True)


def _value(hint: Any, value: Any, where: str, bound: Any = None) -> Any:
    """The value as the type of its field has it. Raises ProtocolError."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _value(arguments[0], value, where, arguments[1])
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _value(arguments[0], value, where)
    if origin is tuple:
        if not isinstance(value, list) or len(value) > bound.count:
            _refuse(where, value, f"a list of at most {bound.count}")
        items = enumerate(value)
        return tuple(_value(arguments[0], item, f"{where}[{index}]") for index, item in items)
    if dataclasses.is_dataclass(hint):
        return _message(hint, value, where)
    if issubclass(hint, StrEnum):
        if not isinstance(value, str):
            _refuse(where, value, "a string")
        return hint(value) if value in list(hint) else bound.value
    fits, expected = _SCALARS[hint]
    if not fits(value, bound):
        _refuse(where, value, expected.format(bound=bound))
    return hint(value)


def _is_text(value: Any, bound: AtMost) -> bool:
    if not isinstance(value, str) or SURROGATE.search(value):
        return False
    return len(value.encode()) <= bound.count


_SCALARS: dict[type, tuple[Callable[[Any, Any], bool], str]] = {
    bool: (lambda value, _: isinstance(value, bool), "true or false"),
    int: (
        lambda value, bound: type(value) is int and bound.low <= value <= bound.high,
        "a whole number from {bound.low} to {bound.high}",
    ),
    float: (
        lambda value, _: type(value) in (int, float) and abs(value) <= FLOAT_MAX,
        "a finite number, at most 1e300 in size",
    ),
    str: (_is_text, "a string of at most {bound.count} bytes of UTF-8"),
}


def _refuse(where: str, value: Any, expected: str) -> Never:
    raise ProtocolError(f"{where}: seen {_shown(value)}, expected {expected}")


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    shown = repr(value) if not isinstance(value, str) else ascii(value)
    return shown if len(shown) <= SHOWN_CHARACTERS_MAX else f"{shown[:SHOWN_CHARACTERS_MAX]}…"
