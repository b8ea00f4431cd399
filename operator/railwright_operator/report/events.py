"""Events on a job, in order, root cause first, for ``kubectl describe``.

Posting never blocks a cycle and never fails one: events wait in a bounded queue, the oldest of the
namespace with most events give way, and what could not be posted is counted. The same about the
same job is posted once in ``REPEAT_S``. A job may post ``BURST`` events, and from then on one in
``TOKEN_S``: the others are dropped, but the end of its last attempt waits for a token. While many
gangs start, events are postponed for a few seconds.

One event of each namespace is in flight at a time: the events of a job keep their order, and a slow
admission webhook of one namespace delays no event of another.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any

from prometheus_client import Counter

from railwright_api import names
from railwright_conversion import bounds
from railwright_kube import paths
from railwright_kube.client import Api
from railwright_kube.errors import RequestFailed

logger = logging.getLogger(__name__)

QUEUE_MAX = 10_000
POSTS_MAX = 8
"""Events in flight, each of another namespace."""

REMEMBERED_MAX = 10_000
REPEAT_S = 600.0
BURST = 8
"""The events of a job that waits, starts, fails, waits again and resumes, however fast. Its outcome
needs no token."""

TOKEN_S = 20.0
POSTPONED_S_MAX = 15.0
"""The longest delay of an event by starting gangs: on a busy cluster some always start."""

CONTROLLER = f"{names.GROUP}/operator"


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event on a job, whose metadata is ``job``. ``warning`` makes its type Warning. ``is_end``
    is true for the end of an attempt.

    Two events of a job with the same reason and ``topic`` are equal, whatever numbers the note has;
    without a topic the notes are compared.
    """

    job: Mapping[str, Any]
    reason: str
    note: str
    warning: bool = False
    topic: str | None = None
    is_end: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """What is the same for equal events."""
        return self.job["uid"], self.reason, self.note if self.topic is None else self.topic


