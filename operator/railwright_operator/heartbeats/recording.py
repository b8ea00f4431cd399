"""What ranks of one attempt recorded, until all of them have told."""

from __future__ import annotations

import logging

from railwright import profile, wire
from railwright.profile import MismatchError, Recorded
from railwright_api.workload import PROFILE_LENGTH_MAX, RECORDED_RANKS_MAX
from railwright_operator.heartbeats import refusals
from railwright_operator.heartbeats.refusals import RefusedError

logger = logging.getLogger(__name__)


class Recording:
    """Parts by rank, and the profile that they become; empty until then."""

    def __init__(self) -> None:
        self.profile = ""
        self._parts: dict[int, Recorded] = {}
        self._unfit = ""

    def __repr__(self) -> str:
        return f"<Recording parts={len(self._parts)} profile={bool(self.profile)}>"

    def take(self, part: Recorded, *, ranks: int) -> bool:
        """Whether that was the last of so many; what is told again is not. Raises RefusedError."""
        if ranks > RECORDED_RANKS_MAX or part.ranks != ranks:
            expected = (
                f"{ranks} ranks"
                if ranks <= RECORDED_RANKS_MAX
                else f"a job of {RECORDED_RANKS_MAX} at most"
            )
            raise RefusedError(
                refusals.MALFORMED, f"a part is of {part.ranks} ranks, expected {expected}"
            )
        if self._unfit:
            raise RefusedError(refusals.MALFORMED, self._unfit)
        if self.profile:
            return False
        self._parts[part.rank] = part
        if len(self._parts) < ranks:
            return False
        parts = [*self._parts.values()]
        self._parts.clear()
        try:
            found = profile.encoded(profile.merged(parts)).decode()
        except (MismatchError, wire.WireError) as error:
            return self._refuse(f"what ranks recorded does not go together: {error}")
        if len(found) > PROFILE_LENGTH_MAX:
            told = f"the profile has {len(found)} characters"
            return self._refuse(f"{told}, expected at most {PROFILE_LENGTH_MAX}")
        self.profile = found
        return True

    def _refuse(self, why: str) -> bool:
        self._unfit = why
        logger.warning("what ranks recorded is not kept", extra={"error": why})
        return False
