"""Unix time by the clock of the API server.

Objects, Leases and tokens have its time, so that what is compared with them must too. Leaders on
machines whose clocks differ decide the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from email.utils import parsedate_to_datetime

DATE_STEP_S = 1.0
"""Of the date in a response (RFC 9110, section 5.6.7)."""


class ServerClock:
    """Seconds since 1970, by the dates of responses (RFC 9110, section 6.6.1). From one to the next
    the monotonic ``clock`` counts, so a step of this machine's wall clock, which is ``wall_s`` now,
    changes nothing. Before the first response this machine's time counts."""

    def __init__(self, clock: Callable[[], float], *, wall_s: float) -> None:
        self.monotonic = clock
        self._offset_s = wall_s - clock()
        self._date: str | None = None
        self._date_s = 0.0

    def __repr__(self) -> str:
        return f"<ServerClock {self():.0f}>"

    def __call__(self) -> float:
        return self.monotonic() + self._offset_s

    def take_in(self, date: str, *, sent_s: float) -> None:
        """Take in the date of a response that has just come, to a request that was sent at the
        monotonic time ``sent_s``. The server wrote it in between. One that is no date is skipped.
        """
        if date != self._date:
            with contextlib.suppress(ValueError):
                self._date_s = parsedate_to_datetime(date).timestamp()
                self._date = date
        if date == self._date:
            least_s = self._date_s - self.monotonic()
            most_s = self._date_s + DATE_STEP_S - sent_s
            self._offset_s = min(max(self._offset_s, least_s), most_s)
