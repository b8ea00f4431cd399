"""Instants: RFC 3339 in objects of the API, seconds since 1970 in the scheduler."""

from __future__ import annotations

from datetime import UTC, datetime


def parse(text: str) -> int:
    """The second of an instant. Raises ValueError."""
    return int(datetime.fromisoformat(text).timestamp())


def render(time_s: int) -> str:
    """The instant as objects have it."""
    moment = datetime.fromtimestamp(time_s, UTC)
    return moment.isoformat(timespec="seconds").replace("+00:00", "Z")


def render_known(time_s: int | None) -> str | None:
    """The same of an instant that may be unknown."""
    return None if time_s is None else render(time_s)
