"""A gang is bound whole or not at all: one step at a time, as tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures import GPU
from fixtures.attempts import FAILED, LOST, SUSPENDED, entry, gang_seen
from railwright_scheduler.attempt import gang
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.gang import BindPod, CreatePod, DeletePod, Step, WritePlacement
from railwright_scheduler.attempt.ledger import EntryState


def done(step: Step) -> list[str]:
    """The actions of a step as words."""
    words = []
    for action in step.actions:
        match action:
            case WritePlacement():
                words.append("place")
            case CreatePod():
                words.append(f"create {action.node_rank}")
            case BindPod():
                words.append(f"bind {action.pod.uid} {action.entry.nodes[action.pod.node_rank]}")
            case DeletePod():
                words.append(f"delete {action.pod.uid}")
    return words


@pytest.mark.parametrize(
    ("placed", "pods", "expected"),
    [
        (False, ". .", ["place"]),
        (True, ". .", ["create 0", "create 1"]),
        (True, "- .", ["create 1"]),
        (True, "n0 .", ["create 1"]),
        (True, "- -", ["bind u10 n0", "bind u11 n1"]),
        (True, "n0 -", ["bind u11 n1"]),
        (True, "n0 n1", []),
        (True, "n0! -", ["bind u11 n1"]),
        (True, "n0! n1", []),
    ],
)
def test_a_commit_places_creates_all_then_binds_all(
    placed: bool, pods: str, expected: list[str]
) -> None:
    step = gang.step(entry(), gang_seen(pods, placed=placed))
    assert done(step) == expected
    assert step.entry == entry()


def test_bound_gang_leaves_ledger_once_its_job_records_it() -> None:
    """The entry stays until the job's status has the attempt."""
    assert gang.step(entry(), gang_seen("n0 n1", recorded_attempt=0)).entry == entry()
    assert gang.step(entry(), gang_seen("n0 n1", recorded_attempt=1)) == Step(None)


@pytest.mark.parametrize("bound", ["", "n0"])
def test_pod_larger_than_planned_ends_commit_with_both_numbers(
    bound: str,
) -> None:
    """A webhook raised the requests; the cause has the planned and the actual amount."""
    seen = gang_seen("- -")
    larger = replace(seen.pods[0], node=bound, amounts={GPU: 9, "pods": 1})
    aborted = gang.step(entry(), replace(seen, pods=(larger, seen.pods[1]))).entry
    assert aborted is not None
    assert aborted.cause is not None
    assert aborted.cause.code is CauseCode.COMMIT_REFUSED
    words = f"pod a-worker-0-1 requests more than the job does: {GPU}: 9, planned 8"
    assert aborted.cause.message == words


@pytest.mark.parametrize(
    ("pods", "changes", "code", "message"),
    [
        ("- -", {"refusal": "quota is 1"}, CauseCode.COMMIT_REFUSED, "quota is 1"),
        (
            "n0 .",
            {"started": True},
            CauseCode.POD_DELETED,
            "the pod of node rank 1 on n1 was deleted",
        ),
        ("n0~ -", {}, CauseCode.COMMIT_REFUSED, "pod a-worker-0-1 went before its gang was bound"),
        ("-! -", {}, CauseCode.COMMIT_REFUSED, "pod a-worker-0-1 went before its gang was bound"),
        ("n7 -", {}, CauseCode.COMMIT_REFUSED, "pod a-worker-0-1 is on n7, planned was n0"),
        ("n0 n7", {}, CauseCode.COMMIT_REFUSED, "pod a-worker-1-1 is on n7, planned was n1"),
        (
            "n0 -",
            {"invalid_nodes": {"n1": "went"}},
            CauseCode.COMMIT_REFUSED,
            "node n1 went, and node rank 1 was not bound to it yet",
        ),
        (
            "n0 -",
            {"broken_topology": "its nodes are in 2 racks"},
            CauseCode.COMMIT_REFUSED,
            "its nodes are in 2 racks",
        ),
        (
            ". .",
            {"stalled_s": 60.5, "hindrance": "504"},
            CauseCode.COMMIT_TIMED_OUT,
            "0 of 2 pods were bound, and for 60 s none was made or bound; last trouble: 504",
        ),
        (
            "n0 -",
            {"stalled_s": 60.5},
            CauseCode.COMMIT_TIMED_OUT,
            "1 of 2 pods were bound, and for 60 s none was made or bound",
        ),
        ("n0 n1", {"stop": SUSPENDED}, CauseCode.SUSPENDED, "spec.suspend was set"),
    ],
)
def test_a_commit_that_cannot_end_is_aborted_with_its_reason(
    pods: str, changes: dict[str, object], code: CauseCode, message: str
) -> None:
    step = gang.step(entry(), gang_seen(pods, **changes))
    assert step.entry is not None
    assert step.entry.cause is not None
    assert (step.entry.state, step.entry.cause.code) == (EntryState.ABORTING, code)
    assert step.entry.cause.message == message
    assert not step.actions


@pytest.mark.parametrize(
    ("pods", "changes"),
    [
        ("n0 n1", {"invalid_nodes": {"n1": "went"}}),
        ("n0 n1", {"broken_topology": "its nodes are in 2 racks"}),
        ("n0 n1", {"stalled_s": 1000.0}),
        (". .", {"stalled_s": 1000.0}),
        ("n0~ n1", {}),
        ("n0 -", {"invalid_nodes": {"n0": "went"}}),
        ("n0 -", {"stalled_s": 60.0}),
    ],
)
def test_bound_or_unstarted_pods_do_not_hinder_commit(
    pods: str, changes: dict[str, object]
) -> None:
    """Only a failed request is a hindrance."""
    assert gang.step(entry(), gang_seen(pods, **changes)).entry == entry()


@pytest.mark.parametrize(
    ("pods", "recorded_end", "expected", "leaves"),
    [
        ("n0 -", 0, ["delete u10", "delete u11"], False),
        ("n0~ n1", 1, ["delete u11"], False),
        ("n0~ n1!", 1, [], False),
        ("n0! n1!", 0, [], False),
        (". .", 0, [], False),
        ("n0! .", 1, [], True),
    ],
)
def test_abort_deletes_and_leaves_when_pods_are_gone(
    pods: str, recorded_end: int, expected: list[str], leaves: bool
) -> None:
    """The entry leaves once no pod is live and the status has the end."""
    aborting = entry(cause=FAILED)
    step = gang.step(aborting, gang_seen(pods, recorded_end=recorded_end))
    assert done(step) == expected
    assert step.entry == (None if leaves else aborting)


def test_an_abort_is_never_taken_back() -> None:
    aborting = entry(cause=FAILED)
    step = gang.step(aborting, gang_seen("n0 n1", stop=SUSPENDED, recorded_attempt=1))
    assert step.entry == aborting


def test_a_recorded_abort_is_cut_short_in_a_crowded_ledger() -> None:
    aborted = entry(cause=LOST)
    crowded = gang_seen("n0~ n1~", recorded_attempt=1, crowded=True)
    assert gang.step(aborted, crowded).entry == aborted
    recorded = replace(crowded, recorded_end=1)
    assert gang.step(aborted, recorded).entry == aborted.brief != aborted
    assert gang.step(aborted, replace(recorded, crowded=False)).entry == aborted
    assert gang.step(aborted, replace(recorded, pods=())).entry is None
