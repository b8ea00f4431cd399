"""Store the profiles that ranks recorded. The reporter starts these writes and does not wait.

They are requests of their own: a Profile that cannot be stored delays no status of its job, and no
commit, which waits for the status.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from random import Random

from railwright_kube import errors
from railwright_kube.backoff import Backoff
from railwright_kube.in_flight import RequestsInFlight
from railwright_kube.lanes import Lane
from railwright_operator.heartbeats.views import SessionView
from railwright_operator.watch.jobs import CachedJob
from railwright_operator.watch.owned import ProfileRecord
from railwright_scheduler.attempt.phases import FINAL
from railwright_scheduler.attempt.record import JobRecord

logger = logging.getLogger(__name__)

StoreProfile = Callable[[CachedJob, int, str], Awaitable[None]]
"""Stores the profile that the ranks of an attempt recorded. Raises RequestFailed."""

WRITES_MAX = 8
"""Concurrent writes. A profile is larger than a status."""

STORE_PAUSE_S = Backoff(0.5, 30.0)
"""While the Profile of a deleted job of the same name exists, every write fails."""


@dataclass(eq=False, repr=False)
class ProfileWrites:
    """The writes of Profiles in flight, at most one for each job."""

    store: StoreProfile
    _: KW_ONLY
    clock: Callable[[], float]
    rng: Random

    def __post_init__(self) -> None:
        self._lane = Lane(WRITES_MAX)
        self._writes: RequestsInFlight[str] = RequestsInFlight(
            backoff=STORE_PAUSE_S, clock=self.clock, rng=self.rng, on_end=_ended
        )

    def start(self, cached: CachedJob, record: JobRecord, session: SessionView | None) -> None:
        """Start to store the profile of the newest attempt, if it is new and due."""
        document = new_profile(record, session, cached.profile)
        if document and self._writes.is_due(cached.uid):
            self._writes.start(cached.uid, self._store(cached, record.attempt, document))

    def forget_unless(self, is_kept: Callable[[str], bool]) -> None:
        """Forget the failures of all jobs but those for which ``is_kept`` holds."""
        self._writes.forget_unless(is_kept)

    async def _store(self, cached: CachedJob, attempt: int, document: str) -> None:
        async with self._lane.place():
            await self.store(cached, attempt, document)


def _ended(uid: str, error: BaseException | None) -> None:
    if isinstance(error, errors.RequestFailed):
        logger.warning("profile write failed", extra={"job_uid": uid, "error": str(error)})
    elif error is not None:
        logger.error("profile write raised", exc_info=error, extra={"job_uid": uid})


def new_profile(
    record: JobRecord, session: SessionView | None, stored: ProfileRecord | None
) -> str:
    """The profile that the ranks of the newest attempt recorded; empty if it is stored already."""
    # The profile of an ended attempt may not fit the next one.
    is_next = not record.live and record.phase not in FINAL
    if session is None or not session.profile or is_next:
        return ""
    key = (record.attempt, session.profile)
    return "" if stored and (stored.attempt, stored.document) == key else session.profile
