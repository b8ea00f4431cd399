"""Which images the pods of starting gangs pull, by the events of their kubelets.

A kubelet reports `Pulling` and `Pulled` for each container. Nothing of an event is kept but these
two facts of pods of ours that have not started: a cluster has many more events than pods. Events
of one container are ordered by their resourceVersions, as each of the two watches may lag.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from railwright_operator.watch import excerpts
from railwright_operator.watch.excerpts import PodEvent
from railwright_operator.watch.records import PodRecord

PATH = "/api/v1/events"
EVENTS = excerpts.of(PodEvent)
PULLING, PULLED = "Pulling", "Pulled"

UNNAMED = "an image"
IMAGE_LENGTH_MAX = 255
CONTAINERS_MAX = 64
"""Of one pod; events can be written by others than kubelets."""

_IMAGE = re.compile(r'image "([^"\s]+)"')


@dataclass(frozen=True, slots=True)
class Pull:
    """What one pod pulls: ``image`` since ``since`` (RFC 3339), both empty if nothing. ``ended_s``
    is when this process saw the last pull end, None if it saw none; by the clock of the class."""

    image: str = ""
    since: str = ""
    ended_s: float | None = None


@dataclass(slots=True)
class _Container:
    """The newest version of each event, and what the newest Pulling says."""

    pulling: int = 0
    pulled: int = 0
    image: str = ""
    since: str = ""


@dataclass(slots=True)
class _PodPulls:
    containers: dict[str, _Container] = field(default_factory=dict)
    pull: Pull = field(default_factory=Pull)


class Pulls:
    """The pulls of our pods by their UIDs; feed every change of a pod to ``pod_changed``."""

    def __init__(
        self,
        pod_of: Callable[[str], PodRecord | None],
        *,
        wake: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self._pod_of = pod_of
        self._wake = wake
        self._clock = clock
        self._pods: dict[str, _PodPulls] = {}

    def __repr__(self) -> str:
        return f"<Pulls pods={len(self._pods)}>"

    @staticmethod
    def query(reason: str) -> dict[str, str]:
        """What a list or a watch of the events with this reason asks for."""
        return {"fieldSelector": f"involvedObject.kind=Pod,reason={reason}"}

    def read(self, found: PodEvent) -> None:
        """Take in an event. Nothing of it is to be held."""
        regarding = found.involved_object
        pod = self._pod_of(regarding.uid)
        # Events of a namespace can be written by its users, with any UID.
        if pod is None or pod.namespace != regarding.namespace or not _is_starting(pod):
            return
        held = self._pods.setdefault(pod.uid, _PodPulls())
        if regarding.field_path not in held.containers and len(held.containers) >= CONTAINERS_MAX:
            return
        container = held.containers.setdefault(regarding.field_path, _Container())
        version = int(found.metadata.resource_version)
        if found.reason == PULLING and version > container.pulling:
            named = _IMAGE.search(found.message)
            container.pulling = version
            container.image = (named.group(1) if named else UNNAMED)[:IMAGE_LENGTH_MAX]
            container.since = found.last_timestamp or found.event_time or ""
        elif found.reason == PULLED and version > container.pulled:
            container.pulled = version
        self._renew(held)

    def of(self, pod_uid: str) -> Pull | None:
        """What this pod pulls; the same object until that changes. None if nothing was reported."""
        held = self._pods.get(pod_uid)
        return None if held is None else held.pull

    def pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """A pod that started pulls no more; of one that is gone nothing is held."""
        if new is None:
            if old is not None:
                self._pods.pop(old.uid, None)
        elif (held := self._pods.get(new.uid)) is not None and not _is_starting(new):
            held.containers.clear()
            self._renew(held)
            if new.terminal or held.pull.ended_s is None:
                del self._pods[new.uid]

    def _renew(self, held: _PodPulls) -> None:
        going = [each for each in held.containers.values() if each.pulling > each.pulled]
        newest = max(going, key=lambda each: each.pulling, default=None)
        pull = held.pull
        if newest is not None:
            pull = replace(pull, image=newest.image, since=newest.since)
        elif pull.image:
            pull = Pull(ended_s=self._clock())
        if pull != held.pull:
            held.pull = pull
            self._wake()


def _is_starting(pod: PodRecord) -> bool:
    return pod.job_uid is not None and pod.phase in ("", "Pending")
