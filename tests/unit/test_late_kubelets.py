"""A kubelet that comes back after an outage of the API server, later than others."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fixtures.observing import Watched, ask_all, node_record
from railwright_operator.watch import node_leases
from railwright_scheduler.attempt.assessment import HOLD_S, Ended, Ongoing
from railwright_scheduler.attempt.causes import Cause, CauseCode
from railwright_scheduler.attempt.phases import Phase


async def test_kubelet_that_comes_back_late_keeps_its_attempt() -> None:
    """The API server was away until this leader began. One kubelet renews a second later; the other
    one waits until its request has timed out, and for its longest pause."""
    seen = Watched(phase=Phase.STARTING)
    for uid, node in tuple(seen.nodes.items()):
        seen.nodes[uid] = replace(node, ready=False)
    seen.run_cycle()
    for second in range(35):
        assert isinstance(seen.verdict(after_s=1.0), Ongoing), second
        seen.leases.renewed["n0"] = f"t{(second + 9) // 10}"
        seen.leases.renewed["n1"] = f"t{max(0, second - 7) // 10}"
        if second % node_leases.ASK_INTERVAL_S == 0:
            await ask_all(seen)


def renewed_at(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02}.000000Z"


@pytest.mark.parametrize("cut_s", [8, 10, 15, 21, 25, 30, 45, 90])
async def test_kubelets_that_were_cut_off_keep_an_attempt_that_starts(cut_s: int) -> None:
    """The gang is bound as the kubelets, and they alone, are cut off from the API server, long
    after this leader began. One of them renews as the cut ends, the other one 16 s later."""
    seen = Watched(phase=Phase.STARTING)
    seen.leases.renewed = {"n0": renewed_at(0), "n1": renewed_at(0)}
    await ask_all(seen)
    seen.now_s += 1000.0
    seen.run_cycle()
    for second in range(1, cut_s + 60):
        assert isinstance(seen.verdict(after_s=1.0), Ongoing), second
        for node, back_s in (("n0", cut_s), ("n1", cut_s + 16)):
            if second >= back_s and (second - back_s) % 10 == 0:
                seen.leases.renewed[node] = renewed_at(second)
        if second % node_leases.ASK_INTERVAL_S == 0:
            await ask_all(seen)


@pytest.mark.parametrize("cut_s", [45, 90])
async def test_launchers_of_others_make_no_cut_of_kubelets_a_loss(cut_s: int) -> None:
    """They reach the operator, so the breaker stays closed. Nodes are not Ready meanwhile; the
    first one to renew is idle."""
    seen = Watched(num_nodes=6, phase=Phase.STARTING)
    seen.nodes["uid-idle"] = node_record("idle")
    back_s = {node.name: cut_s + 4 for node in seen.nodes.values()}
    back_s |= {"idle": cut_s, "n0": cut_s + 8, "n1": cut_s + 16}
    seen.leases.renewed = dict.fromkeys(back_s, renewed_at(0))
    await ask_all(seen)
    seen.now_s += 1000.0
    seen.run_cycle()
    for second in range(1, cut_s + 60):
        for rank in range(2, 6):
            seen.heartbeat(rank)
        assert isinstance(seen.verdict(after_s=1.0), Ongoing), second
        for uid, node in tuple(seen.nodes.items()):
            is_ready = not 40 <= second < back_s[node.name] + 10
            seen.nodes[uid] = replace(node, ready=is_ready, unreachable=not is_ready)
            if second >= back_s[node.name] and (second - back_s[node.name]) % 10 == 0:
                seen.leases.renewed[node.name] = renewed_at(second)
        if second % node_leases.ASK_INTERVAL_S == 0:
            await ask_all(seen)


async def test_breaker_opens_while_no_kubelet_renews() -> None:
    """No launcher has sent a message yet, and the nodes count as Ready."""
    seen = Watched(phase=Phase.STARTING)
    for second in range(40):
        seen.verdict(after_s=1.0)
        if second % node_leases.ASK_INTERVAL_S == 0:
            await ask_all(seen)
    assert seen.world().breaker.is_open


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.RUNNING])
@pytest.mark.parametrize("is_late", [False, True])
async def test_new_leader_finds_that_all_nodes_are_dead(phase: Phase, *, is_late: bool) -> None:
    """They died before it began: no launcher sends it a message, and no kubelet renews. They are
    not Ready then, or soon after."""
    seen = Watched(phase=phase)
    if is_late:
        seen.run_cycle()
        seen.now_s += 1.0
    for uid, node in tuple(seen.nodes.items()):
        seen.nodes[uid] = replace(node, ready=False, unreachable=True)
    for second in range(int(HOLD_S) - 1):
        assert isinstance(seen.verdict(after_s=1.0), Ongoing), second
        if second % node_leases.ASK_INTERVAL_S == 0:
            await ask_all(seen)
    for _ in range(30):
        seen.run_cycle(after_s=1.0)
        await ask_all(seen)
    cause = seen.cause()
    assert (cause.code, cause.nodes) == (CauseCode.NODE_LOST, ("n0", "n1"))


async def ends_without_launchers(late_s: int, *, dead_s: float = math.inf) -> dict[int, Cause]:
    """Launchers reach the operator for 20 s and then no more; kubelets reach the API server. That
    of n3 renews so much later than it should at 36 s, or not after ``dead_s``. When the attempt
    would end within 90 s, and why."""
    seen, ends = Watched(num_nodes=4), dict[int, Cause]()
    seen.run_cycle()
    for second in range(90):
        for rank in range(4 if second < 20 else 0):
            seen.heartbeat(rank)
        for number in range(4):
            due_s = second - 2 * number
            if number == 3 and second > 30:
                due_s = second - 36 - late_s
            if due_s >= 0 and due_s % 10 == 0 and (number < 3 or second < dead_s):
                seen.leases.renewed[f"n{number}"] = renewed_at(second)
        if isinstance(verdict := seen.verdict(after_s=1.0), Ended):
            ends[second] = verdict.cause
        if second % node_leases.ASK_INTERVAL_S == 0:
            await ask_all(seen)
    return ends


@pytest.mark.parametrize("late_s", [0, 5, 10, 20])
async def test_late_renewal_ends_nothing_while_launchers_are_cut_off(late_s: int) -> None:
    """The silence of launchers whose kubelets renew shows that theirs has another cause."""
    assert await ends_without_launchers(late_s) == {}


async def test_dead_node_is_found_while_launchers_are_cut_off() -> None:
    """Once its Lease is not renewed for its whole duration."""
    ends = await ends_without_launchers(0, dead_s=25.0)
    assert 25 + 40 <= min(ends) <= 25 + 50
    assert {(cause.code, cause.nodes) for cause in ends.values()} == {
        (CauseCode.NODE_LOST, ("n3",))
    }
