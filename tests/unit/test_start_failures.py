"""Volumes and networks that pods do not get, by their events: what a job shows, and how long."""

from __future__ import annotations

from typing import Any

import pytest

from fixtures.observing import JOB, START_TIMEOUT_S, Watched
from railwright_kube import projections
from railwright_kube.core_v1 import PodEvent
from railwright_operator.watch.records import PodRecord
from railwright_operator.watch.start_events import (
    FAILURE_LENGTH_MAX,
    REASONS,
    START_FAILURES,
    StartEvents,
)
from railwright_scheduler.attempt.causes import MESSAGE_LENGTH_MAX, CauseCode
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.starting import IMAGE_REASONS
from railwright_scheduler.model.evidence import NO_REPORT

SUMMARY = "Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], "
NO_CLAIM = (
    f"{SUMMARY}failed to process volumes=[data]: error processing PVC team/data: failed to fetch "
    'PVC from API server: persistentvolumeclaims "data" not found'
)
NO_CONFIG_MAP = 'MountVolume.SetUp failed for volume "settings" : configmap "settings" not found'
NO_CAUSE = (
    f"{SUMMARY}failed to process volumes=[]: timed out waiting for the condition",
    f"{SUMMARY}failed to process volumes=[]: context deadline exceeded",
)


def event(reason: str, version: int, message: str = "", *, namespace: str = "team") -> PodEvent:
    """An event of the second pod."""
    raw: dict[str, Any] = {
        "metadata": {"uid": f"e{version}", "name": "e", "resourceVersion": str(version)},
        "involvedObject": {"namespace": namespace, "uid": "uid-1"},
        "reason": reason,
        "message": message,
    }
    return projections.converted(raw, PodEvent)


@pytest.fixture
def seen() -> Watched:
    """A gang of two whose second pod has no container yet."""
    watched = Watched(phase=Phase.STARTING)
    watched.pod(1, phase="Pending")
    return watched


def test_mount_failure_names_the_pod_and_the_cause(seen: Watched) -> None:
    for version, reason in enumerate(START_FAILURES, start=5):
        seen.start_events.read(event(reason, version, NO_CLAIM))
        assert seen.rank(1).waiting == f"{reason}: pod job-worker-1-1: {NO_CLAIM}"
    assert seen.rank(1).images == NO_REPORT
    assert seen.rank(0).waiting == ""


def test_start_that_times_out_has_the_mount_failure(seen: Watched) -> None:
    """The attempt ends with the same cause as before, and counts the same."""
    seen.run_cycle()
    seen.start_events.read(event("FailedMount", 5, NO_CLAIM))
    assert not seen.run_cycle(after_s=START_TIMEOUT_S).ledger.entries
    found = seen.cause(after_s=1)
    assert (found.code, found.counted) == (CauseCode.START_TIMED_OUT, True)
    assert found.message.endswith(f": 0, 1 (FailedMount: pod job-worker-1-1: {NO_CLAIM})")


def test_pull_proves_that_volumes_are_mounted(seen: Watched) -> None:
    """In whatever order the watches deliver these events."""
    for reason in ("Pulling", "Pulled"):
        seen = Watched(phase=Phase.STARTING)
        seen.pod(1, phase="Pending")
        seen.start_events.read(event("FailedMount", 5, NO_CLAIM))
        seen.start_events.read(event(reason, 7, 'Container image "a:1"'))
        assert seen.rank(1).waiting == ""
        seen.start_events.read(event("FailedMount", 6, NO_CLAIM))
        assert seen.rank(1).waiting == ""


def test_container_proves_that_volumes_are_mounted(seen: Watched) -> None:
    """The report of its pull may be lost."""
    seen.start_events.read(event("FailedMount", 5, NO_CLAIM))
    before = seen.pods.of((JOB, 1))[1]
    exists = {"name": "main", "containerID": "containerd://1", "state": {"running": {}}}
    after = seen.pod(1, phase="Pending", containerStatuses=[exists])
    seen.start_events.pod_changed(before, after)
    assert seen.rank(1).waiting == ""
    started = seen.pod(1, phase="Running")
    seen.start_events.pod_changed(after, started)
    assert repr(seen.start_events) == "<StartEvents pods=0>"


