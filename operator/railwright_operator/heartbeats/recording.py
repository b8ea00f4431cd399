"""Merge the recordings of an attempt's ranks into its profile, once all have arrived.

Merging the parts of 256 ranks takes up to a second. One thread merges one attempt at a time, so
that the event loop and the scheduling cycle go on.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from railwright import profile, protocol
from railwright.profile import MismatchError, Recorded
from railwright_api.workload import PROFILE_LENGTH_MAX
from railwright_process.messages import RefusedError
from railwright_scheduler.pre_run import RANKS_MAX

logger = logging.getLogger(__name__)


@functools.cache
def _merging_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="merging")


class Recording:
    """The parts by rank, and the merged profile; empty until all parts have arrived."""

    def __init__(self) -> None:
        self.profile = ""
        self._parts: dict[int, Recorded] = {}
        self._unfit = ""
        self._is_merging = False

    async def take(self, part: Recorded, *, ranks: int) -> bool:
        """Store a part; return whether the profile is now complete. Raises RefusedError."""
        if ranks > RANKS_MAX or part.ranks != ranks:
            expected = f"{ranks} ranks" if ranks <= RANKS_MAX else f"a job of {RANKS_MAX} at most"
            raise RefusedError(f"a part is of {part.ranks} ranks, expected {expected}")
        if self._unfit:
            raise RefusedError(self._unfit)
        if self.profile or self._is_merging:
            return False
        self._parts[part.rank] = part
        if len(self._parts) < ranks:
            return False
        parts = [*self._parts.values()]
        self._parts.clear()
        self._is_merging = True
        try:
            loop = asyncio.get_running_loop()
            self.profile = await loop.run_in_executor(_merging_thread(), _merged, parts)
        except (MismatchError, protocol.ProtocolError) as error:
            self._unfit = f"the parts of the profile do not match: {error}"
            logger.warning("profile refused", extra={"error": self._unfit})
        finally:
            self._is_merging = False
        return self.profile != ""


def _merged(parts: Sequence[Recorded]) -> str:
    found = profile.encoded(profile.merged(parts)).decode()
    if len(found) > PROFILE_LENGTH_MAX:
        problem = f"the profile has {len(found)} characters"
        raise MismatchError(f"{problem}, expected at most {PROFILE_LENGTH_MAX}")
    return found
