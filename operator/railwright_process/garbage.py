"""Tune the garbage collector: rare collections, and none of long-lived objects.

Reference counts free nearly all objects at once. A full collection visits every object: with the
records of 50,000 pods it takes 0.4 s, in which nothing else runs. With the default thresholds it
would run every few scheduling cycles, as a cycle creates tens of thousands of objects.
"""

from __future__ import annotations

import gc

THRESHOLDS = (100_000, 20, 50)
"""More objects than a cycle of the largest cluster creates; then the collections of the first and
of the second generation before one of the next."""


def collect_rarely() -> None:
    """Set the thresholds."""
    gc.set_threshold(*THRESHOLDS)


def keep_for_good() -> None:
    """Exclude all objects that exist now from later collections."""
    gc.collect()
    gc.freeze()
