"""Jobs that are being deleted, and are there for as long as finalizers of others keep them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures import GPU, node, reporting
from fixtures.attempts import entry, pods, world_of
from fixtures.reporting import Desk
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.gang import DeletePod
from railwright_scheduler.attempt.ledger import EntryState
from railwright_scheduler.cluster_state import ClusterState, DeletedAttempt, ObservedAttempt
from railwright_scheduler.plan import plan

BUSY = tuple(node(name, used={GPU: 8}) for name in ("n0", "n1"))
DELETED = DeletedAttempt("a", "team", "a", 1, ("n0", "n1"))


def state(seen: str) -> ClusterState:
    """Pods of the attempt, and nothing else of the job."""
    attempts = {("a", 1): ObservedAttempt(pods=pods(seen), placed=True)}
    return replace(world_of(nodes=BUSY, attempts=attempts), deleted=(DELETED,))


def test_attempt_of_a_job_that_is_being_deleted_is_revoked() -> None:
    """Before its pods are deleted, as any other."""
    taken = plan(state("n0 n1"))
    (revoked,) = taken.ledger.entries
    assert (revoked.key, revoked.state) == (("a", 1), EntryState.ABORTING)
    assert revoked.cause is not None
    assert revoked.cause.code is CauseCode.JOB_DELETED
    assert [type(each) for each in taken.actions] == [DeletePod, DeletePod]
    later = replace(state("n0 n1"), ledger=taken.ledger)
    assert plan(later).ledger.entries == taken.ledger.entries


def test_attempt_whose_pods_go_already_is_left_alone() -> None:
    """Those of a job that was deleted with its pods first, or whose pods ended."""
    for seen in ("n0! n1!", ""):
        taken = plan(state(seen))
        assert not taken.ledger.entries
        assert not taken.actions
    committing = replace(state("n0 -"), ledger=world_of(nodes=BUSY, entries=(entry(),)).ledger)
    assert len(plan(committing).ledger.entries) == 1


@pytest.mark.parametrize(
    ("finalizers", "status", "is_ended"),
    [
        (["example.com/backup"], {"phase": "Running", "attempt": 1}, True),
        (["foregroundDeletion"], {"phase": "Running", "attempt": 1}, True),
        (["orphan"], {"phase": "Running", "attempt": 1}, False),
        (["example.com/backup"], {"phase": "Queued"}, False),
        (["example.com/backup"], {"phase": "Failed", "attempt": 1, "endedAttempt": 1}, False),
    ],
)
def test_live_attempts_of_such_jobs_are_ended_but_of_orphans(
    finalizers: list[str], status: dict[str, object], is_ended: bool
) -> None:
    desk = Desk()
    raw = reporting.raw_job("job", status=status)
    desk.jobs.absorb(raw)
    held = desk.jobs.get("job-uid")
    assert held is not None
    desk.jobs.place(held, ("n0", "n1"))
    assert desk.jobs.deleted() == ()
    gone = {"deletionTimestamp": "2026-01-02T03:04:05Z", "finalizers": finalizers}
    raw["metadata"] |= gone | {"resourceVersion": "9"}
    desk.jobs.absorb(raw)
    expected = (DeletedAttempt("job-uid", "team", "job", 1, ("n0", "n1")),) if is_ended else ()
    assert desk.jobs.deleted() == expected
