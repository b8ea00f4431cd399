"""The one error of the demo."""

from __future__ import annotations


class DemoError(Exception):
    """The demo cannot go on; the message says what was awaited, and what was there instead."""
