"""Causes are distinguished by two sources, and none is assigned while one is missing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fixtures.attempts import crash, rank
from railwright.ranks import ENDING
from railwright_scheduler.attempt import assessment
from railwright_scheduler.attempt.assessment import REMOVAL_S, VERDICT_S, Ended, Ongoing, Succeeded
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.model.evidence import ObservedRank, PodState


def assess(
    *ranks: ObservedRank, started: bool = True, age_s: float = 100.0
) -> assessment.Assessment:
    return assessment.assess(ranks, started=started, age_s=age_s)


def cause(*ranks: ObservedRank, started: bool = True, age_s: float = 100.0) -> Cause:
    verdict = assess(*ranks, started=started, age_s=age_s)
    assert isinstance(verdict, Ended), verdict
    return verdict.cause


def test_ranks_with_heartbeats_go_on() -> None:
    assert assess(rank(0), rank(1)) == Ongoing()


def test_all_ranks_done_is_success_by_any_source() -> None:
    assert assess(rank(0, done=True), rank(1, pod=PodState.SUCCEEDED)) == Succeeded()
    assert assess(rank(0, done=True), rank(1)) == Ongoing()
    assert assess(rank(0, pod=PodState.MISSING, done=True), rank(1, done=True)) == Succeeded()


@pytest.mark.parametrize(
    ("taken", "code"),
    [
        ({"deleting": True}, CauseCode.POD_DELETED),
        ({"evicted": "TerminationByKubelet"}, CauseCode.POD_EVICTED),
    ],
)
def test_removed_pod_succeeded_only_if_kubelet_reports_it(
    taken: dict[str, object], code: CauseCode
) -> None:
    assert cause(rank(0, done=True, **taken)).code is code
    assert cause(rank(0, done=True, **taken), rank(1)).code is code
    assert assess(rank(0, done=True, pod=PodState.SUCCEEDED, **taken)) == Succeeded()


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("OutOfcpu", CauseCode.POD_EVICTED),
        ("NodeShutdown", CauseCode.POD_EVICTED),
        ("SysctlForbidden", CauseCode.POD_REJECTED),
        ("TopologyAffinityError", CauseCode.POD_REJECTED),
    ],
)
def test_rejection_for_what_the_spec_requests_spends_the_budget(
    reason: str, code: CauseCode
) -> None:
    """Else the job takes nodes again and again, and all others wait for it."""
    found = cause(rank(0), rank(1, pod=PodState.FAILED, evicted=reason))
    assert (found.code, found.node) == (code, "n1")
    assert found.counted is (code is CauseCode.POD_REJECTED)
    assert found.message.endswith(reason)


def test_stop_signals_are_those_that_end_a_launcher() -> None:
    assert {128 + each: each.name for each in ENDING} == assessment.STOP_SIGNALS


@pytest.mark.parametrize(
    "ended",
    [{"signal": "SIGTERM"}, {"exit_code": 143}, {"signal": "SIGQUIT"}, {"exit_code": 131}],
)
def test_rank_ended_by_stop_signal_waits_for_deletion(
    ended: dict[str, object],
) -> None:
    """The deletion of the pod may appear in the API only later."""
    early, late = (killed(1, age_s, **ended) for age_s in (REMOVAL_S, REMOVAL_S + 0.5))
    # What its peers make of it counts no earlier.
    assert assess(early, rank(0)) == assess(early, crash(0, age_s=REMOVAL_S + 1)) == Ongoing()
    assert cause(late, rank(0)).code is CauseCode.RANK_FAILED
    assert cause(replace(early, deleting=True), crash(0, age_s=9.0)).counted is False
    assert cause(replace(early, evicted="taint"), rank(0)).code is CauseCode.POD_EVICTED


def test_one_sigterm_after_another_delays_no_verdict_for_good() -> None:
    found = cause(killed(1, age_s=VERDICT_S + 1, exit_code=143), killed(0, age_s=1, exit_code=143))
    assert (found.code, found.rank) == (CauseCode.RANK_FAILED, 1)


def test_a_sidecar_that_fails_after_its_rank_is_done_is_no_crash() -> None:
    assert assess(crash(0, age_s=9.0, done=True), rank(1)) == Ongoing()
    found = cause(crash(0, age_s=9.0, done=True), crash(1, age_s=2.0))
    assert found.rank == 1


def test_texts_of_pods_and_launchers_are_cut() -> None:
    reported = {"message": "m" * 5000, "last_lines": "x" * 5000 + "end"}
    found = cause(killed(0, age_s=9.0, exit_code=1, **reported))
    assert found.message.startswith("rank 0 on n0 exited with 1: mmm")
    assert found.message.endswith("m…")
    assert (len(found.message), len(found.last_lines)) == (1024, 512)
    assert found.last_lines.endswith("xend")
    assert cause(killed(0, age_s=9.0, signal="S" * 5000)).signal == "S" * 32


def killed(node_rank: int, age_s: float, **ended: Any) -> ObservedRank:
    found = crash(node_rank, age_s=age_s)
    assert found.crash is not None
    return replace(found, crash=replace(found.crash, **ended))


def test_a_silent_launcher_alone_is_only_suspected() -> None:
    assert assess(rank(0), rank(1, silent_s=300.0)) == Ongoing(suspected=(1,))


@pytest.mark.parametrize(
    ("witness", "message"),
    [
        ({"lease_stale": True}, "silent for 7 s and its kubelet missed its renewal"),
        ({"unready_s": 0.0}, "silent for 7 s and it is not Ready"),
        ({"node_gone": True}, "the node is gone from the API"),
    ],
)
def test_a_silent_launcher_and_a_silent_kubelet_are_a_lost_node(
    witness: dict[str, object], message: str
) -> None:
    found = cause(rank(0), rank(1, silent_s=7.0, **witness))
    assert (found.code, found.nodes, found.counted) == (CauseCode.NODE_LOST, ("n1",), False)
    assert found.message.endswith(message)


@pytest.mark.parametrize(
    "witness", [{"lease_stale": True}, {"unready_s": 500.0}, {"node_gone": True}]
)
def test_heartbeat_overrides_the_node_state_in_the_api(witness: dict[str, object]) -> None:
    assert assess(rank(0), rank(1, silent_s=6.0, **witness)) == Ongoing()


@pytest.mark.parametrize(
    ("unready_s", "node_gone", "lost"),
    [(40.0, False, False), (40.5, False, True), (None, True, True), (None, False, False)],
)
def test_silent_new_launcher_is_lost_by_unready_kubelet(
    unready_s: float | None, node_gone: bool, lost: bool
) -> None:
    """A launcher without any message is lost once its node has been unready for long."""
    mute = rank(1, silent_s=None, unready_s=unready_s, node_gone=node_gone)
    verdict = assess(rank(0), mute, started=False)
    assert isinstance(verdict, Ended) is lost


def test_silent_new_launcher_is_lost_by_expired_lease() -> None:
    """A launcher without any message is lost once its node's lease is stale."""
    found = cause(rank(0), rank(1, silent_s=None, lease_stale=True), started=False)
    assert (found.code, found.nodes, found.counted) == (CauseCode.NODE_LOST, ("n1",), False)
    assert found.message.endswith("its launcher sent no message and its kubelet missed its renewal")


