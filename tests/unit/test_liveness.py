"""Liveness of one rank by launcher, pod and node; no content of theirs fails a cycle."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.observing import JOB, Watched, ask_all, node_record
from railwright import protocol
from railwright_operator.liveness import (
    REASON_LENGTH_MAX,
    WAITING_LENGTH_MAX,
)
from railwright_scheduler.attempt import hang
from railwright_scheduler.attempt.assessment import NODE_MISSING_S, REMOVAL_S, Ongoing, Succeeded
from railwright_scheduler.attempt.breaker import SETTLE_S
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.model.evidence import UNREADY_S, ObservedSteps, PodState

TERMINATED = protocol.Failure(0, 143, message="ended by SIGTERM")


def ended(exit_code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    return {"exitCode": exit_code, "reason": reason, "message": message}


def test_every_field_of_steps_reaches_the_core() -> None:
    """It is filled by name: a field of the message without its twin fails each running job."""
    sent = {each.name for each in fields(protocol.Steps)} - {"phase"}
    assert sent == {each.name for each in fields(ObservedSteps)} - {"activity", "stacks"}


def test_termination_messages_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of pods that failed together are looked at again in every scheduling cycle."""
    seen = Watched(num_nodes=2)
    message = protocol.encode(protocol.Failure(1, 3, message="out of luck")).decode()
    seen.pod(1, phase="Failed", ended=ended(3, message))
    decoded: list[bytes] = []
    decode = protocol.decode

    def counted(kind: type[protocol.Failure], data: bytes) -> protocol.Failure:
        decoded.append(data)
        return decode(kind, data)

    monkeypatch.setattr(protocol, "decode", counted)
    crash = seen.rank(1).crash
    assert crash is not None
    assert (crash.message, decoded) == ("out of luck", [])


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
def test_invalid_termination_message_leaves_exit_code(message: str) -> None:
    """The crash has the exit code without a message."""
    seen = Watched(num_nodes=1)
    seen.pod(0, phase="Failed", ended=ended(3, message))
    found = seen.cause()
    assert (found.code, found.rank, found.exit_code) == (CauseCode.RANK_FAILED, 0, 3)


def test_termination_message_has_the_rank_and_its_end() -> None:
    seen = Watched(num_nodes=1)
    reported = protocol.Failure(0, 139, signal="SIGSEGV", last_lines="core dumped")
    seen.pod(0, phase="Failed", ended=ended(139, protocol.encode(reported).decode()))
    found = seen.cause()
    assert (found.rank, found.exit_code, found.signal) == (0, 139, "SIGSEGV")
    assert found.last_lines == "core dumped"


@given(st.text() | st.dictionaries(st.text(), st.text() | st.integers()).map(json.dumps))
def test_any_termination_message_stops_no_cycle(message: str) -> None:
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


def test_kill_for_memory_is_reported_with_the_limit() -> None:
    """By the launcher where it lived on; by the kubelet where the kernel killed it too."""
    reported = protocol.Failure(0, 137, signal="SIGKILL", out_of_memory=True, memory_limit=2**29)
    seen = Watched(num_nodes=1)
    seen.pod(0, phase="Failed", ended=ended(137, protocol.encode(reported).decode()))
    found = seen.cause()
    assert (found.code, found.signal) == (CauseCode.OUT_OF_MEMORY, "SIGKILL")
    assert found.message == (
        "rank 0 on n0 was ended by SIGKILL; the kernel killed it for memory, and the limit of its "
        "container is 512Mi"
    )
    seen = Watched(num_nodes=1, memory="2Gi")
    seen.pod(0, ended=ended(137, reason="OOMKilled"))
    assert seen.cause().message.endswith("and the limit of its container is 2048Mi")
    seen = Watched(num_nodes=1)
    seen.pod(0, ended=ended(137, reason="OOMKilled"))
    assert seen.cause().message.endswith("and its container has no limit")


def test_kill_for_memory_comes_before_what_follows_from_it() -> None:
    """The peers of a killed rank lose their connections, and their launchers report that first."""
    seen = Watched()
    seen.run_cycle()
    seen.heartbeat(0)
    seen.heartbeat(
        1, running=0, failure=protocol.Failure(1, 1, last_lines="connection reset by peer")
    )
    seen.now_s += 1
    seen.pod(0, phase="Failed", ended=ended(137, reason="OOMKilled"))
    found = seen.cause()
    assert (found.code, found.rank) == (CauseCode.OUT_OF_MEMORY, 0)


