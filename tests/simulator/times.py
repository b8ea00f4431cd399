"""Times as objects have them."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(seconds: float) -> str:
    """Seconds since the epoch, to the microsecond."""
    found = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
    return found.replace("+00:00", "Z")
