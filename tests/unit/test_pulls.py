"""Image pulls by the events of kubelets: what is pulled since when, and what is kept of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fixtures.observing import JOB, START_TIMEOUT_S, Watched
from railwright_kube import projections
from railwright_kube.core_v1 import PodEvent
from railwright_operator.watch.start_events import IMAGE_LENGTH_MAX, NAME_LENGTH_MAX
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.starting import IMAGE_MISSING_S, PULL_DEADLINE_S
from railwright_scheduler.model.evidence import NO_REPORT, ObservedImages

SINCE = "2026-01-02T03:04:05Z"
NOT_FOUND = (
    'rpc error: code = NotFound desc = failed to pull and unpack image "example.com/no:1": '
    'failed to resolve reference "example.com/no:1": example.com/no:1: not found'
)
NO_HOST = (
    'failed to pull image "example.com/a:1": rpc error: code = Unknown desc = failed to do '
    "request: dial tcp: lookup example.com on 10.0.0.10:53: no such host"
)


def event(reason: str, version: int, *, rank: int = 1, **changes: Any) -> PodEvent:
    """An event of a pod's kubelet."""
    about = {"namespace": "team", "uid": f"uid-{rank}", "fieldPath": "spec.containers{main}"}
    raw = {
        "metadata": {"uid": f"e{version}", "name": "e", "resourceVersion": str(version)},
        "involvedObject": about | changes.pop("about", {}),
        "reason": reason,
        "message": 'Pulling image "example.com/train:1"',
        "lastTimestamp": SINCE,
        "eventTime": None,
    }
    return projections.converted(raw | changes, PodEvent)


@pytest.fixture
def seen() -> Watched:
    """A gang of two whose second pod has not started."""
    watched = Watched(phase=Phase.STARTING)
    watched.pod(1, phase="Pending")
    return watched


def waits(seen: Watched, reason: str, message: str = "") -> None:
    state = {"waiting": {"reason": reason, "message": message}}
    seen.pod(1, phase="Pending", containerStatuses=[{"name": "main", "state": state}])


def test_pull_is_seen_until_it_ends(seen: Watched) -> None:
    assert seen.rank(1).images == NO_REPORT
    seen.start_events.read(event("Pulling", 5))
    assert seen.rank(1).images == ObservedImages("example.com/train:1", SINCE, pulled_s=0.0)
    seen.start_events.read(event("Pulled", 6))
    seen.now_s += 7
    assert seen.rank(1).images == ObservedImages(pulled_s=7.0)
    seen.start_events.read(event("Pulling", 8))
    assert seen.rank(1).images.pulled_s == 0.0


def test_events_count_by_their_versions(seen: Watched) -> None:
    """Each reason has a watch of its own: the end of a pull may be seen before its beginning."""
    seen.start_events.read(event("Pulled", 6))
    seen.start_events.read(event("Pulling", 5))
    seen.start_events.read(event("Pulling", 5))
    assert seen.rank(1).images.pulling == ""


def test_pull_of_a_pod_that_runs_has_ended(seen: Watched) -> None:
    seen.start_events.read(event("Pulling", 5))
    before = seen.pods.of((JOB, 1))[1]
    after = seen.pod(1, phase="Running")
    seen.start_events.pod_changed(before, after)
    assert seen.rank(1).images == ObservedImages(pulled_s=0.0)
    seen.now_s += START_TIMEOUT_S
    assert seen.rank(1).images == ObservedImages(pulled_s=START_TIMEOUT_S)
    seen.start_events.pod_changed(after, None)
    assert repr(seen.start_events) == "<StartEvents pods=0>"


@pytest.mark.parametrize(
    "changes",
    [
        {"about": {"uid": "unknown"}},
        {"about": {"namespace": "else"}},
        {"rank": 0},
    ],
    ids=["unknown pod", "namespace of another", "pod that runs"],
)
def test_events_of_other_pods_are_not_kept(seen: Watched, changes: dict[str, Any]) -> None:
    seen.start_events.read(event("Pulling", 5, **changes))
    assert repr(seen.start_events) == "<StartEvents pods=0>"


def test_start_events_of_a_pod_are_bounded(seen: Watched) -> None:
    long = "x" * 100_000
    about = {"fieldPath": f"spec.containers{{{long}}}"}
    seen.start_events.read(event("Pulling", 5, about=about, message=f'Pulling image "{long}"'))
    held = seen.start_events._pods["uid-1"]
    assert (len(held.image), len(held.container)) == (IMAGE_LENGTH_MAX, NAME_LENGTH_MAX)


def test_large_image_does_not_time_out(seen: Watched) -> None:
    seen.start_events.read(event("Pulling", 5))
    for _ in range(4):
        plan = seen.run_cycle(after_s=START_TIMEOUT_S)
        assert not plan.ledger.entries
    assert 4 * START_TIMEOUT_S < PULL_DEADLINE_S
    seen.start_events.read(event("Pulled", 6))
    assert not seen.run_cycle(after_s=START_TIMEOUT_S - 1).ledger.entries
    assert seen.cause(after_s=2).code is CauseCode.START_TIMED_OUT


