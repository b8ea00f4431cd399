"""Where garbage in cycles is looked for: rarely, and never among what is kept for good.

References free nearly everything here at once. A full collection walks every object there is: with
the records of 50,000 pods it takes 0.4 s in which nothing else runs, and by default it comes every
few turns, as a turn makes and drops tens of thousands of objects.
"""

from __future__ import annotations

import gc

THRESHOLDS = (100_000, 20, 50)
"""More objects than a turn of the largest cluster makes and drops; then as many collections of the
young and of the middle-aged as come before one of all."""


def collect_rarely() -> None:
    """From now on."""
    gc.set_threshold(*THRESHOLDS)


def keep_for_good() -> None:
    """What there is now, but for garbage, is not looked through again."""
    gc.collect()
    gc.freeze()
