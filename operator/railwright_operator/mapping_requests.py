"""Have the mappings computed that plans request, in the processes of the mapper.

A gang waits for its own a few seconds at most, however long that takes (``policy.mappings``), and
one that nobody requests any more is not begun. A process that fails takes one mapping with it, and
another one is started: the mapping is not tried again, as it may be what the process failed on.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass, replace
from random import Random

from railwright_kube.backoff import Backoff
from railwright_operator.mapper_process import MapperError, MapperProcess
from railwright_operator.metrics import MAPPED, MappingMetrics
from railwright_scheduler.policy.mappings import WAIT_S, Outcome, RequestedMapping, Unmapped

logger = logging.getLogger(__name__)

PROCESSES = 2
"""So that others are mapped beside a gang whose mapping hangs."""

BACKOFF_S = Backoff(0.1, 10.0)


Start = Callable[[Callable[[], None]], AbstractAsyncContextManager[MapperProcess]]
"""Starts a process of the mapper, which there is within the block, and calls back when it ends.
Raises OSError and MapperError."""


@dataclass(slots=True)
class _Mapping:
    requested: RequestedMapping
    since_s: float
    begun: bool = False
    outcome: Outcome | None = None


@dataclass(eq=False, repr=False)
class MappingRequests:
    """The mappings that the last plan requested, by the keys that it gave them.

    ``clock`` is monotonic seconds; ``wake`` starts a cycle, once there is an outcome.
    """

    _: KW_ONLY
    metrics: MappingMetrics
    clock: Callable[[], float]
    wake: Callable[[], None]
    rng: Random
    start: Start

    def __post_init__(self) -> None:
        self._changed = asyncio.Event()
        self._mappings: dict[str, _Mapping] = {}

    def state(self) -> dict[str, RequestedMapping]:
        """What is requested, with ages, and outcomes where there are some: for the next plan."""
        now_s = self.clock()
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
                    asyncio.get_running_loop().call_later(WAIT_S, self.wake)
                held = _Mapping(current, self.clock() if held is None else held.since_s)
            self._mappings[key] = held
        self._changed.set()

    async def run(self) -> None:
        """Keep the processes, and have them compute what is requested, in the plan's order."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(PROCESSES):
                tasks.create_task(self._keep_process())

    async def _keep_process(self) -> None:
        failures = 0
        while True:
            ready_s, job_uid = math.inf, ""
            try:
                async with self.start(self._changed.set) as process:
                    ready_s = self.clock()
                    while (taken := await self._next(process)) is not None:
                        job_uid, mapping = taken
                        await self._compute(mapping, process)
                        failures, job_uid = 0, ""
                reason = "it ended"
            except (MapperError, OSError) as error:
                reason = str(error)
            except Exception as error:
                # One request must not end the mappings of all others, nor this operator.
                reason = repr(error)
                logger.exception("mapping raised", extra={"job_uid": job_uid})
            fields = {"job_uid": job_uid, "reason": reason}
            logger.error("mapper process replaced", extra=fields)
            self.metrics.processes_lost.inc()
            if self.clock() - ready_s > BACKOFF_S.cap_s:
                failures = 0
            await asyncio.sleep(BACKOFF_S.delay_s(failures, self.rng))
            failures += 1

    async def _next(self, process: MapperProcess) -> tuple[str, _Mapping] | None:
        """The first that is not begun, with its key; None once the process has ended."""
        while not process.has_ended:
            for key, mapping in self._mappings.items():
                if not mapping.begun:
                    mapping.begun = True
                    return key, mapping
            self._changed.clear()
            await self._changed.wait()
        return None

    async def _compute(self, mapping: _Mapping, process: MapperProcess) -> None:
        """Raises MapperError, with an outcome, if the process is of no use any more."""
        started_s = self.clock()
        outcome: Outcome = Unmapped.FAILED
        try:
            outcome = await process.map_ranks(mapping.requested.request) or Unmapped.OVER_BUDGET
        except MapperError as error:
            outcome = error.outcome
            raise
        finally:
            mapping.outcome = outcome
            self.metrics.seconds.observe(self.clock() - started_s)
            label = outcome if isinstance(outcome, Unmapped) else MAPPED
            self.metrics.mappings.labels(label).inc()
            self.wake()
