"""What a launcher, a pod and a node say of one rank, and that nothing they say can break a turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright import wire
from railwright_operator.witnesses import REASON_LENGTH_MAX, WAITING_LENGTH_MAX
from railwright_scheduler.attempt.assessment import REMOVAL_S, Ongoing, PodState, Succeeded
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.phases import Phase
from worlds.observing import Watched, node_record

TERMINATED = wire.Failure(0, 143, message="ended by SIGTERM")


def ended(exit_code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    return {"exitCode": exit_code, "reason": reason, "message": message}


@pytest.mark.parametrize(
    "message",
    [
        '{"rank":null}',
        '{"rank":"zero","exit_code":3}',
        '{"rank":1e999,"exit_code":3}',
        '{"rank":0,"exit_code":Infinity}',
        '{"rank":-1,"exit_code":3}',
        '{"rank":0,"exit_code":99999999999}',
        '{"rank":0,"exit_code":3,"last_lines":"\\ud800"}',
        "[" * 4096,
        "9" * 4096,
        "Segmentation fault",
        "\ud800",
    ],
)
def test_a_termination_message_that_is_none_leaves_the_bare_exit_code(message: str) -> None:
    seen = Watched(num_nodes=1)
    seen.pod(0, phase="Failed", ended=ended(3, message))
    found = seen.cause()
    assert (found.code, found.rank, found.exit_code) == (CauseCode.RANK_FAILED, 0, 3)


def test_a_termination_message_says_which_rank_ended_and_how() -> None:
    seen = Watched(num_nodes=1)
    told = wire.Failure(0, 139, signal="SIGSEGV", last_lines="core dumped")
    seen.pod(0, phase="Failed", ended=ended(139, wire.encode(told).decode()))
    found = seen.cause()
    assert (found.rank, found.exit_code, found.signal) == (0, 139, "SIGSEGV")
    assert found.last_lines == "core dumped"


@given(st.text() | st.dictionaries(st.text(), st.text() | st.integers()).map(json.dumps))
def test_whatever_a_pod_leaves_behind_a_turn_is_taken(message: str) -> None:
    seen = Watched(num_nodes=1)
    seen.pod(0, phase="Failed", ended=ended(1, message))
    assert seen.cause().code is CauseCode.RANK_FAILED


def test_the_main_containers_end_counts_though_a_sidecar_goes_on() -> None:
    seen = Watched(num_nodes=1)
    seen.pod(0, ended=ended(0, reason="Completed"))
    assert seen.verdict() == Succeeded()
    seen = Watched(num_nodes=1)
    seen.pod(0, ended=ended(137, reason="OOMKilled"))
    assert seen.cause().code is CauseCode.OUT_OF_MEMORY


def test_a_sidecar_that_fails_after_a_good_end_is_no_failure_of_the_rank() -> None:
    seen = Watched()
    seen.pod(0, phase="Failed", ended=ended(0, reason="Completed"))
    first = seen.rank(0)
    assert (first.done, first.crash, first.pod) == (True, None, PodState.FAILED)
    assert isinstance(seen.verdict(), Ongoing)


def test_a_pod_that_failed_before_its_launcher_ran_is_the_users_to_mend() -> None:
    seen = Watched(num_nodes=1, phase=Phase.STARTING)
    seen.pod(0, phase="Failed")
    found = seen.cause()
    assert (found.code, found.exit_code) == (CauseCode.RANK_FAILED, 1)
    assert found.message.endswith("its pod failed before its main container ran")


def test_a_pod_that_its_kubelet_refused_is_no_fault_of_the_rank() -> None:
    seen = Watched(num_nodes=1, phase=Phase.STARTING)
    seen.pod(0, phase="Failed", reason="UnexpectedAdmissionError")
    found = seen.cause()
    assert found.code is CauseCode.POD_EVICTED
    assert found.message.endswith("was evicted: UnexpectedAdmissionError")


def test_a_launcher_ended_by_an_eviction_is_neither_a_success_nor_a_failure() -> None:
    seen = Watched(num_nodes=1)
    seen.turn()
    seen.beat(0, running=0, exited=1, failure=TERMINATED)
    assert isinstance(seen.verdict(after_s=REMOVAL_S / 2), Ongoing)
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    seen.pod(0, conditions=[disrupted])
    assert seen.cause().code is CauseCode.POD_EVICTED


def test_a_launcher_ended_by_anyone_else_failed() -> None:
    seen = Watched(num_nodes=1)
    seen.turn()
    seen.beat(0, running=0, exited=1, failure=TERMINATED)
    found = seen.cause(after_s=REMOVAL_S + 1)
    assert (found.code, found.exit_code) == (CauseCode.RANK_FAILED, 143)


def test_a_failure_reported_with_0_is_none() -> None:
    seen = Watched(num_nodes=1)
    seen.turn()
    seen.beat(0, failure=wire.Failure(0, 0))
    assert seen.rank().crash is None
    assert isinstance(seen.verdict(after_s=5.0), Ongoing)


def test_a_kubelets_words_are_cut_to_what_a_condition_holds() -> None:
    seen = Watched(num_nodes=1, phase=Phase.STARTING)
    waiting = {"reason": "E" * 4096, "message": "x" * 4096}
    seen.pod(0, containerStatuses=[{"name": "main", "state": {"waiting": waiting}}])
    told = seen.rank().waiting
    assert told.startswith("E" * REASON_LENGTH_MAX + ": x")
    assert len(told) == REASON_LENGTH_MAX + 2 + WAITING_LENGTH_MAX


NEWS: dict[str, Callable[[Watched], object]] = {
    "a pod failed": lambda seen: seen.pod(1, phase="Failed", ended=ended(3)),
    "a pod is being deleted": lambda seen: seen.pod(1, deleted=True),
    "a launcher was heard": lambda seen: seen.beat(1),
    "a node is gone": lambda seen: seen.nodes.pop("uid-n1"),
    "a node is not ready": lambda seen: seen.nodes.update(
        {"uid-n1": replace(node_record("n1"), ready=False)}
    ),
    "its status changed": lambda seen: seen.record(Phase.RUNNING),
}


@pytest.mark.parametrize("news", NEWS)
def test_ranks_of_a_gang_that_stands_still_are_kept_until_there_is_news(news: str) -> None:
    seen = Watched(num_nodes=3, phase=Phase.STARTING)
    seen.turn()
    before = seen.world().jobs[0].ranks
    assert seen.world().jobs[0].ranks is before
    NEWS[news](seen)
    after = seen.world().jobs[0].ranks
    assert after[1] != before[1]
    assert after[0] == before[0] or news == "its status changed"
