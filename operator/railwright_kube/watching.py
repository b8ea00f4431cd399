"""Construct the informers of a process: what all of them share, and what a change calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from types import MappingProxyType
from typing import TypeVar

from railwright_kube.client import Api
from railwright_kube.metrics import WatchMetrics
from railwright_kube.projections import F, Projection
from railwright_kube.reflector import WATCH_S, Record
from railwright_kube.verified import VerifiedReflector

R = TypeVar("R", bound=Record)
Changed = Callable[[R | None, R | None], None]
Wakes = Callable[[R | None, R | None], bool]
"""Whether a change calls ``wake``."""


@dataclass(frozen=True, slots=True)
class Watching:
    """Constructs informers. Most changes call ``wake``. ``clock`` is monotonic seconds; ``rng``
    makes a random source for retries."""

    api: Api
    series: WatchMetrics
    clock: Callable[[], float]
    rng: Callable[[], Random]
    wake: Callable[[], None] = lambda: None

    def reflect(
        self,
        path: str,
        projection: Projection[F],
        parse: Callable[[F], R | None],
        *changed: Changed[R],
        wakes: Wakes[R] = lambda old, new: True,
        lasting: Callable[[R, R], R] = lambda held, news: news,
        query: Mapping[str, str] = MappingProxyType({}),
        watch_s: int = WATCH_S,
    ) -> VerifiedReflector[R]:
        """An informer of the objects under ``path``. A change calls these callbacks, and then
        ``wake`` if ``wakes`` holds of it."""
        return VerifiedReflector(
            self.api,
            path,
            projection=projection,
            parse=parse,
            on_change=self._on_change(changed, wakes),
            lasting=lasting,
            metrics=self.series,
            clock=self.clock,
            rng=self.rng(),
            query=query,
            watch_s=watch_s,
        )

    def _on_change(self, changed: Iterable[Changed[R]], wakes: Wakes[R]) -> Changed[R]:
        """Combine these callbacks, and call ``wake`` if ``wakes`` holds."""

        def notify(old: R | None, new: R | None) -> None:
            is_due = wakes(old, new)
            for each in changed:
                each(old, new)
            if is_due:
                self.wake()

        return notify
