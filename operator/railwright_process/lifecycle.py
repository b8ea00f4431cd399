"""The life of a process that works while it holds a Lease."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from railwright_kube.backoff import Backoff
from railwright_kube.errors import RequestFailed

logger = logging.getLogger(__name__)

BACKOFF_S = Backoff(0.5, 10.0)

EXIT_STOPPED = 0
"""A signal stopped the process."""

EXIT_FAILED = 1
"""The process lost its Lease, its work raised an exception, or a scheduling cycle hung."""

EXIT_BAD_OPTION = 2
"""An environment variable is missing or invalid; stderr names it."""

EXIT_S = 20.0
"""How long the exit of a process may take: a thread that never ends would block it."""

STDERR = 2


async def persist(request: Callable[[], Coroutine[Any, Any, None]], rng: Random) -> None:
    """Retry the request until it succeeds."""
    failures = 0
    while True:
        try:
            await request()
            return
        except RequestFailed as error:
            logger.warning(
                "request failed, retrying", extra={"error": str(error), "failures": failures}
            )
        await asyncio.sleep(BACKOFF_S.delay_s(failures, rng))
        failures += 1


async def until_ended(
    stop: asyncio.Event, lost: asyncio.Event, work: Coroutine[Any, Any, None]
) -> int:
    """Work until a signal or until leadership is lost. Returns the exit code."""
    working = asyncio.create_task(work)
    stopping, losing = asyncio.create_task(stop.wait()), asyncio.create_task(lost.wait())
    done, _ = await asyncio.wait((working, stopping, losing), return_when=asyncio.FIRST_COMPLETED)
    for task in (working, stopping, losing):
        task.cancel()
    await asyncio.gather(working, return_exceptions=True)
    if working in done:
        logger.error("work stopped", exc_info=working.exception())
        return EXIT_FAILED
    return EXIT_STOPPED if stopping in done else EXIT_FAILED


def end_in_time() -> None:
    """End the process, whatever its threads do, if it has not ended after ``EXIT_S``."""
    faulthandler.dump_traceback_later(EXIT_S, exit=True, file=STDERR)