def test_sidecar_failing_after_success_fails_no_rank() -> None:
    """The main container ended with 0."""
    seen = Watched()
    seen.pod(0, phase="Failed", ended=ended(0, reason="Completed"))
    first = seen.rank(0)
    assert (first.done, first.crash, first.pod) == (True, None, PodState.FAILED)
    assert isinstance(seen.verdict(), Ongoing)


def test_pod_failed_before_launcher_is_the_users_failure() -> None:
    """An init container failed."""
    seen = Watched(num_nodes=1, phase=Phase.STARTING)
    seen.pod(0, phase="Failed")
    found = seen.cause()
    assert (found.code, found.exit_code) == (CauseCode.RANK_FAILED, 1)
    assert found.message.endswith("its pod failed before its main container ran")


def test_command_that_cannot_start_states_the_reason() -> None:
    """The container runtime's message, as the launcher could leave none."""
    seen = Watched(num_nodes=1, phase=Phase.STARTING)
    why = 'exec: "/bin/sh": stat /bin/sh: no such file or directory'
    seen.pod(0, phase="Failed", ended=ended(128, reason="StartError", message=why))
    found = seen.cause()
    assert (found.code, found.exit_code) == (CauseCode.RANK_FAILED, 128)
    assert found.message.endswith(f"exited with 128: {why}")


def test_a_pod_that_its_kubelet_refused_is_no_fault_of_the_rank() -> None:
    seen = Watched(num_nodes=1, phase=Phase.STARTING)
    seen.pod(0, phase="Failed", reason="UnexpectedAdmissionError")
    found = seen.cause()
    assert found.code is CauseCode.POD_EVICTED
    assert found.message.endswith("was evicted: UnexpectedAdmissionError")


def test_launcher_ended_by_eviction_is_no_success_or_failure() -> None:
    """The cause is PodEvicted."""
    seen = Watched(num_nodes=1)
    seen.run_cycle()
    seen.heartbeat(0, running=0, exited=1, failure=TERMINATED)
    assert isinstance(seen.verdict(after_s=REMOVAL_S / 2), Ongoing)
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    seen.pod(0, conditions=[disrupted])
    assert seen.cause().code is CauseCode.POD_EVICTED


def test_a_launcher_ended_by_anyone_else_failed() -> None:
    seen = Watched(num_nodes=1)
    seen.run_cycle()
    seen.heartbeat(0, running=0, exited=1, failure=TERMINATED)
    found = seen.cause(after_s=REMOVAL_S + 1)
    assert (found.code, found.exit_code) == (CauseCode.RANK_FAILED, 143)


def test_a_failure_reported_with_0_is_none() -> None:
    seen = Watched(num_nodes=1)
    seen.run_cycle()
    seen.heartbeat(0, failure=protocol.Failure(0, 0))
    assert seen.rank().crash is None
    assert isinstance(seen.verdict(after_s=5.0), Ongoing)


def test_kubelet_message_is_cut_to_the_condition_limit() -> None:
    seen = Watched(num_nodes=1, phase=Phase.STARTING)
    waiting = {"reason": "E" * 4096, "message": "x" * 4096}
    seen.pod(0, containerStatuses=[{"name": "main", "state": {"waiting": waiting}}])
    reported = seen.rank().waiting
    assert reported.startswith("E" * REASON_LENGTH_MAX + ": x")
    assert len(reported) == REASON_LENGTH_MAX + 2 + WAITING_LENGTH_MAX


def test_node_counts_as_gone_once_it_was_seen_and_is_missing() -> None:
    seen = Watched()
    seen.nodes.pop("uid-n1")
    seen.run_cycle(after_s=NODE_MISSING_S + 1)
    assert not seen.rank(1).node_gone
    seen.nodes["uid-n1"] = node_record("n1")
    seen.run_cycle()
    seen.nodes.pop("uid-n1")
    seen.run_cycle()
    seen.run_cycle(after_s=NODE_MISSING_S)
    assert not seen.rank(1).node_gone
    seen.run_cycle(after_s=0.1)
    assert seen.rank(1).node_gone


