"""Requests in flight, at most one for each key; after a failure the key pauses, longer each time.

For callers that reconcile from observed state: they start what is due, do not wait for it, and
start it again in a later round if it is still due then.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any, Generic, NamedTuple

from railwright_kube.backoff import Backoff, K, Pauses


class _InFlight(NamedTuple):
    task: asyncio.Task[None]
    since_s: float


class RequestsInFlight(Generic[K]):
    """The requests in flight, by key.

    ``on_end(key, error)`` is called when one has ended, with what it raised, or None; it must not
    block or raise. ``clock`` is monotonic seconds; ``backoff`` has the pauses.
    """

    def __init__(
        self,
        *,
        backoff: Backoff,
        clock: Callable[[], float],
        rng: Random,
        on_end: Callable[[K, BaseException | None], None],
    ) -> None:
        self._pauses: Pauses[K] = Pauses(backoff, clock=clock, rng=rng)
        self._clock = clock
        self._on_end = on_end
        self._in_flight: dict[K, _InFlight] = {}

    def __len__(self) -> int:
        return len(self._in_flight)

    def __iter__(self) -> Iterator[K]:
        return iter(self._in_flight)

    def __contains__(self, key: K) -> bool:
        return key in self._in_flight

    def late(self, after_s: float) -> Iterator[K]:
        """The keys whose request has been in flight for longer than this."""
        since_s = self._clock() - after_s
        return (key for key, each in self._in_flight.items() if each.since_s < since_s)

    def is_due(self, key: K) -> bool:
        """Whether a request of this key may start: none is in flight, and it does not pause."""
        return key not in self._in_flight and self._pauses.over(key)

    def start(self, key: K, request: Coroutine[Any, Any, None]) -> None:
        """Start a request of a key that ``is_due``."""
        assert key not in self._in_flight, f"{key} is in flight"
        task = asyncio.create_task(request)
        self._in_flight[key] = _InFlight(task, self._clock())
        task.add_done_callback(functools.partial(self._done, key))

    def forget_unless(self, is_kept: Callable[[K], bool]) -> None:
        """Forget the failures of all keys but those for which ``is_kept`` holds."""
        self._pauses.forget_unless(is_kept)

    def _done(self, key: K, task: asyncio.Task[None]) -> None:
        del self._in_flight[key]
        if task.cancelled():
            return  # Only the end of the process cancels requests.
        error = task.exception()
        if error is None:
            self._pauses.succeeded(key)
        else:
            self._pauses.failed(key)
        self._on_end(key, error)
