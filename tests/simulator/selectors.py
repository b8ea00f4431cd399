"""Label and field selectors of lists and watches.

Of labels: ``key=value``, ``key!=value``, ``key`` and ``!key``; of fields: ``path=value`` and
``path!=value`` for any path of names, where the real server accepts a few paths of each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simulator.statuses import bad_request

Json = Mapping[str, Any]
Matches = Callable[[Json], bool]


def parse(query: Mapping[str, str]) -> Matches | None:
    """Whether an object is selected by a request's query; None if all objects are."""
    labels = [_label(part) for part in _parts(query.get("labelSelector", ""))]
    fields = [_field(part) for part in _parts(query.get("fieldSelector", ""))]
    requirements = labels + fields
    if not requirements:
        return None
    return lambda found: all(matches(found) for matches in requirements)


def _parts(selector: str) -> list[str]:
    if "(" in selector:
        raise bad_request(f"set-based selectors are not simulated: {selector}")
    return [part.strip() for part in selector.split(",") if part.strip()]


def _label(part: str) -> Matches:
    key, value, is_equal = _split(part)
    if value is None:
        return lambda found: (key in _labels(found)) is is_equal
    return lambda found: (_labels(found).get(key) == value) is is_equal


def _labels(found: Json) -> Mapping[str, str]:
    return found["metadata"].get("labels") or {}


def _field(part: str) -> Matches:
    key, value, is_equal = _split(part)
    if value is None:
        raise bad_request(f"invalid field selector: {part}")
    path = key.split(".")
    return lambda found: (_value(found, path) == value) is is_equal


def _value(found: Any, path: list[str]) -> str:
    for name in path:
        found = found.get(name) or {}
    return str(found) if found else ""


def _split(part: str) -> tuple[str, str | None, bool]:
    """The key, the value if the requirement has one, and whether it is for equality."""
    if "!=" in part:
        key, _, value = part.partition("!=")
        return key.strip(), value.strip(), False
    if "=" in part:
        key, _, value = part.partition("=")
        return key.strip(), value.lstrip("=").strip(), True
    return part.removeprefix("!").strip(), None, not part.startswith("!")
