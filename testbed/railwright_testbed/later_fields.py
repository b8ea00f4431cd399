"""What a later version might write: more fields in every object, and reasons that are new.

This is a module of the images of that version too, so it imports nothing but the standard library.
"""

from __future__ import annotations

from typing import Any

NEWS: dict[str, Any] = {"fromLater": {"of": ["any", {"kind": 1}]}, "sinceLater": 7}
NEW_REASON = "AsOfLater"
"""What the reason of each condition ends with."""
OPEN_MAPS = ("annotations", "labels", "perPod")
"""Fields of our kinds whose keys are not ours."""


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


def of_api_object(path: str, body: Any) -> Any:
    """The body of a write: an object of our kinds has more in spec and status, others do not."""
    if "/railwright.dev/" not in path or not isinstance(body, dict):
        return body
    return {
        name: _renamed(extended(part, besides=OPEN_MAPS)) if name in ("spec", "status") else part
        for name, part in body.items()
    }


def _renamed(part: Any) -> Any:
    """The part with other reasons in its conditions."""
    for condition in part.get("conditions", ()) if isinstance(part, dict) else ():
        condition["reason"] += NEW_REASON
    return part
