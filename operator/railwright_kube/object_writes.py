"""Writes of the objects of one kind, so that the trouble of one object is none of another's.

For callers that reconcile from observed state: they look again later, and write what is due then.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import Generic

from railwright_kube import errors
from railwright_kube.backoff import Backoff, K, Pauses

logger = logging.getLogger(__name__)

OF_ONE_OBJECT = (
    errors.BadRequestError,
    errors.ForbiddenError,
    errors.NotFoundError,
    errors.AlreadyExistsError,
    errors.ConflictError,
    errors.InvalidError,
)
"""Refusals of one object. After any other failure the next write would fail too."""


class ObjectWrites(Generic[K]):
    """After a failed write an object pauses, longer each time. ``kind`` is the plural that logs
    have; ``clock`` is monotonic seconds."""

    def __init__(
        self, kind: str, *, backoff: Backoff, clock: Callable[[], float], rng: Random
    ) -> None:
        self._kind = kind
        self._pauses: Pauses[K] = Pauses(backoff, clock=clock, rng=rng)

    def __repr__(self) -> str:
        return f"<ObjectWrites {self._kind} {self._pauses!r}>"

    def is_due(self, key: K) -> bool:
        """Whether this object may be written: it does not pause."""
        return self._pauses.over(key)

    async def write(self, key: K, request: Callable[[], Awaitable[object]]) -> bool:
        """Send this request. A failure is logged, not raised. Returns whether other writes can
        succeed now: a refusal of this object does not concern them."""
        extra, is_of_all = {"kind": self._kind, "object": str(key)}, False
        try:
            await request()
        except errors.RequestFailed as error:
            is_of_all = not isinstance(error, OF_ONE_OBJECT)
            logger.info("object not written", extra=extra | {"error": str(error)})
        except Exception as error:
            logger.exception("write raised", extra=extra | {"error": str(error)})
        else:
            self._pauses.succeeded(key)
            return True
        self._pauses.failed(key)
        return not is_of_all

    def forget_unless(self, is_kept: Callable[[K], bool]) -> None:
        """Forget the failures of all objects but those for which ``is_kept`` holds."""
        self._pauses.forget_unless(is_kept)
