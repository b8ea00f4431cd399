"""A kubelet that comes back after an outage of the API server, later than others."""

from __future__ import annotations

from dataclasses import replace

from fixtures.observing import Watched, ask_all
from railwright_operator.watch import node_leases
from railwright_scheduler.attempt.assessment import Ongoing
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
