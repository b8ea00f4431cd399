"""Why a launcher is refused, with the HTTP status that tells it what to do next."""

from __future__ import annotations

MALFORMED = 400
FORBIDDEN = 403
NOT_FOUND = 404
NOT_ALLOWED = 405
TOO_SLOW = 408
STOP = 409
LENGTH_REQUIRED = 411
TOO_LARGE = 413
UNSUPPORTED = 415
TOO_EARLY = 425
HEAD_TOO_LARGE = 431
FAILED = 500
LATER = 503


class RefusedError(Exception):
    """``status`` is one of those above; ``reason`` is told to the launcher."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status}: {reason}")
        self.status = status
        self.reason = reason
