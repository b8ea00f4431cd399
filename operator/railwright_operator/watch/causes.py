"""A cause as it stands in the ledger and in a job's status: read back, and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright_scheduler.attempt.causes import Cause, CauseCode

_FIELDS = {
    "message": "message",
    "nodes": "lostNodes",
    "node": "node",
    "rank": "rank",
    "exit_code": "exitCode",
    "signal": "signal",
    "last_lines": "lastLines",
}
"""Of a cause, each with its name in the API."""

_EMPTY = Cause(CauseCode.NODE_LOST, "")


def parse(found: Mapping[str, Any]) -> Cause:
    """A cause as it stands in the ledger or in a job's status."""
    fields = {name: found[key] for name, key in _FIELDS.items() if key in found}
    fields |= {"message": fields.get("message", ""), "nodes": tuple(fields.get("nodes", ()))}
    return Cause(code=CauseCode(found["code"]), **fields)


def render(cause: Cause) -> dict[str, Any]:
    """A cause as it is written; fields without a value are left out."""
    fields = {
        key: getattr(cause, name)
        for name, key in _FIELDS.items()
        if getattr(cause, name) != getattr(_EMPTY, name)
    }
    if cause.nodes:
        fields["lostNodes"] = list(cause.nodes)
    return {"code": cause.code.value, **fields}
