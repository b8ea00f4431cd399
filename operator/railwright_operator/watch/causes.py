"""Convert causes between values of the core and the ledger or a job's status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright_conversion import times
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
"""The fields of a cause, each with its name in the API."""

_EMPTY = Cause(CauseCode.NODE_LOST, "")


def parse(found: Mapping[str, Any]) -> Cause:
    """Read a cause from the ledger or a job's status."""
    fields = {name: found[key] for name, key in _FIELDS.items() if key in found}
    fields |= {"message": fields.get("message", ""), "nodes": tuple(fields.get("nodes", ()))}
    time_s = times.parse(found["time"]) if "time" in found else 0
    return Cause(code=CauseCode(found["code"]), time_s=time_s, **fields)


def render(cause: Cause) -> dict[str, Any]:
    """Render a cause; fields without a value are left out."""
    fields = {
        key: getattr(cause, name)
        for name, key in _FIELDS.items()
        if getattr(cause, name) != getattr(_EMPTY, name)
    }
    if cause.nodes:
        fields["lostNodes"] = list(cause.nodes)
    if cause.time_s:
        fields["time"] = times.render(cause.time_s)
    return {"code": cause.code.value, **fields}
