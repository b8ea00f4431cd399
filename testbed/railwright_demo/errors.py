"""The errors of the demo."""

from __future__ import annotations


class DemoError(Exception):
    """The demo cannot go on; the message has the expected and the observed state."""


class DemoRefused(DemoError):  # noqa: N818  # a decision, before anything was changed
    """The demo does not begin; the message has the reason and what to do."""
