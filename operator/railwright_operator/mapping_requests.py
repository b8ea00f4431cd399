"""Compute the mappings that plans request, beside the scheduling cycle.

One is computed at a time. A gang waits for its own a few seconds at most, however long that takes
(``policy.mappings``), and one that nobody requests any more is not begun.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from railwright_operator.metrics import MappingMetrics
from railwright_scheduler.mapping.gang_mapping import MappingRequest, map_ranks
from railwright_scheduler.policy.mappings import WAIT_S, Outcome, RequestedMapping, Unmapped

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Mapping:
    requested: RequestedMapping
    since_s: float
    task: asyncio.Task[None] | None = None
    outcome: Outcome | None = None


class MappingRequests:
    """The mappings that the last plan requested, by the keys that it gave them.

    ``clock`` is monotonic seconds; ``wake`` starts a cycle, once there is an outcome.
    """

    def __init__(
        self, *, metrics: MappingMetrics, clock: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._wake = wake
        self._turn = asyncio.Semaphore(1)
        self._mappings: dict[str, _Mapping] = {}

    def __repr__(self) -> str:
        return f"<MappingRequests {len(self._mappings)}>"

    def state(self) -> dict[str, RequestedMapping]:
        """What is requested, with ages, and outcomes where there are some: for the next plan."""
        now_s = self._clock()
        return {
            key: replace(each.requested, age_s=now_s - each.since_s, outcome=each.outcome)
            for key, each in self._mappings.items()
        }

    def update(self, requested: Mapping[str, RequestedMapping]) -> None:
        """Request what this plan requests, and nothing else."""
        before, self._mappings = self._mappings, {}
        for key, current in requested.items():
            held = before.get(key)
            if held is None or held.requested.request is not current.request:
                if held is None:
                    asyncio.get_running_loop().call_later(WAIT_S, self._wake)
                since_s = self._clock() if held is None else held.since_s
                held = _Mapping(current, since_s)
                held.task = asyncio.create_task(self._compute(key, held))
            self._mappings[key] = held

    async def _compute(self, key: str, mapping: _Mapping) -> None:
        async with self._turn:
            if self._mappings.get(key) is not mapping:
                return
            started_s = self._clock()
            try:
                outcome = await asyncio.to_thread(_outcome, mapping.requested.request)
            except Exception:
                logger.exception("mapping raised", extra={"job_uid": key})
                outcome = Unmapped.FAILED
        mapping.outcome = outcome
        self._metrics.seconds.observe(self._clock() - started_s)
        self._metrics.mappings.labels(outcome if isinstance(outcome, Unmapped) else "Mapped").inc()
        self._wake()


def _outcome(request: MappingRequest) -> Outcome:
    """The mapping; FAILED for one that is none."""
    found = map_ranks(request)
    if found is None:
        return Unmapped.OVER_BUDGET
    is_choice = 0 <= found.choice < len(request.choices)
    nodes = request.choices[found.choice].mapped.nodes if is_choice else 0
    return found if sorted(found.order.order) == list(range(nodes)) and nodes else Unmapped.FAILED
