"""A cause as it stands in the ledger and in a job's status: read back, and written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright_scheduler.attempt.causes import Cause, CauseCode


def parse(found: Mapping[str, Any]) -> Cause:
    """A cause as it stands in the ledger or in a job's status."""
    return Cause(
        code=CauseCode(found["code"]),
        message=found.get("message", ""),
        nodes=tuple(found.get("lostNodes", ())),
        node=found.get("node"),
        rank=found.get("rank"),
        exit_code=found.get("exitCode"),
        signal=found.get("signal"),
        last_lines=found.get("lastLines", ""),
    )


def render(cause: Cause) -> dict[str, Any]:
    """A cause as it is written; fields without a value are left out."""
    fields = {
        "code": cause.code.value,
        "message": cause.message or None,
        "lostNodes": list(cause.nodes) or None,
        "node": cause.node,
        "rank": cause.rank,
        "exitCode": cause.exit_code,
        "signal": cause.signal,
        "lastLines": cause.last_lines or None,
    }
    return {name: value for name, value in fields.items() if value is not None}