@pytest.mark.parametrize("is_unreachable", [False, True])
@pytest.mark.parametrize("is_after_outage", [False, True])
async def test_node_whose_kubelet_stopped_has_time_to_come_back(
    is_after_outage: bool, is_unreachable: bool
) -> None:
    """After an outage all nodes are not Ready, and their kubelets live."""
    seen = Watched(phase=Phase.STARTING)
    await ask_all(seen)
    seen.now_s += SETTLE_S + 1
    seen.run_cycle()
    unready = replace(node_record("n1"), ready=False, unreachable=is_unreachable)
    seen.nodes["uid-n1"] = unready
    assert isinstance(seen.verdict(), Ongoing)
    seen.now_s += UNREADY_S
    if is_after_outage:
        seen.leases.silent = True
        await ask_all(seen)
        for _ in range(int(SETTLE_S) // 5):
            seen.heartbeat(0)
            assert isinstance(seen.verdict(after_s=5.0), Ongoing)
    seen.heartbeat(0)
    assert isinstance(seen.verdict(), Ongoing)
    cause = seen.cause(after_s=0.1)
    assert (cause.code, cause.nodes) == (CauseCode.NODE_LOST, ("n1",))


async def test_node_that_is_not_ready_counts_once_kubelets_are_back() -> None:
    """Although neither its job nor the node changes then."""
    seen = Watched(phase=Phase.STARTING)
    await ask_all(seen)
    seen.nodes["uid-n1"] = replace(node_record("n1"), ready=False, unreachable=True)
    seen.run_cycle()
    assert seen.rank(1).unready_s is None
    seen.run_cycle(after_s=SETTLE_S + 1)
    assert seen.rank(1).unready_s is not None


async def test_kubelet_that_reports_once_that_it_is_not_ready_lives() -> None:
    """Its runtime or its network plugin starts again; it reports every ten seconds."""
    seen = Watched(phase=Phase.STARTING)
    await ask_all(seen)
    seen.now_s += SETTLE_S + 1
    seen.run_cycle()
    for is_ready in (False, True, False, True):
        seen.nodes["uid-n1"] = replace(node_record("n1"), ready=is_ready)
        for _ in range(6):
            seen.heartbeat(0)
            assert isinstance(seen.verdict(after_s=5.0), Ongoing)


async def test_kubelet_that_is_not_ready_lives_beside_silent_launcher() -> None:
    """Of a running gang: its runtime starts again, and the node is too busy to send a heartbeat.
    What lasts for longer than that is a loss."""
    seen = Watched()
    await ask_all(seen)
    seen.run_cycle()
    seen.heartbeat(1)
    seen.run_cycle(after_s=1.0)
    seen.nodes["uid-n1"] = replace(node_record("n1"), ready=False)
    for second in range(int(UNREADY_S)):
        seen.heartbeat(0)
        seen.leases.renewed["n1"] = f"t{second // 10}"
        assert isinstance(seen.verdict(after_s=1.0), Ongoing), second
    seen.heartbeat(0)
    cause = seen.cause(after_s=2.0)
    assert (cause.code, cause.nodes) == (CauseCode.NODE_LOST, ("n1",))


NEWS: dict[str, Callable[[Watched], object]] = {
    "a pod failed": lambda seen: seen.pod(1, phase="Failed", ended=ended(3)),
    "a pod is being deleted": lambda seen: seen.pod(1, deleted=True),
    "a launcher was heard": lambda seen: seen.heartbeat(1),
    "a node is gone": lambda seen: seen.nodes.pop("uid-n1"),
    "a node is not ready": lambda seen: seen.nodes.update(
        {"uid-n1": replace(node_record("n1"), ready=False, unreachable=True)}
    ),
    "its status changed": lambda seen: seen.record(Phase.RUNNING),
}


@pytest.mark.parametrize("news", NEWS)
async def test_ranks_of_an_unchanged_gang_are_kept(news: str) -> None:
    """The rows are the same objects until a source changes."""
    seen = Watched(num_nodes=3, phase=Phase.STARTING)
    await ask_all(seen)
    seen.now_s += SETTLE_S + 1
    seen.run_cycle()
    before = seen.world().jobs[0].ranks
    assert seen.world().jobs[0].ranks is before
    NEWS[news](seen)
    after = seen.world().jobs[0].ranks
    if news == "a node is gone":
        seen.run_cycle(after_s=NODE_MISSING_S + 1)
        after = seen.world().jobs[0].ranks
    assert after[1] != before[1]
    assert after[0] == before[0] or news == "its status changed"


def steps(still_s: float, **changes: Any) -> protocol.Steps:
    plain = protocol.Steps(
        9, 9, (), 0, 1, still_s, 0.0, 99, 0.1, 0.1, protocol.Phase.TRAINING, False
    )
    return replace(plain, **changes)


def test_standstill_ends_the_attempt_once_stacks_are_there() -> None:
    seen = Watched()
    seen.run_cycle()
    for rank in (0, 1):
        seen.heartbeat(rank, steps=steps(59.0))
    assert seen.verdict(after_s=2.0) == Ongoing()
    for rank in (0, 1):
        seen.heartbeat(rank, steps=steps(61.0))
    assert seen.verdict() == Ongoing(wants_stacks=True)
    stack = protocol.Stack((1,), 1, answered=False, text="its process is stopped")
    seen.now_s += 2.0
    seen.heartbeat(0, steps=steps(63.0), stacks=())
    assert seen.verdict() == Ongoing(wants_stacks=True)
    seen.heartbeat(1, steps=steps(63.0), stacks=(stack,))
    found = seen.cause()
    assert (found.code, found.rank, found.nodes) == (CauseCode.HUNG, 1, ())
    assert found.last_lines == "rank 1: no answer, its process is stopped"


def test_steps_that_go_on_withdraw_the_question() -> None:
    seen = Watched(num_nodes=1)
    seen.run_cycle()
    seen.heartbeat(0, steps=steps(61.0))
    assert seen.verdict() == Ongoing(wants_stacks=True)
    seen.now_s += 2.0
    seen.heartbeat(0, steps=steps(0.5), stacks=())
    assert seen.verdict(after_s=1.0) == Ongoing()
    view = seen.sessions.attempt(JOB, 1)
    assert view is not None
    assert view.stacks_since_s is None


def test_new_leader_waits_an_hour_for_a_launcher() -> None:
    """The launcher sent messages to the leader before, and is stopped; its kubelet renews."""
    seen = Watched(num_nodes=1)
    seen.run_cycle()
    assert seen.verdict(after_s=hang.EVALUATING_S) == Ongoing(suspected=(0,))
    assert seen.verdict(after_s=1.0) == Ongoing(suspected=(0,), wants_stacks=True)
    seen.now_s += hang.STACKS_S
    found = seen.cause()
    assert (found.code, found.nodes) == (CauseCode.HUNG, ())
    assert found.message.endswith(": no heartbeat from node rank 0 on n0")


def test_launcher_that_comes_back_late_keeps_its_attempt() -> None:
    seen = Watched(num_nodes=1)
    seen.run_cycle()
    assert seen.verdict(after_s=hang.EVALUATING_S + 1) == Ongoing((0,), wants_stacks=True)
    seen.heartbeat(0)
    assert seen.verdict() == Ongoing()
    seen.heartbeat(0, steps=steps(0.1))
    assert seen.verdict() == Ongoing()


def test_frozen_launcher_with_one_reporting_rank_is_found() -> None:
    """The ranks of the other node report nothing, and wait."""
    seen = Watched(num_nodes=2)
    seen.run_cycle()
    nothing = protocol.Steps(0, 0, (), 0, 0, 9e4, 0.0, 0, 0.0, 0.0, protocol.Phase.STARTING, False)
    seen.heartbeat(0, steps=steps(2.0))
    seen.now_s += hang.EVALUATING_S - 1
    seen.heartbeat(1, steps=nothing)
    assert seen.verdict() == Ongoing((0,), wants_stacks=True)
    seen.now_s += hang.STACKS_S
    seen.heartbeat(1, steps=nothing, stacks=())
    found = seen.cause()
    assert found.code is CauseCode.HUNG
    assert found.message.endswith(": no heartbeat from node rank 0 on n0")
