"""So many requests at a time, of which those that get no answer keep none of the others waiting.

An admission webhook of one namespace can hold up each write there for ten seconds. So a request
holds its place in a lane for ``SLOW_S`` at most: those of other namespaces, the ledger and statuses
go on. How many wait for an answer beyond that is bounded by what their callers have under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

SLOW_S = 1.0
"""Of an API server that is well, 99 % of writes take less than half of it."""


TIMER_SLACK_S = 1e-6
"""More than the resolution of the loop's clock, by which a timer may run early."""


class Lane:
    """Places for ``most`` requests that may still be answered soon."""

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, and keep it for the block, or until that takes ``SLOW_S``."""
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        timer = loop.call_later(SLOW_S, self._free.release)
        try:
            yield
        finally:
            if loop.time() < timer.when() - TIMER_SLACK_S:  # Or the timer has freed it, or will.
                timer.cancel()
                self._free.release()