def test_all_lost_nodes_are_named_at_once() -> None:
    lost = [rank(r, silent_s=9.0, lease_stale=True) for r in (2, 1)]
    found = cause(rank(0), *lost)
    assert found.nodes == ("n1", "n2")
    assert "(and 1 more)" in found.message


def test_crash_waits_for_later_heartbeats_of_all_others() -> None:
    assert assess(crash(0, age_s=2.0), rank(1, silent_s=3.0)) == Ongoing(suspected=(1,))
    assert cause(crash(0, age_s=2.0), rank(1, silent_s=1.0)).code is CauseCode.RANK_FAILED


def test_crash_waits_no_longer_than_silent_node_verdict() -> None:
    """A silent peer delays the assessment of a crash only until it is assessed itself."""
    assert isinstance(assess(crash(0, age_s=25.0), rank(1, silent_s=26.0)), Ongoing)
    assert cause(crash(0, age_s=25.5), rank(1, silent_s=26.0)).code is CauseCode.RANK_FAILED


def test_dead_node_is_blamed_and_not_its_peers() -> None:
    """Peers crash when the node dies; the cause is NodeLost."""
    dead = rank(1, silent_s=9.0, lease_stale=True)
    assert cause(crash(0, age_s=8.0), dead, crash(2, age_s=7.0)).code is CauseCode.NODE_LOST


def test_first_crash_is_the_cause() -> None:
    found = cause(crash(0, age_s=2.0), crash(1, age_s=3.0), crash(2, age_s=3.0))
    assert (found.rank, found.exit_code, found.node) == (1, 1, "n1")
    assert found.message == "rank 1 on n1 exited with 1"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"pod": PodState.MISSING}, CauseCode.POD_DELETED),
        ({"deleting": True}, CauseCode.POD_DELETED),
        ({"evicted": "EvictionByEvictionAPI"}, CauseCode.POD_EVICTED),
        ({"pod": PodState.FAILED}, CauseCode.POD_EVICTED),
    ],
)
def test_a_pod_that_went_is_no_fault_of_its_rank(
    change: dict[str, object], code: CauseCode
) -> None:
    found = cause(crash(0, age_s=9.0), rank(1, **change))
    assert (found.code, found.counted) == (code, False)


def test_start_time_out_names_missing_ranks() -> None:
    mute = rank(1, silent_s=None, pod=PodState.PENDING, waiting="CreateContainerError: no secret")
    assert assess(rank(0), mute, started=False, age_s=600.0) == Ongoing()
    found = cause(rank(0), mute, started=False, age_s=600.5)
    assert (found.code, found.counted) == (CauseCode.START_TIMED_OUT, True)
    assert found.message == (
        "1 of 2 node ranks never reached the barrier in 600 s: 1 (CreateContainerError: no secret)"
    )