@dataclass(eq=False)
class Events:
    """The queue of events to post, the keys of recently queued ones, and the limit of each job."""

    api: Api
    _: KW_ONLY
    instance: str
    dropped: Counter
    clock: Callable[[], float]
    wall_clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._posted_ns = 0
        self._waiting: OrderedDict[str, deque[JobEvent]] = OrderedDict()
        """The events of each namespace that has some, that of the next event first."""
        self._waiting_count = 0
        self._recent: OrderedDict[tuple[str, str, str], float] = OrderedDict()
        self._full_s: OrderedDict[str, float] = OrderedDict()
        """When each job has all of its tokens again, by UID."""
        self._last_termination: dict[str, JobEvent] = {}
        """The end of the last attempt of each job that has no token for it."""
        self._waiting_since_s = self._postponed_until_s = self.clock()
        self._more = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Events waiting={self._waiting_count} remembered={len(self._recent)}>"

    def add(self, event: JobEvent) -> None:
        """Queue an event, unless an equal one was queued recently or its job has no token."""
        uid = event.job["uid"]
        now_s = self.clock()
        if now_s - self._recent.get(event.key, -REPEAT_S) < REPEAT_S:
            return
        if uid in self._last_termination or not self._takes_token(uid, now_s):
            if not event.is_end or self._last_termination.pop(uid, None) is not None:
                self.dropped.inc()
            if event.is_end:
                self._last_termination[uid] = event
            return
        self._queue(event, now_s)

    def add_late(self, now_s: float) -> None:
        """Queue the end of the last attempt of each job that has a token again."""
        for uid in [uid for uid in self._last_termination if self._takes_token(uid, now_s)]:
            self._queue(self._last_termination.pop(uid), now_s)

    def refill(self, uid: str) -> None:
        """Give a job all of its tokens, for its last events."""
        self._full_s.pop(uid, None)
        if self._last_termination.pop(uid, None) is not None:
            self.dropped.inc()

    def _takes_token(self, uid: str, now_s: float) -> bool:
        full_s = max(self._full_s.get(uid, now_s), now_s) + TOKEN_S
        if full_s - now_s > BURST * TOKEN_S:
            return False
        self._full_s[uid] = full_s
        self._full_s.move_to_end(uid)
        if len(self._full_s) > REMEMBERED_MAX:
            self._full_s.popitem(last=False)
        return True

    def _queue(self, event: JobEvent, now_s: float) -> None:
        self._recent[event.key] = now_s
        self._recent.move_to_end(event.key)
        while len(self._recent) > REMEMBERED_MAX:
            self._recent.popitem(last=False)
        if self._waiting_count == QUEUE_MAX:
            self._pop(max(self._waiting, key=lambda each: len(self._waiting[each])))
            self.dropped.inc()
        if not self._waiting:
            self._waiting_since_s = now_s
        self._waiting.setdefault(event.job["namespace"], deque()).append(event)
        self._waiting_count += 1
        self._more.set()

    def _pop(self, namespace: str) -> JobEvent:
        """Remove the oldest event of a namespace from the queue."""
        self._waiting_count -= 1
        event = self._waiting[namespace].popleft()
        if not self._waiting[namespace]:
            del self._waiting[namespace]
        return event

    def postpone(self, until_s: float) -> None:
        """Post nothing before this time of the clock, within ``POSTPONED_S_MAX``."""
        self._postponed_until_s = until_s

    async def run(self) -> None:
        """Post queued events until cancelled."""
        in_flight: set[str] = set()
        async with asyncio.TaskGroup() as posts:
            while True:
                await self._more.wait()
                self._more.clear()
                if self._waiting and (pause_s := self._pause_s()) > 0:
                    await asyncio.sleep(pause_s)
                    self._more.set()
                    continue
                while (event := self._next(in_flight)) is not None:
                    in_flight.add(event.job["namespace"])
                    posts.create_task(self._post(event, in_flight))

    def _next(self, in_flight: Collection[str]) -> JobEvent | None:
        """Remove the next event from the queue, in turn from the namespaces without one in
        flight; None if no event can be posted now."""
        if len(in_flight) == POSTS_MAX:
            return None
        namespace = next((each for each in self._waiting if each not in in_flight), None)
        if namespace is None:
            return None
        self._waiting.move_to_end(namespace)
        return self._pop(namespace)

    async def _post(self, event: JobEvent, in_flight: set[str]) -> None:
        namespace = event.job["namespace"]
        try:
            await self.api.create(paths.events(namespace), self._render(event))
        except RequestFailed as error:
            self.dropped.inc()
            extra = {"job_uid": event.job["uid"], "error": str(error)}
            logger.warning("event post failed", extra=extra)
        in_flight.remove(namespace)
        self._more.set()

    def _render(self, event: JobEvent) -> dict[str, Any]:
        unix_s = self.wall_clock()
        time = datetime.datetime.fromtimestamp(unix_s, datetime.UTC)
        # Part of the name, so each is later than the last one.
        self._posted_ns = max(self._posted_ns + 1, int(unix_s * 1e9))
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            # kubectl describe shows events of this API in the order of their names.
            "metadata": {"name": f"{event.job['name']}.{self._posted_ns:016x}"},
            "eventTime": time.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "reportingController": CONTROLLER,
            "reportingInstance": self.instance,
            "action": event.reason,
            "reason": event.reason,
            "note": bounds.sentence(event.note),
            "type": "Warning" if event.warning else "Normal",
            "regarding": {
                "apiVersion": names.API_VERSION,
                "kind": "TrainingJob",
                "namespace": event.job["namespace"],
                "name": event.job["name"],
                "uid": event.job["uid"],
            },
        }

    def _pause_s(self) -> float:
        latest_s = self._waiting_since_s + POSTPONED_S_MAX
        return min(self._postponed_until_s, latest_s) - self.clock()
