"""Delete the Placements of old attempts.

While a quota or a webhook refuses its pods, a job has a new attempt every five minutes. One that
recovers for months has many too. Each has a Placement, which the job's end alone would remove.
"""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from functools import partial
from random import Random

from railwright_api import names, routes
from railwright_kube import bodies
from railwright_kube.backoff import Backoff
from railwright_kube.client import Api
from railwright_kube.object_writes import ObjectWrites
from railwright_kube.reflector import Reflector
from railwright_operator.watch.owned import PlacementRecord

KEPT = 32
"""The Placements of so many attempts of each job stay. The newest attempt, which may be live, has
one of them."""
INTERVAL_S = 30.0
AT_ONCE_MAX = 1000
PAUSE_S_MAX = 3600.0
"""The longest pause of a Placement whose deletion is refused again and again."""


@dataclass(eq=False)
class OldPlacements:
    """Deletes them, in a task of its own. ``clock`` is monotonic seconds."""

    api: Api
    _: KW_ONLY
    placements: Reflector[PlacementRecord]
    clock: Callable[[], float]
    rng: Random

    def __post_init__(self) -> None:
        self._writes: ObjectWrites[str] = ObjectWrites(
            names.PLACEMENTS,
            backoff=Backoff(INTERVAL_S, PAUSE_S_MAX),
            clock=self.clock,
            rng=self.rng,
        )

    def __repr__(self) -> str:
        return f"<OldPlacements {len(self.placements.records)} kept={KEPT}>"

    async def run(self) -> None:
        """Delete until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_S)
            await self.delete()

    async def delete(self) -> None:
        """Delete those of old attempts. A failure is logged, not raised."""
        found = self.placements.records
        self._writes.forget_unless(found.__contains__)
        due = [each for each in _old(found.values()) if self._writes.is_due(each.uid)]
        for each in due[:AT_ONCE_MAX]:
            path = routes.one(names.PLACEMENTS, each.name, namespace=each.namespace)
            request = partial(self.api.delete, path, bodies.deletion(each.uid))
            if not await self._writes.write(each.uid, request):
                return


def _old(placements: Iterable[PlacementRecord]) -> Iterator[PlacementRecord]:
    """Those that no job keeps."""
    by_job: dict[str, list[PlacementRecord]] = collections.defaultdict(list)
    for each in placements:
        by_job[each.job_uid].append(each)
    for its in by_job.values():
        if len(its) > KEPT:
            yield from sorted(its, key=_attempt)[:-KEPT]


def _attempt(placement: PlacementRecord) -> int:
    """The attempt, by the name of its Placement (``names.placement_name``)."""
    number = placement.name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
