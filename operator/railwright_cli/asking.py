"""What is wrong with a question itself."""

from __future__ import annotations


class UsageError(ValueError):
    """What was asked for makes no sense."""
