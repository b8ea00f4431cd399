"""Report invariants that do not hold: each is logged, and no attempt is ended for it.

In every cycle, on the informer caches (``DoubleBookings``):

    I1   no double booking; the conditions of these jobs have a message

Against fresh lists of nodes and pods, read page by page (``Verification``):

    I17  the informers of nodes and pods have what the API server has
    I2   a gang that is bound is recorded on its job, or it is in the ledger
    I3   live pods of two attempts of one job: the older attempt is aborting, its pods are going

A violation found by these is also counted, and a cache that was wrong is corrected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, asdict, dataclass

from prometheus_client import Counter

from railwright_kube.errors import RequestFailed
from railwright_operator.informers import Informers
from railwright_scheduler import live_invariants
from railwright_scheduler.attempt.ledger import Ledger
from railwright_scheduler.live_invariants import DOUBLE_BOOKING, DoubleBooking

logger = logging.getLogger(__name__)

VERIFY_S = 600.0
FIRST_S = 60.0
"""After a take-over, which lists many objects itself."""
TICK_S = 1.0


class DoubleBookings:
    """The double bookings of the last scheduling cycle."""

    def __init__(self) -> None:
        self._bookings: dict[tuple[str, str], DoubleBooking] = {}
        self._messages: dict[str, str] = {}

    def update(self, bookings: Iterable[DoubleBooking]) -> None:
        """Take in the double bookings of a new cycle; log those that begin and end."""
        before = self._bookings
        self._bookings = {(booking.node, booking.resource): booking for booking in bookings}
        self._messages = {}
        for key, booking in self._bookings.items():
            for job_uid, _ in booking.attempts:
                self._messages.setdefault(job_uid, booking.message)
            if key not in before:
                extra = {"invariant": DOUBLE_BOOKING, **asdict(booking)}
                logger.error("invariant violated", extra=extra)
        for node, resource in before.keys() - self._bookings.keys():
            extra = {"invariant": DOUBLE_BOOKING, "node": node, "resource": resource}
            logger.info("invariant restored", extra=extra)

    def message(self, job_uid: str) -> str:
        """The message of the job's condition; empty if the job has no double booking."""
        return self._messages.get(job_uid, "")


@dataclass(eq=False, repr=False)
class Verification:
    """Runs in a leader. ``clock`` is monotonic seconds."""

    informers: Informers
    _: KW_ONLY
    ledger: Callable[[], Ledger]
    violations: Counter
    clock: Callable[[], float]

    async def run(self) -> None:
        """Verify until cancelled."""
        due_s = self.clock() + FIRST_S
        while True:
            await asyncio.sleep(TICK_S)
            if self.clock() >= due_s:
                await self.verify()
                due_s = self.clock() + VERIFY_S

    async def verify(self) -> None:
        """Verify once. Raises nothing."""
        try:
            for informer in (self.informers.nodes, self.informers.pods):
                for difference in await informer.verify():
                    self._report(f"I17: {difference}")
            for finding in self._findings():
                self._report(finding)
        except (RequestFailed, TimeoutError) as error:
            logger.warning("verification postponed", extra={"error": str(error)})
        except Exception:
            logger.exception("verification failed")

    def _report(self, finding: str) -> None:
        invariant, _, what = finding.partition(": ")
        self.violations.labels(invariant).inc()
        logger.error("invariant violated", extra={"invariant": invariant, "finding": what})

    def _findings(self) -> Iterator[str]:
        """What is wrong with pods of attempts. Those in their job's status, or of no job, count as
        complete. A pod of no job that is being deleted, such as one on a node that is down, is as
        it should be."""
        jobs, observed = self.informers.jobs, self.informers.pod_index.observed()
        pods = {
            key: [pod for pod in seen.pods if jobs.get(key[0]) is not None or not pod.deleting]
            for key, seen in observed.items()
        }
        whole = {
            (job_uid, attempt)
            for job_uid, attempt in observed
            if (job := jobs.get(job_uid)) is None or attempt <= job.record.attempt
        }
        return live_invariants.gang_findings(pods, self.ledger(), whole=whole)