def test_missing_image_is_remembered_between_tries(seen: Watched) -> None:
    """Between two tries older kubelets do not repeat what the registry said."""
    for reason, message in (
        ("ErrImagePull", NOT_FOUND),
        ("ImagePullBackOff", 'Back-off pulling image "example.com/no:1"'),
        (
            "ImagePullBackOff",
            f"Back-off pulling image: ErrImagePull: {NOT_FOUND}",
        ),
    ):
        waits(seen, reason, message)
        assert not seen.run_cycle(after_s=IMAGE_MISSING_S / 3 - 1).ledger.entries
    found = seen.cause(after_s=IMAGE_MISSING_S / 3 + 3)
    assert found.code is CauseCode.IMAGE_NOT_FOUND


def test_registry_that_is_down_is_no_missing_image(seen: Watched) -> None:
    waits(seen, "ErrImagePull", NOT_FOUND)
    assert seen.rank(1).images.missing_s is not None
    waits(seen, "ErrImagePull", NO_HOST)
    assert seen.rank(1).images == NO_REPORT
    waits(seen, "ImagePullBackOff", f"Back-off pulling image: ErrImagePull: {NO_HOST}")
    assert not seen.run_cycle(after_s=IMAGE_MISSING_S + 1).ledger.entries
    assert seen.cause(after_s=START_TIMEOUT_S).code is CauseCode.IMAGE_PULL_FAILED


def test_image_without_a_valid_name_is_missing(seen: Watched) -> None:
    waits(seen, "InvalidImageName", "couldn't parse image name")
    assert seen.rank(1).images.missing_s == 0.0
    seen.run_cycle()
    assert seen.cause(after_s=IMAGE_MISSING_S + 1).code is CauseCode.IMAGE_NOT_FOUND


def test_pods_of_old_records_are_forgotten(seen: Watched) -> None:
    seen.start_events.read(event("Pulling", 5))
    pod = replace(seen.pods.of((JOB, 1))[1], phase="Failed")
    seen.start_events.pod_changed(None, pod)
    assert repr(seen.start_events) == "<StartEvents pods=0>"


def container(name: str, **status: Any) -> dict[str, Any]:
    """The status of a pod with one container that exists, and one that waits for its turn."""
    run_cycle = {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}
    return {"initContainerStatuses": [{"name": name} | status], "containerStatuses": [run_cycle]}


@pytest.mark.parametrize(
    "status",
    [
        {"containerID": "containerd://1", "state": {"running": {"startedAt": None}}},
        {"state": {"waiting": {"reason": "CreateContainerError", "message": "no volume"}}},
    ],
    ids=["runs", "not created"],
)
def test_lost_end_of_a_pull_is_seen_by_its_container(seen: Watched, status: dict[str, Any]) -> None:
    """The init container hangs, and so its pod stays pending."""
    seen.start_events.read(event("Pulling", 5, about={"fieldPath": "spec.initContainers{prepare}"}))
    assert not seen.run_cycle(after_s=2 * START_TIMEOUT_S).ledger.entries
    before = seen.pods.of((JOB, 1))[1]
    after = seen.pod(1, phase="Pending", **container("prepare", **status))
    seen.start_events.pod_changed(before, after)
    assert seen.rank(1).images == ObservedImages(pulled_s=0.0)
    assert not seen.run_cycle(after_s=START_TIMEOUT_S).ledger.entries
    assert seen.cause(after_s=1).code is CauseCode.START_TIMED_OUT


def test_lost_end_of_a_pull_is_seen_by_the_next_pull(seen: Watched) -> None:
    """A kubelet pulls the images of a pod one after the other."""
    seen.start_events.read(event("Pulling", 5))
    seen.start_events.read(event("Pulling", 7, about={"fieldPath": "spec.containers{sidecar}"}))
    seen.start_events.read(event("Pulled", 8, about={"fieldPath": "spec.containers{sidecar}"}))
    assert seen.rank(1).images == ObservedImages(pulled_s=0.0)


def test_pull_without_end_keeps_no_attempt_for_ever(seen: Watched) -> None:
    """Nor does one that is begun again and again."""
    seen.start_events.read(event("Pulling", 5))
    seen.run_cycle()
    seen.now_s += PULL_DEADLINE_S / 2
    seen.start_events.read(event("Pulling", 6))
    assert not seen.run_cycle(after_s=PULL_DEADLINE_S / 2 + START_TIMEOUT_S).ledger.entries
    found = seen.cause(after_s=1)
    assert (found.code, found.counted) == (CauseCode.IMAGE_PULL_FAILED, False)
    assert found.message.endswith("(pulling example.com/train:1)")


def test_each_container_has_time_to_be_pulled(seen: Watched) -> None:
    seen.start_events.read(event("Pulling", 5))
    seen.run_cycle()
    seen.now_s += PULL_DEADLINE_S
    seen.start_events.read(event("Pulling", 6, about={"fieldPath": "spec.containers{sidecar}"}))
    assert not seen.run_cycle(after_s=PULL_DEADLINE_S).ledger.entries


def test_container_that_is_not_created_has_time_after_its_pull(seen: Watched) -> None:
    """Its config map may be made a moment later."""
    seen.start_events.read(event("Pulling", 5))
    seen.run_cycle()
    seen.now_s += 2 * START_TIMEOUT_S
    seen.start_events.read(event("Pulled", 6))
    waits(seen, "CreateContainerConfigError", 'configmap "c" not found')
    assert not seen.run_cycle(after_s=START_TIMEOUT_S).ledger.entries
    assert seen.cause(after_s=1).code is CauseCode.START_TIMED_OUT
