"""Writes of the objects of one kind, so that the trouble of one object is none of another's.

For callers that reconcile from observed state: they look again later, and write what is due then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Generic

from railwright_kube.backoff import Backoff, K, Pauses
from railwright_kube.errors import RequestFailed

logger = logging.getLogger(__name__)


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

    async def write(self, key: K, request: Coroutine[Any, Any, object]) -> bool:
        """Await this request; return whether it succeeded. A failure is logged, not raised."""
        extra = {"kind": self._kind, "object": str(key)}
        try:
            await request
        except RequestFailed as error:
            logger.info("object not written", extra=extra | {"error": str(error)})
        except Exception as error:
            logger.exception("write raised", extra=extra | {"error": str(error)})
        else:
            self._pauses.succeeded(key)
            return True
        self._pauses.failed(key)
        return False

    def forget_unless(self, is_kept: Callable[[K], bool]) -> None:
        """Forget the failures of all objects but those for which ``is_kept`` holds."""
        self._pauses.forget_unless(is_kept)
