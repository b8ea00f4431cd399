"""Events on a job: its story in order, root cause first, for ``kubectl describe``.

Posting never blocks a cycle and never fails one: events wait in a bounded queue, the oldest give
way, and what could not be posted is counted. The same about the same job is posted once in
``REPEAT_S``. While many gangs start, events are postponed for a few seconds.
"""

from __future__ import annotations

import asyncio
import collections
import datetime
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from prometheus_client import Counter

from railwright_api import names
from railwright_operator.kube import paths
from railwright_operator.kube.client import Api
from railwright_operator.kube.errors import RequestFailed
from railwright_operator.report import bounds

logger = logging.getLogger(__name__)

QUEUE_MAX = 10_000
REMEMBERED_MAX = 10_000
REPEAT_S = 600.0
POSTPONED_S_MAX = 15.0
"""No event waits longer because of gangs that start: on a busy cluster some always do."""

CONTROLLER = f"{names.GROUP}/operator"


@dataclass(frozen=True, slots=True)
class Subject:
    """The job that a story is about."""

    uid: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Story:
    """One thing that happened to a job. ``warning`` marks what a person should look at.

    ``topic`` is what makes it the same as one told before, whatever numbers its note has by now;
    none: the note itself.
    """

    subject: Subject
    reason: str
    note: str
    warning: bool = False
    topic: str | None = None


class Events:
    """The queue of stories to tell, and what was told lately."""

    def __init__(
        self, api: Api, *, instance: str, dropped: Counter, clock: Callable[[], float]
    ) -> None:
        self._api = api
        self._dropped = dropped
        self._instance = instance
        self._clock = clock
        self._waiting: collections.deque[Story] = collections.deque(maxlen=QUEUE_MAX)
        self._told: collections.OrderedDict[tuple[str, str, str], float] = collections.OrderedDict()
        self._waiting_since_s = self._postponed_until_s = clock()
        self._more = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Events waiting={len(self._waiting)} remembered={len(self._told)}>"

    def tell(self, story: Story) -> None:
        """Queue a story, unless the same was told lately."""
        said = story.note if story.topic is None else story.topic
        key = (story.subject.uid, story.reason, said)
        now_s = self._clock()
        if now_s - self._told.get(key, -REPEAT_S) < REPEAT_S:
            return
        self._told[key] = now_s
        self._told.move_to_end(key)
        while len(self._told) > REMEMBERED_MAX:
            self._told.popitem(last=False)
        if len(self._waiting) == QUEUE_MAX:
            self._dropped.inc()
        if not self._waiting:
            self._waiting_since_s = now_s
        self._waiting.append(story)
        self._more.set()

    def postpone(self, until_s: float) -> None:
        """Post nothing before this time of the clock, within ``POSTPONED_S_MAX``."""
        self._postponed_until_s = until_s

    async def run(self) -> None:
        """Post what waits until cancelled."""
        while True:
            await self._more.wait()
            self._more.clear()
            while self._waiting:
                if (pause_s := self._pause_s()) > 0:
                    await asyncio.sleep(pause_s)
                    continue
                story = self._waiting.popleft()
                try:
                    await self._api.create(
                        paths.events(story.subject.namespace), _render(story, self._instance)
                    )
                except RequestFailed as error:
                    self._dropped.inc()
                    logger.warning(
                        "event not posted",
                        extra=_context(story, error),
                    )

    def _pause_s(self) -> float:
        latest_s = self._waiting_since_s + POSTPONED_S_MAX
        return min(self._postponed_until_s, latest_s) - self._clock()


def _context(story: Story, error: Exception) -> dict[str, Any]:
    return {"job_uid": story.subject.uid, "error": str(error)}


def _render(story: Story, instance: str) -> dict[str, Any]:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        # kubectl describe shows events of this API in the order of their names.
        "metadata": {"name": f"{story.subject.name}.{time.time_ns():016x}"},
        "eventTime": now.replace("+00:00", "Z"),
        "reportingController": CONTROLLER,
        "reportingInstance": instance,
        "action": story.reason,
        "reason": story.reason,
        "note": bounds.sentence(story.note),
        "type": "Warning" if story.warning else "Normal",
        "regarding": {
            "apiVersion": f"{names.GROUP}/{names.VERSION}",
            "kind": "TrainingJob",
            "namespace": story.subject.namespace,
            "name": story.subject.name,
            "uid": story.subject.uid,
        },
    }
