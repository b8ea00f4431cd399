"""Kubelet Leases of suspects: only a change counts, and only an answer can be evidence."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from railwright_operator.kube.errors import Unreachable
from railwright_operator.watch import node_leases
from railwright_operator.watch.node_leases import NodeLeaseChecker
from railwright_scheduler.attempt.breaker import SETTLE_S

DURATION_S = 40
WELL = "well"
"""A node whose kubelet renews for comparison, unless the test says other."""

LIMIT_S = DURATION_S / node_leases.RENEWALS_PER_LEASE + node_leases.SLACK_S


@dataclass
class Leases:
    """The Leases of a cluster, by node; ``silent`` is an API server that does not answer."""

    renewed: dict[str, str] = field(default_factory=dict)
    silent: bool = False
    refused: set[str] = field(default_factory=set)
    late: Callable[[], None] = lambda: None
    asked: list[str] = field(default_factory=list)
    well: bool = True
    renewals: int = 0

    async def ask(self, node: str) -> dict[str, Any] | None:
        self.asked.append(node)
        self.late()
        if self.silent or node in self.refused:
            raise Unreachable("no answer")
        if node == WELL and self.well:
            self.renewals += 1
            return {"spec": {"renewTime": str(self.renewals), "leaseDurationSeconds": DURATION_S}}
        if node not in self.renewed:
            return None
        spec = {"renewTime": self.renewed[node], "leaseDurationSeconds": DURATION_S}
        return {"spec": spec}


@dataclass
class Room:
    """A checker over those Leases, on a clock moved by hand."""

    leases: Leases = field(default_factory=Leases)
    now_s: float = 0.0
    woken: int = 0
    suspects: frozenset[str] = frozenset()
    asked_max: int = 0

    def __post_init__(self) -> None:
        self.kubelets = NodeLeaseChecker(self.leases.ask, clock=lambda: self.now_s, wake=self.wake)

    def wake(self) -> None:
        self.woken += 1

    async def watch(self, *, for_s: float) -> None:
        """Let every suspect be asked so often for so long."""
        end_s = self.now_s + for_s
        while self.now_s < end_s:
            await self.look(after_s=min(node_leases.ASK_INTERVAL_S, end_s - self.now_s))

    async def look(self, *, after_s: float = 0.0) -> None:
        """Let every suspect be asked once more, this much later."""
        self.now_s += after_s
        running = asyncio.create_task(self.kubelets.run())
        # Every answer is there at once, so its round is over within these few steps of the loop.
        for _ in range(50):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert set(self.leases.asked) >= self.suspects
        assert len(self.leases.asked) == len(set(self.leases.asked))
        self.asked_max = max(self.asked_max, len(self.leases.asked))
        self.leases.asked.clear()

    def suspect(
        self, *nodes: str, unheard: tuple[str, ...] = (), others: tuple[str, ...] = (WELL,)
    ) -> None:
        self.suspects = frozenset(nodes)
        self.kubelets.set_nodes(nodes, unheard, others)


@pytest.fixture
def room() -> Room:
    return Room(Leases(renewed={"n0": "t0", "n1": "t0"}))


async def test_lease_unrenewed_beyond_an_interval_is_stale(room: Room) -> None:
    room.suspect("n0")
    await room.look()
    await room.watch(for_s=LIMIT_S)
    assert not room.kubelets.stale("n0")
    await room.look(after_s=1)
    assert room.kubelets.stale("n0")
    assert room.woken == 1


async def test_a_lease_that_changes_is_never_stale(room: Room) -> None:
    room.suspect("n0")
    for renewal in range(10):
        room.leases.renewed["n0"] = f"t{renewal}"
        await room.watch(for_s=LIMIT_S - 1)
        assert not room.kubelets.stale("n0")
    assert room.woken == 0


async def stale(room: Room, node: str) -> None:
    """A suspect whose kubelet was seen to stop."""
    room.suspect(node)
    await room.look()
    await room.watch(for_s=LIMIT_S + 1)
    assert room.kubelets.stale(node)


async def test_a_renewal_ends_the_suspicion_at_once(room: Room) -> None:
    await stale(room, "n0")
    room.leases.renewed["n0"] = "t1"
    await room.look(after_s=2)
    assert not room.kubelets.stale("n0")
    assert room.woken == 2


async def test_an_api_server_that_does_not_answer_proves_nothing(room: Room) -> None:
    room.suspect("n0")
    await room.look()
    room.leases.silent = True
    await room.watch(for_s=10 * LIMIT_S)
    assert not room.kubelets.stale("n0")


async def test_the_first_answers_after_an_outage_are_no_evidence(room: Room) -> None:
    """No kubelet could renew meanwhile either."""
    room.suspect("n0")
    await room.look()
    await room.watch(for_s=LIMIT_S - 4)
    room.leases.silent = True
    await room.look(after_s=2)
    room.leases.silent = False
    await room.watch(for_s=LIMIT_S)
    assert not room.kubelets.stale("n0")
    await room.watch(for_s=2 * node_leases.ASK_INTERVAL_S)
    assert room.kubelets.stale("n0")


@pytest.mark.parametrize("slow_s", [0.0, node_leases.GAP_S_MAX + 1])
async def test_answers_with_a_gap_between_them_are_no_row(room: Room, slow_s: float) -> None:
    def late() -> None:
        room.now_s += slow_s

    room.suspect("n0")
    await room.look()
    await room.watch(for_s=LIMIT_S - 4)
    room.leases.late = late
    await room.look(after_s=node_leases.GAP_S_MAX + 1 - slow_s)
    room.leases.late = lambda: None
    await room.watch(for_s=4)
    assert not room.kubelets.stale("n0")


async def test_an_old_answer_is_evidence_of_nothing(room: Room) -> None:
    await stale(room, "n0")
    room.now_s += node_leases.GAP_S_MAX + 1
    assert not room.kubelets.stale("n0")


async def test_a_node_without_a_lease_is_stale_when_it_stays_without(room: Room) -> None:
    await stale(room, "n9")


async def test_who_is_no_suspect_is_not_asked_and_not_remembered(room: Room) -> None:
    await stale(room, "n0")
    room.suspect("n1")
    assert not room.kubelets.stale("n0")
    await room.look(after_s=1)
    assert repr(room.kubelets) == "<NodeLeaseChecker suspects=1 sightings=2>"


async def test_a_node_that_was_never_heard_of_is_looked_into_as_fast(room: Room) -> None:
    """But for the first half minute of a leader."""
    await room.look()
    await room.watch(for_s=SETTLE_S)
    room.suspect(unheard=("n0",))
    await room.look()
    await room.watch(for_s=LIMIT_S + 1)
    assert room.kubelets.stale("n0")
    await room.watch(for_s=LIMIT_S)
    assert room.kubelets.stale("n0")
    assert room.woken == 1


async def test_kubelet_has_time_to_come_back_after_an_outage(room: Room) -> None:
    """A launcher that was heard is evidence of its own; of one that never was there is the lease
    alone. Neither a new leader knows since when the API server answers."""
    room.suspect("n1", unheard=("n0",))
    for outage in (False, True):
        room.leases.silent = outage
        await room.look()
        room.leases.silent = False
        await room.watch(for_s=LIMIT_S + 3)
        assert room.kubelets.stale("n1")
        assert not room.kubelets.stale("n0")
        await room.watch(for_s=SETTLE_S)
        assert room.kubelets.stale("n0")


async def test_request_that_fails_alone_is_no_outage(room: Room) -> None:
    await room.look()
    await room.watch(for_s=SETTLE_S)
    room.suspect(unheard=("n0",))
    await room.look()
    room.leases.refused = {WELL}
    await room.look(after_s=2)
    room.leases.refused = set()
    await room.watch(for_s=LIMIT_S + 1)
    assert room.kubelets.stale("n0")


async def test_few_of_thousands_of_silent_nodes_are_asked_at_a_time() -> None:
    """The one that is dead is found, though all others must first have been seen to renew."""
    names = tuple(f"n{number:03}" for number in range(300))
    room = Room()
    room.suspect("silent", unheard=names)
    for second in range(0, 120, 2):
        renewed = {name: f"t{(second + place) // 10}" for place, name in enumerate(names)}
        room.leases.renewed = {**renewed, names[-1]: "t0"}
        await room.look(after_s=2)
        assert not any(room.kubelets.stale(name) for name in names[:-1])
        if room.kubelets.stale(names[-1]):
            break
    assert room.kubelets.stale(names[-1])
    assert room.asked_max == node_leases.UNHEARD_PER_ROUND_MAX + 2


async def test_nodes_whose_lease_cannot_be_read_keep_no_others_waiting() -> None:
    names = tuple(f"n{number:03}" for number in range(2 * node_leases.UNHEARD_PER_ROUND_MAX))
    room = Room()
    await room.look()
    await room.watch(for_s=SETTLE_S)
    room.suspect(unheard=names)
    room.leases.refused = set(names)
    await room.look()
    room.leases.refused = set()
    await room.look(after_s=2)
    await room.watch(for_s=LIMIT_S + 1)
    assert [name for name in names if room.kubelets.stale(name)] == list(names[len(names) // 2 :])


async def test_lease_is_not_stale_while_no_other_is_renewed(room: Room) -> None:
    """An API server that answers reads and takes no writes, or that no kubelet reaches."""
    room.leases.well = False
    room.leases.renewed[WELL] = "t0"
    room.suspect("n0")
    await room.look()
    await room.watch(for_s=10 * LIMIT_S)
    assert not room.kubelets.stale("n0")
    room.leases.renewed[WELL] = "t1"
    await room.look(after_s=2)
    assert room.kubelets.stale("n0")


async def test_renewal_before_the_row_of_answers_proves_nothing(room: Room) -> None:
    """It was made before the network failed."""
    room.suspect("n1")
    await room.watch(for_s=10)
    room.leases.well = False
    room.leases.renewed[WELL] = "t0"
    room.suspect("n0", "n1")
    await room.watch(for_s=2)
    await room.watch(for_s=2 * LIMIT_S)
    assert not room.kubelets.stale("n0")


async def test_renewing_kubelets_are_those_seen_to_renew_lately(room: Room) -> None:
    room.suspect("n0", "n1")
    for renewal in range(4):
        room.leases.renewed["n1"] = f"t{renewal}"
        await room.watch(for_s=LIMIT_S - 3)
    assert room.kubelets.renewing() == {WELL, "n1"}
    room.leases.silent = True
    await room.watch(for_s=LIMIT_S + 2)
    assert room.kubelets.renewing() == frozenset()


async def test_controls_are_few_and_from_all_over_the_cluster(room: Room) -> None:
    others = tuple(f"o{number:03}" for number in range(160))
    room.suspect("n0", others=others)
    await room.look()
    room.suspect("n0", others=others)
    assert room.asked_max == 1 + node_leases.CONTROLS_MIN
    assert repr(room.kubelets) == f"<NodeLeaseChecker suspects=1 sightings={room.asked_max}>"
    room.suspect(others=others)
    await room.look()
    assert room.asked_max == 1 + node_leases.CONTROLS_MIN
    assert repr(room.kubelets) == "<NodeLeaseChecker suspects=0 sightings=0>"
