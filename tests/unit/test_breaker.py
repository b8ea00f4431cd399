"""A cut control plane ends nothing; dead nodes are found beside live ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from fixtures.attempts import crash, rank
from railwright_scheduler.attempt import assessment, breaker
from railwright_scheduler.attempt.assessment import HOLD_S, Ended, Ongoing
from railwright_scheduler.attempt.breaker import CLOSED, SETTLE_S, Breaker
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.model.evidence import Crash, ObservedRank

LEASE_STALE_S = 17.0
"""A lease is stale 13 s after a launcher that has been silent for 4 s was first suspected."""

UNREADY_S = 50.0
TICK_S = 1.0
MISSING = {"silent_s": 30.0, "lease_stale": True}


class Site:
    """One-node jobs, one on each node; what cuts and deaths do to them, second by second.

    A node that is cut or dead is silent; its lease is stale after 17 s, and it is not Ready after
    50 s. ``back_s`` says how long after the heal a node is heard again.
    """

    def __init__(self, nodes: int, *, idle: int = 0) -> None:
        self.nodes = [f"n{number}" for number in range(nodes)]
        self.idle = [f"idle{number}" for number in range(idle)]
        self.breaker = CLOSED
        self.now_s = 0.0
        self.unheard_since_s: dict[str, float] = {}
        self.lost: dict[str, float] = {}

    def cut(self, nodes: Collection[str]) -> None:
        for node in nodes:
            self.unheard_since_s.setdefault(node, self.now_s)

    def heal(self, nodes: Collection[str]) -> None:
        for node in nodes:
            self.unheard_since_s.pop(node, None)

    def pass_time(self, for_s: float) -> None:
        end_s = self.now_s + for_s
        while self.now_s < end_s:
            self.now_s += TICK_S
            self._evaluate()

    def _evaluate(self) -> None:
        ranks = {node: self._rank(node) for node in self.nodes if node not in self.lost}
        renewing = [node for node in self.idle if node not in self.unheard_since_s]
        self.breaker = breaker.assess(
            self.breaker,
            ranks.values(),
            renewing=renewing,
            none_renews=False,
            passed_s=TICK_S,
        )
        for node, seen in ranks.items():
            verdict = assess(seen, cut=self.breaker.is_open)
            if isinstance(verdict, Ended):
                assert verdict.cause.code is CauseCode.NODE_LOST
                self.lost[node] = self.now_s

    def _rank(self, node: str) -> ObservedRank:
        silent_s = self.now_s - self.unheard_since_s.get(node, self.now_s - 1.0)
        return replace(
            rank(0, node=node),
            silent_s=silent_s,
            lease_stale=silent_s > LEASE_STALE_S,
            unready_s=silent_s - UNREADY_S if silent_s > UNREADY_S else None,
        )


def assess(*ranks: ObservedRank, cut: bool = True, started: bool = True) -> assessment.Assessment:
    return assessment.assess(ranks, started=started, age_s=10_000.0, cut=cut)


def heal_slowly(site: Site, nodes: Sequence[str], *, within_s: int) -> None:
    """The nodes come back one by one in this time."""
    share = len(nodes) / within_s
    for second in range(within_s):
        site.heal(nodes[int(second * share) : int((second + 1) * share)])
        site.pass_time(TICK_S)


@pytest.mark.parametrize(("cut_s", "back_s"), [(10, 5), (13, 5), (15, 5), (60, 20), (560, 20)])
@pytest.mark.parametrize("count", [2, 5, 100])
def test_cut_control_plane_ends_no_attempt(count: int, cut_s: float, back_s: int) -> None:
    site = Site(count, idle=count)
    site.cut([*site.nodes, *site.idle])
    site.pass_time(cut_s)
    assert site.lost == {}
    site.heal(site.idle)
    heal_slowly(site, site.nodes, within_s=back_s)
    site.pass_time(100.0)
    assert site.lost == {}
    assert not site.breaker.is_open


def test_cut_ends_no_attempt_of_a_lone_job() -> None:
    site = Site(1)
    site.cut(site.nodes)
    site.pass_time(60.0)
    site.heal(site.nodes)
    site.pass_time(60.0)
    assert site.lost == {}


def test_dead_nodes_are_found_after_the_cut_heals() -> None:
    """100 jobs are cut off for 60 s; 5 of their nodes died in that time."""
    site = Site(100)
    site.cut(site.nodes)
    site.pass_time(60.0)
    healed_s, dead = site.now_s, site.nodes[-5:]
    heal_slowly(site, site.nodes[:-5], within_s=20)
    site.pass_time(60.0)
    assert sorted(site.lost) == sorted(dead)
    assert max(site.lost.values()) - healed_s <= 60.0


@pytest.mark.parametrize(
    ("nodes", "idle", "dead"),
    [(100, 0, 1), (100, 0, 8), (100, 0, 50), (2, 0, 1), (1, 1, 1), (4, 0, 2), (8, 100, 8)],
)
def test_minority_of_dead_nodes_is_found_at_once(nodes: int, idle: int, dead: int) -> None:
    site = Site(nodes, idle=idle)
    site.cut(site.nodes[:dead])
    site.pass_time(30.0)
    assert site.lost == dict.fromkeys(site.nodes[:dead], LEASE_STALE_S + TICK_S)
    assert not site.breaker.is_open


def test_dead_majority_is_found_after_the_hold() -> None:
    site = Site(5)
    site.cut(site.nodes[:3])
    site.pass_time(HOLD_S)
    assert site.lost == {}
    site.pass_time(TICK_S)
    assert sorted(site.lost) == site.nodes[:3]


def test_silence_of_launchers_alone_opens_no_breaker() -> None:
    """A user can stop the launchers of most nodes; their kubelets go on."""
    quiet = [rank(0, node=f"n{number}", silent_s=13.0) for number in range(9)]
    assert breaker.assess(CLOSED, quiet, renewing=(), none_renews=False, passed_s=1.0).is_open
    assert not breaker.assess(
        CLOSED, quiet, renewing=["n3"], none_renews=False, passed_s=1.0
    ).is_open


def test_node_counts_once_and_as_alive_with_any_heartbeat() -> None:
    ranks = [rank(0, node="n0", **MISSING), rank(1, node="n0"), rank(0, node="n1", **MISSING)]
    found = breaker.assess(CLOSED, ranks, renewing=["n1", "n2"], none_renews=False, passed_s=1.0)
    assert found == Breaker(silent=0, alive=3, calm_s=SETTLE_S + 1.0)


def test_launcher_silent_to_a_new_leader_is_no_sign_of_life() -> None:
    unreported = rank(0, node="n1", silent_s=1.0, unreported=True)
    ranks = [rank(0, node="n0", **MISSING), unreported]
    assert breaker.assess(CLOSED, ranks, renewing=(), none_renews=False, passed_s=1.0).is_open


def test_exit_vouches_for_its_silent_peer() -> None:
    """A launcher reports the crash of its rank: its gang ends, while its peer is silent."""
    verdict = assess(crash(0, age_s=1.0), rank(1, **MISSING))
    assert isinstance(verdict, Ended)
    assert (verdict.cause.code, verdict.cause.nodes) == (CauseCode.NODE_LOST, ("n1",))


def test_crash_before_the_cut_waits_for_the_silent_peers() -> None:
    """Lost messages spend no budget of the user."""
    crashed = crash(0, age_s=100.0, silent_s=100.0)
    assert assess(crashed, rank(1, **MISSING)) == Ongoing(suspected=(1,), held=True)
    late = replace(crashed, crash=Crash(0, 1, HOLD_S + 1.0))
    verdict = assess(late, rank(1, **MISSING))
    assert isinstance(verdict, Ended)
    assert verdict.cause.code is CauseCode.RANK_FAILED


def test_node_out_of_service_ends_the_attempt_during_a_cut() -> None:
    verdict = assess(rank(0), rank(1, silent_s=7.0, out_of_service=True))
    assert isinstance(verdict, Ended)
    assert verdict.cause.nodes == ("n1",)
    assert verdict.cause.message.endswith("its taint says that it is out of service")
    assert isinstance(assess(rank(0), rank(1, out_of_service=True)), Ongoing)


@pytest.mark.parametrize("taken", [{"deleting": True}, {"evicted": "EvictionByEvictionAPI"}])
def test_pod_that_was_taken_ends_the_attempt_during_a_cut(taken: dict[str, object]) -> None:
    assert isinstance(assess(rank(0, silent_s=30.0, lease_stale=True, **taken)), Ended)


def test_cut_charges_no_late_start() -> None:
    mute = rank(0, silent_s=None)
    assert assess(mute, started=False) == Ongoing()
    assert isinstance(assess(mute, started=False, cut=False), Ended)


@pytest.mark.parametrize(("unready_s", "lost"), [(6.9, True), (7.0, False), (3600.0, False)])
def test_not_ready_counts_only_after_the_last_heartbeat(unready_s: float, lost: bool) -> None:
    verdict = assess(rank(0), rank(1, silent_s=7.0, unready_s=unready_s), cut=False)
    assert isinstance(verdict, Ended) is lost


def test_cut_shows_in_leases_before_any_launcher_reports() -> None:
    """The gang was bound as the cut began. When it ends, one kubelet renews first."""
    waiting = [rank(at, node=f"n{at}", silent_s=None, unreported=True) for at in range(2)]
    cut = breaker.assess(CLOSED, waiting, renewing=(), none_renews=True, passed_s=1.0)
    late = [waiting[0], replace(waiting[1], unready_s=UNREADY_S + 1.0)]
    healed = breaker.assess(cut, late, renewing=["n0"], none_renews=False, passed_s=1.0)
    assert cut.is_open
    assert healed.is_open
    assert isinstance(assess(*late, cut=True, started=False), Ongoing)


def test_leases_of_the_dead_alone_are_no_cut() -> None:
    """On nodes of the control plane no other lease is read for comparison."""
    ranks = [rank(0, node="n0", **MISSING), rank(0, node="n1"), rank(0, node="n2")]
    assert not breaker.assess(CLOSED, ranks, renewing=(), none_renews=True, passed_s=1.0).is_open
