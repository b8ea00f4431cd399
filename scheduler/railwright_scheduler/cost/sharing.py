"""What of a domain's uplinks one job has where others send through them as well.

The rule is max-min fairness (Bertsekas and Gallager, Data Networks, 1992, 6.5.2), with each job
counted as often as it has adapters below: switches let their ports take turns. Another job takes
what it sends on average, but no more than its turns; the job that is judged takes all that is left.
So the more others send the less it has, and never less than its turns.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Use:
    """What one job makes of a domain's uplinks, both in adapters of whole nodes: it has
    ``adapters`` below, and ``sending`` of them would be busy all the time with what it sends."""

    sending: float
    adapters: float


def left(room: float, adapters: float, others: Iterable[Use]) -> float:
    """How many adapters' worth of the ``room`` a job with so many below has beside these.

    All of it where there are no others, exactly. The order of ``others`` does not matter.
    """
    meekest_first = sorted(others, key=_eagerness)
    takers = [
        *itertools.accumulate((each.adapters for each in meekest_first[::-1]), initial=adapters)
    ]
    for each in meekest_first:
        if each.sending * takers[-1] >= room * each.adapters:
            break
        room -= each.sending
        takers.pop()
    return room * (adapters / takers[-1])


def _eagerness(use: Use) -> tuple[float, float]:
    return use.sending / use.adapters, use.adapters
