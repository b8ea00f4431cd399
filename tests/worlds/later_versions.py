"""What a later version might write: the same objects with more fields in each of them."""

from __future__ import annotations

from typing import Any

NEWS: dict[str, Any] = {"fromLater": {"of": ["any", {"kind": 1}]}, "sinceLater": 7}


def extended(value: Any, *, besides: tuple[str, ...] = ()) -> Any:
    """The value with two unknown fields in every object; ``besides`` are maps of users' keys."""
    if isinstance(value, list):
        return [extended(each, besides=besides) for each in value]
    if not isinstance(value, dict):
        return value
    return NEWS | {
        name: each if name in besides else extended(each, besides=besides)
        for name, each in value.items()
    }
