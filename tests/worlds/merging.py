"""What an API server makes of a merge patch: RFC 7386, section 2."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def merged(target: Any, patch: Any) -> Any:
    """The target after the patch: objects merge at every depth, null removes, all else replaces."""
    if not isinstance(patch, dict):
        return patch
    result: Json = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
