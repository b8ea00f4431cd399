"""Pods with forged or stale labels: none of them is taken for a rank of an attempt."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from fixtures.observing import JOB, LEDGER, Watched, raw_job, raw_pod
from railwright_operator.watch import records
from railwright_operator.watch.pod_index import PodIndex
from railwright_operator.watch.records import PodRecord
from railwright_scheduler.attempt.assessment import Ongoing
from railwright_scheduler.attempt.ledger import Entry, EntryRole, EntryState
from railwright_scheduler.attempt.phases import Phase

UIDS = ["uid-0", "uid-1", "uid-2"]
FAILED = {"phase": "Failed", "ended": {"exitCode": 1}}
CLAIMS = [
    {"role": "evaluator"},
    {"role": "evaluator", "rank": 7},
    {"index": 0},
    {"index": 9},
    {"index": 3, "rank": 3},
    {"rank": 0},
    {"rank": 999_999_999},
    {"index": 999_999_999, "rank": 2},
]


def forged(*, role: str = "worker", index: int = 1, rank: int = 1) -> PodRecord:
    """A pod of the job whose name and labels agree, and which has failed."""
    raw = raw_pod("n1", rank, FAILED)
    labels = {
        "railwright.dev/role": role,
        "railwright.dev/node-rank": str(rank),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    raw["metadata"]["labels"] |= labels
    raw["metadata"] |= {"uid": "forged", "name": f"job-{role}-{index}-1", "resourceVersion": "9"}
    found = records.answered(raw)
    assert found.job_uid == JOB
    return found


@pytest.fixture
def seen() -> Watched:
    """A job that runs with three workers."""
    seen = Watched(num_nodes=3)
    (cached,) = seen.jobs.all()
    status = {"phase": "Running", "attempt": 1, "specHash": cached.spec_hash}
    seen.jobs.absorb(raw_job(9, 3, status))
    return seen


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_forged_pod_is_no_rank(
    seen: Watched, claim: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    pod = forged(**claim)
    seen.pods.change(None, pod)
    with caplog.at_level(logging.WARNING):
        assert isinstance(seen.verdict(), Ongoing)
        assert isinstance(seen.verdict(after_s=1.0), Ongoing)
    assert [each.uid for each in seen.pods.of((JOB, 1))] == UIDS
    assert [seen.pods.uid_of(JOB, 1, rank) for rank in range(3)] == UIDS
    assert seen.pods.uid_of(JOB, 1, pod.node_rank) != "forged"
    (logged,) = (each for each in caplog.records if each.msg == "pod is no rank of its attempt")
    assert (vars(logged)["pod"], vars(logged)["job_uid"]) == (pod.name, JOB)
    assert seen.pods.mislabelled == 1
    seen.pods.change(pod, None)
    assert seen.pods.mislabelled == 0


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_forged_pod_is_none_of_a_committing_gang(claim: dict[str, Any]) -> None:
    seen = Watched(num_nodes=3, phase=Phase.QUEUED)
    seen.pods.change(None, forged(**claim))
    nodes, roles = ("n0", "n1", "n2"), (EntryRole("worker", 3, {"pods": 1}),)
    entry = Entry(JOB, "team", "job", 1, EntryState.COMMITTING, nodes, roles)
    attempt = seen.world(LEDGER.with_entries([entry])).attempts[JOB, 1]
    assert [pod.uid for pod in attempt.pods] == UIDS
    assert seen.run_cycle(ledger=LEDGER.with_entries([entry])).ledger.entries[0].cause is None


def test_later_pod_of_a_rank_counts(seen: Watched) -> None:
    """The response to a create may arrive before the deletion of the pod with this name."""
    again = forged()
    seen.pods.change(None, again)
    assert seen.pods.mislabelled == 0
    assert seen.rank(1).crash is not None
    seen.pods.change(again, None)
    assert seen.rank(1).crash is None


def test_labels_of_an_unknown_spec_are_believed() -> None:
    """Pods of an earlier version of the spec are numbered as that was."""
    index, pod = PodIndex(lambda uid: None, lambda key: None), forged(index=0)
    index.change(None, pod)
    assert index.of((JOB, 1)) == (pod,)
