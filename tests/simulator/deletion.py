"""What a DELETE does to an object: removal, or a mark for its finalizers and for its kubelet.

A pod is deleted gracefully: a bound one that has not ended stays until its kubelet deletes it with
a grace period of 0.
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simulator.resources import PODS, Resource

Json = dict[str, Any]

DEFAULT_GRACE_S = 30
ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Deletion:
    """The object as the DELETE marks it, and whether it is removed after that."""

    marked: Json
    removed: bool


def parse_time(text: str) -> int:
    """Seconds since the epoch of a time in metadata."""
    return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%SZ"))


def format_time(seconds: float) -> str:
    """A time as metadata has it: in RFC 3339, in whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def delete(
    resource: Resource, found: Json, options: Mapping[str, Any], *, now_s: float
) -> Deletion:
    """The effect of a DELETE with these DeleteOptions, whose preconditions hold."""
    if resource is PODS:
        graceful = _graceful(found, options, now_s)
        if graceful is not None:
            return graceful
    if not found["metadata"].get("finalizers"):
        return Deletion(found, removed=True)
    return Deletion(_marked(found, grace_s=0, now_s=now_s), removed=False)


def is_over(metadata: Mapping[str, Any]) -> bool:
    """Whether a deletion waits for nothing but finalizers."""
    return "deletionTimestamp" in metadata and not metadata.get("deletionGracePeriodSeconds")


def _graceful(pod: Json, options: Mapping[str, Any], now_s: float) -> Deletion | None:
    """The graceful deletion of a pod; None if its grace period is over."""
    metadata = pod["metadata"]
    grace_s = options.get("gracePeriodSeconds")
    if is_over(metadata):
        return None
    if "deletionTimestamp" in metadata:
        if grace_s is None or grace_s >= metadata["deletionGracePeriodSeconds"]:
            return Deletion(pod, removed=False)
        marked = _shortened(pod, grace_s, now_s)
    else:
        if grace_s is None:
            grace_s = pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
        is_ended = pod.get("status", {}).get("phase") in ENDED
        if not pod["spec"].get("nodeName") or is_ended:
            grace_s = 0
        marked = _marked(pod, grace_s=grace_s, now_s=now_s)
    is_removed = not marked["metadata"]["deletionGracePeriodSeconds"]
    return Deletion(marked, removed=is_removed and not metadata.get("finalizers"))


def _marked(found: Json, *, grace_s: int, now_s: float) -> Json:
    """The object as one that is being deleted. A later mark never extends the time."""
    metadata = dict(found["metadata"])
    if "deletionTimestamp" not in metadata and "generation" in metadata:
        metadata["generation"] += 1
    end = format_time(now_s + grace_s)
    metadata["deletionTimestamp"] = min(metadata.get("deletionTimestamp", end), end)
    metadata["deletionGracePeriodSeconds"] = grace_s
    return found | {"metadata": metadata}


def _shortened(pod: Json, grace_s: int, now_s: float) -> Json:
    """The pod with a shorter grace period, which began with the first DELETE."""
    metadata = pod["metadata"]
    began_s = parse_time(metadata["deletionTimestamp"]) - metadata["deletionGracePeriodSeconds"]
    end_s = began_s + grace_s
    if end_s < now_s:
        end_s, grace_s = int(now_s), min(grace_s, 1)
    times = {"deletionTimestamp": format_time(end_s), "deletionGracePeriodSeconds": grace_s}
    return pod | {"metadata": metadata | times}
