"""Which attempts a cycle has the pods of: those in the ledger, and all others with pods left."""

from __future__ import annotations

from fixtures.observing import JOB, LEDGER, Watched, ask_all
from railwright_operator.watch.node_leases import ASK_INTERVAL_S
from railwright_scheduler import assume
from railwright_scheduler.attempt.breaker import SETTLE_S
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.gang import DeletePod, Pod
from railwright_scheduler.attempt.ledger import EntryState
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.cluster_state import ObservedAttempt, observed_attempts
from railwright_scheduler.model.snapshot import Unavailable


def test_pods_of_a_revoked_attempt_are_deleted_at_once() -> None:
    """In the cycle that finds its failure, and not in the next one."""
    seen = Watched()
    seen.pod(0, phase="Failed", ended={"exitCode": 1})
    seen.run_cycle()
    plan = seen.run_cycle(after_s=60.0)
    assert [each.state for each in plan.ledger.entries] == [EntryState.ABORTING]
    assert [action.pod.name for action in plan.actions if isinstance(action, DeletePod)] == [
        "job-worker-1-1"
    ]


async def test_lost_node_is_unavailable_in_the_same_cycle() -> None:
    """Its kubelet renews no lease; the node controller takes it for Ready for a while yet."""
    seen = Watched()
    await ask_all(seen)
    seen.now_s += SETTLE_S
    plan = seen.run_cycle()
    while not plan.ledger.entries:
        seen.leases.renewed["n0"] = f"t{seen.now_s // 10}"
        if seen.now_s % ASK_INTERVAL_S == 0:
            await ask_all(seen)
        plan = seen.run_cycle(after_s=1.0)
    (entry,) = plan.ledger.entries
    assert entry.cause is not None
    assert (entry.cause.code, entry.cause.nodes) == (CauseCode.NODE_LOST, ("n1",))
    left = assume.subtract_assumed(seen.world(), plan.ledger.entries)
    assert [node.unavailable for node in left] == [None, Unavailable.LOST]


def test_age_of_an_attempt_begins_again_once_it_is_over() -> None:
    seen = Watched(num_nodes=1)
    seen.world()
    seen.now_s += 50.0
    assert seen.world().attempts[JOB, 1].age_s == 0.0
    seen.record(Phase.FAILED)
    assert seen.world().attempts[JOB, 1].age_s == 0.0
    seen.now_s += 7.0
    assert seen.world().attempts[JOB, 1].age_s == 7.0


def test_attempt_is_observed_until_its_last_pod_ended() -> None:
    live, ended = (Pod("p", "p", 0, "n0", over, False, {}) for over in (False, True))
    with_pods = {
        ("a", 1): ObservedAttempt((ended, live)),
        ("a", 2): ObservedAttempt((live,)),
        ("b", 1): ObservedAttempt((ended,)),
        ("gone", 1): ObservedAttempt((live,)),
    }
    found = observed_attempts(
        LEDGER,
        with_pods,
        ended={"a": 1, "b": 1},
        add_ages=lambda _, pods: ObservedAttempt(pods, age_s=1.0),
    )
    assert {key: seen.age_s for key, seen in found.items()} == {
        ("a", 1): 1.0,
        ("a", 2): 0.0,
        ("gone", 1): 0.0,
    }
