"""How many examples a property test tries: all in ``make test``, a part of them before a commit."""

from __future__ import annotations

import os

PERCENT = int(os.environ.get("RAILWRIGHT_EXAMPLES_PERCENT", "100"))


def examples(whole: int) -> int:
    """The part to try of so many examples, one at least."""
    return max(1, whole * PERCENT // 100)
