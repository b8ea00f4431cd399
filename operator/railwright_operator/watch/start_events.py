"""Image pulls, volumes and networks of starting gangs, from the events of their pods.

A kubelet reports `Pulling` and `Pulled` for each container, `FailedMount` or `FailedMapVolume`
while it cannot mount the volumes of a pod, and `FailedCreatePodSandBox` while the pod gets no
network. `FailedAttachVolume` comes from the controller that attaches volumes to nodes.
Nothing else of events is kept, and only of pods of ours that have not started: a cluster has many
more events than pods. Events of one pod are ordered by their resourceVersions, as each of the
watches may lag.

Events can be lost: a kubelet drops those that exceed its rate, or that it cannot send. A pull is
over as well when the container exists, or when the next pull of the pod begins. A kubelet pulls
images only after it has mounted the volumes and made the sandbox with the network: the first report
of a pull, or the first container that exists, proves both.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace

from railwright_conversion import bounds
from railwright_kube import projections
from railwright_kube.core_v1 import PodEvent, Waiting
from railwright_operator.watch.records import PodRecord

PATH = "/api/v1/events"
EVENTS = projections.of(PodEvent)
PULLING, PULLED = "Pulling", "Pulled"
START_FAILURES = (
    "FailedMount",
    "FailedMapVolume",
    "FailedAttachVolume",
    "FailedCreatePodSandBox",
)
REASONS = (PULLING, PULLED, *START_FAILURES)
WATCH_S = 30
"""The API server keeps a stream open for this long to twice as long. It sends no bookmarks in one
of events, so a quiet one that lasts longer looks like a dead one."""

UNNAMED = "an image"
IMAGE_LENGTH_MAX = 255
NAME_LENGTH_MAX = 63
FAILURE_LENGTH_MAX = 512
"""Bounds in characters, as not only kubelets can write events."""

_IMAGE = re.compile(r'image "([^"\s]+)"')
_CONTAINER = re.compile(r"\{(.+)\}$")
_NO_CAUSE = re.compile(
    r"Unable to attach or mount volumes: .*"
    r": (timed out waiting for the condition|context deadline exceeded)$",
    re.DOTALL,
)
"""What a kubelet repeats every two minutes beside the cause: it lists the volumes only."""


@dataclass(frozen=True, slots=True)
class StartReport:
    """What one pod pulls: ``image`` since ``since`` (RFC 3339), both empty if nothing; ``began_s``
    is when this process saw that container's first pull begin. ``ended_s`` is when it saw the last
    pull end, None if it saw none. Both by the clock of the class. ``blocked`` is why it has
    no volumes or no network; None once it has both, or without a report."""

    image: str = ""
    since: str = ""
    began_s: float = 0.0
    ended_s: float | None = None
    blocked: Waiting | None = None


@dataclass(slots=True)
class _PodEvents:
    """The newest event of a pod of each reason, by version."""

    pulling: int = 0
    pulled: int = 0
    container: str = ""
    image: str = ""
    since: str = ""
    began_s: float = 0.0
    failed: int = 0
    failure: Waiting | None = None
    report: StartReport = field(default_factory=StartReport)

    def is_going(self, pod: PodRecord) -> bool:
        """Whether the pod pulls an image: a kubelet pulls the images of a pod one by one."""
        return pod.starting and self.pulling > self.pulled and self.container not in pod.pulled

    def has_sandbox(self, pod: PodRecord) -> bool:
        """Whether the pod has its volumes and its network."""
        return not pod.starting or bool(self.pulling or self.pulled or pod.pulled)


@dataclass(eq=False)
class StartEvents:
    """The reports of gang pods by UID. ``pod_changed`` must be called for every change of a pod."""

    pod_of: Callable[[str], PodRecord | None]
    _: KW_ONLY
    wake: Callable[[], None]
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._pods: dict[str, _PodEvents] = {}

    def __repr__(self) -> str:
        return f"<StartEvents pods={len(self._pods)}>"

    @staticmethod
    def query(reason: str) -> dict[str, str]:
        """The query for a list or a watch of the events with this reason."""
        return {"fieldSelector": f"involvedObject.kind=Pod,reason={reason}"}

    def read(self, found: PodEvent) -> None:
        """Take in an event; the informer holds no record of it."""
        regarding = found.involved_object
        pod = self.pod_of(regarding.uid)
        # A user can write events in the own namespace with any UID.
        if pod is None or pod.namespace != regarding.namespace or not _starts_for_a_job(pod):
            return
        held = self._pods.setdefault(pod.uid, _PodEvents())
        version = int(found.metadata.resource_version)
        if found.reason == PULLING and version > held.pulling:
            container = _named(_CONTAINER, regarding.field_path, "")[:NAME_LENGTH_MAX]
            if container != held.container or not held.report.image:
                held.began_s = self.clock()
            held.pulling, held.container = version, container
            held.image = _named(_IMAGE, found.message, UNNAMED)[:IMAGE_LENGTH_MAX]
            held.since = found.last_timestamp or found.event_time or ""
        elif found.reason == PULLED:
            held.pulled = max(held.pulled, version)
        elif found.reason in START_FAILURES and version > held.failed:
            held.failed = version
            if held.failure is None or not _NO_CAUSE.match(found.message):
                message = bounds.without_middle(found.message, FAILURE_LENGTH_MAX)
                held.failure = Waiting(found.reason, message)
        self._renew(held, pod)

    def of(self, pod_uid: str) -> StartReport | None:
        """The report of this pod; the same object until it changes. None without an event."""
        held = self._pods.get(pod_uid)
        return None if held is None else held.report

    def pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        """Take in a change of a pod: drop the reports of pods that started or were deleted."""
        if new is None:
            if old is not None:
                self._pods.pop(old.uid, None)
        elif (held := self._pods.get(new.uid)) is not None:
            self._renew(held, new)
            if new.terminal or not (new.starting or held.report.ended_s is not None):
                del self._pods[new.uid]

    def _renew(self, held: _PodEvents, pod: PodRecord) -> None:
        blocked = None if held.has_sandbox(pod) else held.failure
        report = replace(held.report, blocked=blocked)
        if held.is_going(pod):
            report = replace(report, image=held.image, since=held.since, began_s=held.began_s)
        elif report.image:
            report = StartReport(ended_s=self.clock())
        if report != held.report:
            held.report = report
            self.wake()


def _starts_for_a_job(pod: PodRecord) -> bool:
    """Pods of no job are cached too, for their usage of nodes."""
    return pod.starting and pod.job_uid is not None


def _named(pattern: re.Pattern[str], text: str, otherwise: str) -> str:
    found = pattern.search(text)
    return found.group(1) if found else otherwise
