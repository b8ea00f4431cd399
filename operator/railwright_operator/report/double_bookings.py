"""Report double bookings: one log line when each begins and ends, and a message for each job."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import asdict

from railwright_scheduler.live_invariants import DOUBLE_BOOKING, DoubleBooking

logger = logging.getLogger(__name__)


class DoubleBookings:
    """The double bookings of the last scheduling cycle."""

    def __init__(self) -> None:
        self._bookings: dict[tuple[str, str], DoubleBooking] = {}
        self._messages: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<DoubleBookings {len(self._bookings)}>"

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
