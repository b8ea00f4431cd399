"""Image pulls of starting gangs, from the events of their kubelets.

A kubelet reports `Pulling` and `Pulled` for each container. Nothing of an event is kept but these
two facts of pods of ours that have not started: a cluster has many more events than pods. Events
of one pod are ordered by their resourceVersions, as each of the two watches may lag.

Events can be lost: a kubelet drops those that exceed its rate, or that it cannot send. A pull is
over as well when the container exists, or when the next pull of the pod begins.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from railwright_kube import projections
from railwright_kube.core_v1 import PodEvent
from railwright_operator.watch.records import PodRecord

PATH = "/api/v1/events"
EVENTS = projections.of(PodEvent)
PULLING, PULLED = "Pulling", "Pulled"
WATCH_S = 30
"""The API server keeps a stream open for this long to twice as long. It sends no bookmarks in one
of events, so a quiet one that lasts longer looks like a dead one."""

UNNAMED = "an image"
IMAGE_LENGTH_MAX = 255
NAME_LENGTH_MAX = 63
"""A bound, as not only kubelets can write events."""

_IMAGE = re.compile(r'image "([^"\s]+)"')
_CONTAINER = re.compile(r"\{(.+)\}$")


@dataclass(frozen=True, slots=True)
class Pull:
    """What one pod pulls: ``image`` since ``since`` (RFC 3339), both empty if nothing; ``began_s``
    is when this process saw that container's first pull begin. ``ended_s`` is when it saw the last
    pull end, None if it saw none. Both by the clock of the class."""

    image: str = ""
    since: str = ""
    began_s: float = 0.0
    ended_s: float | None = None


@dataclass(slots=True)
class _PodPulls:
    """The newest Pulling and the newest Pulled event of a pod, by version."""

    pulling: int = 0
    pulled: int = 0
    container: str = ""
    image: str = ""
    since: str = ""
    began_s: float = 0.0
    pull: Pull = field(default_factory=Pull)

    def is_going(self, pod: PodRecord) -> bool:
        """Whether the pod pulls an image: a kubelet pulls the images of a pod one by one."""
        return pod.starting and self.pulling > self.pulled and self.container not in pod.pulled


class Pulls:
    """The pulls of gang pods by UID. ``pod_changed`` must be called for every change of a pod."""

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
        """The query for a list or a watch of the events with this reason."""
        return {"fieldSelector": f"involvedObject.kind=Pod,reason={reason}"}

    def read(self, found: PodEvent) -> None:
        """Take in an event; the informer holds no record of it."""
        regarding = found.involved_object
        pod = self._pod_of(regarding.uid)
        # A user can write events in the own namespace with any UID.
        if pod is None or pod.namespace != regarding.namespace or not pod.starting:
            return
        held = self._pods.setdefault(pod.uid, _PodPulls())
        version = int(found.metadata.resource_version)
        if found.reason == PULLING and version > held.pulling:
            container = _named(_CONTAINER, regarding.field_path, "")[:NAME_LENGTH_MAX]
            if container != held.container or not held.pull.image:
                held.began_s = self._clock()
            held.pulling, held.container = version, container
            held.image = _named(_IMAGE, found.message, UNNAMED)[:IMAGE_LENGTH_MAX]
            held.since = found.last_timestamp or found.event_time or ""
        elif found.reason == PULLED:
            held.pulled = max(held.pulled, version)
        self._renew(held, pod)

    def of(self, pod_uid: str) -> Pull | None:
        """The pull of this pod; the same object until it changes. None without an event."""
        held = self._pods.get(pod_uid)
        return None if held is None else held.pull

    def pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Take in a change of a pod: drop the pulls of pods that started or were deleted."""
        if new is None:
            if old is not None:
                self._pods.pop(old.uid, None)
        elif (held := self._pods.get(new.uid)) is not None:
            self._renew(held, new)
            if new.terminal or not (new.starting or held.pull.ended_s is not None):
                del self._pods[new.uid]

    def _renew(self, held: _PodPulls, pod: PodRecord) -> None:
        pull = held.pull
        if held.is_going(pod):
            pull = replace(pull, image=held.image, since=held.since, began_s=held.began_s)
        elif pull.image:
            pull = Pull(ended_s=self._clock())
        if pull != held.pull:
            held.pull = pull
            self._wake()


def _named(pattern: re.Pattern[str], text: str, otherwise: str) -> str:
    found = pattern.search(text)
    return found.group(1) if found else otherwise