def test_container_that_waits_comes_before_an_old_mount_failure(seen: Watched) -> None:
    seen.start_events.read(event("FailedMount", 5, NO_CLAIM))
    state = {"waiting": {"reason": "ErrImagePull", "message": "no route"}}
    seen.pod(1, phase="Pending", containerStatuses=[{"name": "main", "state": state}])
    assert seen.rank(1).waiting == "ErrImagePull: no route"


def test_newest_mount_failure_counts(seen: Watched) -> None:
    seen.start_events.read(event("FailedMount", 6, NO_CONFIG_MAP))
    seen.start_events.read(event("FailedMount", 5, NO_CLAIM))
    assert seen.rank(1).waiting.endswith(NO_CONFIG_MAP)


@pytest.mark.parametrize("summary", NO_CAUSE)
def test_summary_of_a_kubelet_does_not_hide_the_cause(seen: Watched, summary: str) -> None:
    seen.start_events.read(event("FailedMount", 5, summary))
    assert seen.rank(1).waiting.endswith(summary)
    seen.start_events.read(event("FailedMount", 6, NO_CONFIG_MAP))
    seen.start_events.read(event("FailedMount", 7, summary))
    assert seen.rank(1).waiting.endswith(NO_CONFIG_MAP)


def test_mount_failures_of_other_namespaces_are_not_kept(seen: Watched) -> None:
    seen.start_events.read(event("FailedMount", 5, NO_CLAIM, namespace="else"))
    assert repr(seen.start_events) == "<StartEvents pods=0>"


@pytest.mark.parametrize(("job_uid", "kept"), [(None, 0), (JOB, 1)])
def test_events_of_pods_of_no_job_are_not_kept(job_uid: str | None, kept: int) -> None:
    """The informer has these pods for their usage of nodes."""
    pod = PodRecord("uid-1", "team", "p", 1, "n0", "Pending", False, {}, job_uid=job_uid)
    cycles: list[int] = []
    events = StartEvents(lambda _: pod, wake=lambda: cycles.append(1), clock=lambda: 0.0)
    events.read(event("FailedMount", 5, NO_CLAIM))
    assert (len(cycles), repr(events)) == (kept, f"<StartEvents pods={kept}>")


def test_long_mount_failure_keeps_its_beginning_and_end(seen: Watched) -> None:
    volumes = " ".join(f"volume-{number}" for number in range(10_000))
    seen.start_events.read(event("FailedMount", 5, f"unmounted volumes=[{volumes}]: not found"))
    report = seen.start_events.of("uid-1")
    assert report is not None
    assert report.blocked is not None
    message = report.blocked.message
    assert len(message) <= FAILURE_LENGTH_MAX
    assert message.startswith("unmounted volumes=[volume-0 ")
    assert message.endswith(": not found")
    seen.run_cycle()
    ended = seen.cause(after_s=START_TIMEOUT_S + 1).message
    assert len(ended) <= MESSAGE_LENGTH_MAX
    assert ended.endswith(": not found)")


def test_mount_failure_is_never_taken_for_an_image(seen: Watched) -> None:
    """The reason decides, and it is one of these; the message is any text."""
    assert not any(reason.startswith(IMAGE_REASONS) for reason in START_FAILURES)
    seen.run_cycle()
    seen.start_events.read(event("FailedMount", 5, "ErrImagePull: not found"))
    seen.start_events.read(event("ErrImagePull", 6, "not found"))
    assert "ErrImagePull" not in REASONS
    assert seen.rank(1).waiting.startswith("FailedMount: ")
    assert seen.cause(after_s=START_TIMEOUT_S + 1).code is CauseCode.START_TIMED_OUT
