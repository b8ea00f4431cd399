"""The one error of the demo."""

from __future__ import annotations


class DemoError(Exception):
    """The demo cannot go on; the message has the expected and the observed state."""
