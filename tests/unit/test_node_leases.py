"""Kubelet Leases of suspects: only a change counts, and only an answer can be evidence."""

from __future__ import annotations

import pytest

from fixtures.node_leases import DURATION_S, LIMIT_S, WELL, CheckedSite, Leases
from railwright_operator.watch import node_leases
from railwright_scheduler.attempt.assessment import HOLD_S
from railwright_scheduler.attempt.breaker import SETTLE_S


@pytest.fixture
def checked_site() -> CheckedSite:
    return CheckedSite(Leases(renewed={"n0": "t0", "n1": "t0"}))


async def test_lease_unrenewed_beyond_an_interval_is_stale(checked_site: CheckedSite) -> None:
    """Another lease was renewed meanwhile."""
    checked_site.mark_suspected("n0")
    await checked_site.check()
    await checked_site.watch(for_s=LIMIT_S)
    assert not checked_site.lease_checker.stale("n0")
    await checked_site.check(after_s=1)
    assert checked_site.lease_checker.stale("n0")
    assert checked_site.woken == 1


async def test_a_lease_that_changes_is_never_stale(checked_site: CheckedSite) -> None:
    checked_site.mark_suspected("n0")
    for renewal in range(10):
        checked_site.leases.renewed["n0"] = f"t{renewal}"
        await checked_site.watch(for_s=LIMIT_S - 1)
        assert not checked_site.lease_checker.stale("n0")
    assert checked_site.woken == 0


async def stale(checked_site: CheckedSite, node: str) -> None:
    """A suspect whose kubelet was seen to stop."""
    checked_site.mark_suspected(node)
    await checked_site.check()
    await checked_site.watch(for_s=LIMIT_S + 1)
    assert checked_site.lease_checker.stale(node)


async def test_a_renewal_ends_the_suspicion_at_once(checked_site: CheckedSite) -> None:
    await stale(checked_site, "n0")
    checked_site.leases.renewed["n0"] = "t1"
    await checked_site.check(after_s=2)
    assert not checked_site.lease_checker.stale("n0")
    assert checked_site.woken == 2


async def test_an_api_server_that_does_not_answer_proves_nothing(checked_site: CheckedSite) -> None:
    checked_site.mark_suspected("n0")
    await checked_site.check()
    checked_site.leases.silent = True
    await checked_site.watch(for_s=10 * LIMIT_S)
    assert not checked_site.lease_checker.stale("n0")


async def test_the_first_answers_after_an_outage_are_no_evidence(checked_site: CheckedSite) -> None:
    """No kubelet could renew meanwhile either."""
    checked_site.mark_suspected("n0")
    await checked_site.check()
    await checked_site.watch(for_s=LIMIT_S - 4)
    checked_site.leases.silent = True
    await checked_site.check(after_s=2)
    checked_site.leases.silent = False
    await checked_site.watch(for_s=LIMIT_S)
    assert not checked_site.lease_checker.stale("n0")
    await checked_site.watch(for_s=2 * node_leases.ASK_INTERVAL_S)
    assert checked_site.lease_checker.stale("n0")


@pytest.mark.parametrize("slow_s", [0.0, node_leases.GAP_S_MAX + 1])
async def test_answers_with_a_gap_between_them_are_no_row(
    checked_site: CheckedSite, slow_s: float
) -> None:
    def late() -> None:
        checked_site.now_s += slow_s

    checked_site.mark_suspected("n0")
    await checked_site.check()
    await checked_site.watch(for_s=LIMIT_S - 4)
    checked_site.leases.late = late
    await checked_site.check(after_s=node_leases.GAP_S_MAX + 1 - slow_s)
    checked_site.leases.late = lambda: None
    await checked_site.watch(for_s=4)
    assert not checked_site.lease_checker.stale("n0")


async def test_an_old_answer_is_evidence_of_nothing(checked_site: CheckedSite) -> None:
    await stale(checked_site, "n0")
    checked_site.now_s += node_leases.GAP_S_MAX + 1
    assert not checked_site.lease_checker.stale("n0")


async def test_a_node_without_a_lease_is_stale_when_it_stays_without(
    checked_site: CheckedSite,
) -> None:
    await stale(checked_site, "n9")


async def test_node_no_longer_suspected_is_forgotten(checked_site: CheckedSite) -> None:
    await stale(checked_site, "n0")
    checked_site.mark_suspected("n1")
    assert not checked_site.lease_checker.stale("n0")
    await checked_site.check(after_s=1)
    assert repr(checked_site.lease_checker) == "<NodeLeaseChecker suspected=1 sightings=2>"


async def test_lease_of_a_launcher_without_a_message_has_its_duration(
    checked_site: CheckedSite,
) -> None:
    """A request that hangs, or an API server that loses power, delays a renewal for so long."""
    await checked_site.check()
    await checked_site.watch(for_s=SETTLE_S)
    checked_site.mark_suspected(unreported=("n0",))
    await checked_site.check()
    await checked_site.watch(for_s=DURATION_S)
    assert not checked_site.lease_checker.stale("n0")
    await checked_site.watch(for_s=1)
    assert checked_site.lease_checker.stale("n0")
    assert checked_site.woken == 1


async def test_kubelet_has_time_to_come_back_after_an_outage(checked_site: CheckedSite) -> None:
    """A launcher that was heard is evidence of its own; of one that never was there is the lease
    alone. Neither a new leader knows since when the API server answers."""
    checked_site.mark_suspected("n1", unreported=("n0",))
    for outage in (False, True):
        checked_site.leases.silent = outage
        await checked_site.check()
        checked_site.leases.silent = False
        await checked_site.watch(for_s=LIMIT_S + 3)
        assert checked_site.lease_checker.stale("n1")
        assert not checked_site.lease_checker.stale("n0")
        await checked_site.watch(for_s=SETTLE_S)
        assert checked_site.lease_checker.stale("n0")


async def test_request_that_fails_alone_is_no_outage(checked_site: CheckedSite) -> None:
    await checked_site.check()
    await checked_site.watch(for_s=SETTLE_S)
    checked_site.mark_suspected(unreported=("n0",))
    await checked_site.check()
    checked_site.leases.refused = {WELL}
    await checked_site.check(after_s=2)
    checked_site.leases.refused = set()
    await checked_site.watch(for_s=DURATION_S + 1)
    assert checked_site.lease_checker.stale("n0")


async def test_few_of_thousands_of_silent_nodes_are_read_at_a_time() -> None:
    """The one that is dead is found, though all others must first have been seen to renew."""
    names = tuple(f"n{number:03}" for number in range(300))
    checked_site = CheckedSite()
    checked_site.mark_suspected("silent", unreported=names)
    for second in range(0, 120, 2):
        renewed = {name: f"t{(second + place) // 10}" for place, name in enumerate(names)}
        checked_site.leases.renewed = {**renewed, names[-1]: "t0"}
        await checked_site.check(after_s=2)
        assert not any(checked_site.lease_checker.stale(name) for name in names[:-1])
        if checked_site.lease_checker.stale(names[-1]):
            break
    assert checked_site.lease_checker.stale(names[-1])
    assert checked_site.asked_max == node_leases.UNREPORTED_PER_ROUND_MAX + 2


async def test_nodes_whose_lease_cannot_be_read_keep_no_others_waiting() -> None:
    names = tuple(f"n{number:03}" for number in range(2 * node_leases.UNREPORTED_PER_ROUND_MAX))
    checked_site = CheckedSite()
    await checked_site.check()
    await checked_site.watch(for_s=SETTLE_S)
    checked_site.mark_suspected(unreported=names)
    checked_site.leases.refused = set(names)
    await checked_site.check()
    checked_site.leases.refused = set()
    await checked_site.check(after_s=2)
    await checked_site.watch(for_s=DURATION_S + 1)
    assert [name for name in names if checked_site.lease_checker.stale(name)] == list(
        names[len(names) // 2 :]
    )


async def test_lease_is_not_stale_while_no_other_is_renewed(checked_site: CheckedSite) -> None:
    """An API server that answers reads and takes no writes, or that no kubelet reaches."""
    checked_site.leases.well = False
    checked_site.leases.renewed[WELL] = "t0"
    checked_site.mark_suspected("n0")
    await checked_site.check()
    await checked_site.watch(for_s=10 * LIMIT_S)
    assert not checked_site.lease_checker.stale("n0")
    checked_site.leases.renewed[WELL] = "t1"
    await checked_site.check(after_s=2)
    assert not checked_site.lease_checker.stale("n0")
    checked_site.leases.well = True
    await checked_site.watch(for_s=node_leases.RECONNECT_S)
    assert checked_site.lease_checker.stale("n0")


async def test_lease_read_for_longer_is_not_stale_before_others(
    checked_site: CheckedSite,
) -> None:
    """Nothing is renewed. Some Leases have not been read for long enough to miss a renewal, so it
    does not show yet that none is."""
    checked_site.leases.well = False
    checked_site.leases.renewed |= {WELL: "t0", "n0": "t0", "n1": "t0"}
    checked_site.mark_suspected("n0")
    await checked_site.watch(for_s=LIMIT_S / 2)
    checked_site.mark_suspected("n0", "n1")
    await checked_site.watch(for_s=LIMIT_S / 2 + 3)
    assert not checked_site.lease_checker.none_renews
    assert not checked_site.lease_checker.stale("n0")


async def test_no_renewal_at_all_is_reported(checked_site: CheckedSite) -> None:
    """For longer than one kubelet takes, while leases are read."""
    await checked_site.watch(for_s=10 * LIMIT_S)
    assert not checked_site.lease_checker.none_renews
    checked_site.mark_suspected("n0")
    await checked_site.watch(for_s=10 * LIMIT_S)
    assert not checked_site.lease_checker.none_renews
    checked_site.leases.well = False
    checked_site.leases.renewed[WELL] = "t0"
    await checked_site.watch(for_s=LIMIT_S)
    assert not checked_site.lease_checker.none_renews
    await checked_site.watch(for_s=3 * node_leases.ASK_INTERVAL_S)
    assert checked_site.lease_checker.none_renews
    checked_site.leases.well = True
    await checked_site.check(after_s=2)
    assert not checked_site.lease_checker.none_renews


async def test_kubelets_that_renew_no_more_are_dead_after_the_hold(
    checked_site: CheckedSite,
) -> None:
    """Nothing else tells dead nodes from an outage; one renewal does."""
    checked_site.leases.well = False
    checked_site.leases.renewed[WELL] = "t0"
    checked_site.mark_suspected("n0")
    await checked_site.check()
    await checked_site.watch(for_s=HOLD_S)
    assert checked_site.lease_checker.none_renews
    assert not checked_site.lease_checker.has_settled
    await checked_site.watch(for_s=LIMIT_S + 3 * node_leases.ASK_INTERVAL_S)
    assert checked_site.lease_checker.none_renews
    assert checked_site.lease_checker.has_settled
    checked_site.leases.well = True
    await checked_site.check(after_s=2)
    assert not checked_site.lease_checker.has_settled


async def test_leases_of_a_longer_duration_have_longer(checked_site: CheckedSite) -> None:
    """Their kubelets renew less often."""
    checked_site.leases.duration_s = 10 * DURATION_S
    checked_site.leases.well = False
    checked_site.leases.renewed[WELL] = "t0"
    checked_site.mark_suspected("n0")
    await checked_site.watch(for_s=5 * LIMIT_S)
    assert not checked_site.lease_checker.none_renews
    await checked_site.watch(for_s=5 * LIMIT_S)
    assert checked_site.lease_checker.none_renews


async def test_jitter_of_long_renewals_is_no_silence(checked_site: CheckedSite) -> None:
    """A kubelet may renew a Lease of 1,200 s after 312 s."""
    checked_site.leases.duration_s = 30 * DURATION_S
    checked_site.mark_suspected("n0")
    await checked_site.watch(for_s=314)
    assert not checked_site.lease_checker.stale("n0")
    await checked_site.watch(for_s=4)
    assert checked_site.lease_checker.stale("n0")


async def test_slow_kubelet_does_not_keep_a_dead_node(checked_site: CheckedSite) -> None:
    """One of the leases that are read for comparison is always renewed late."""
    await checked_site.check()
    await checked_site.watch(for_s=SETTLE_S)
    checked_site.mark_suspected(unreported=("n0",), others=(WELL, "slow"))
    for second in range(0, 60, 2):
        checked_site.leases.renewed["slow"] = f"2026-01-01T00:00:{second // 20 * 20:02}Z"
        await checked_site.check(after_s=2)
    assert checked_site.lease_checker.stale("n0")


async def test_an_old_reading_is_no_cut(checked_site: CheckedSite) -> None:
    """The process was paused: whether kubelets renewed meanwhile is not known."""
    checked_site.leases.well = False
    checked_site.leases.renewed[WELL] = "t0"
    checked_site.mark_suspected("n0")
    await checked_site.watch(for_s=2 * LIMIT_S)
    assert checked_site.lease_checker.none_renews
    checked_site.now_s += node_leases.GAP_S_MAX + 1
    assert not checked_site.lease_checker.none_renews


async def test_nodes_without_leases_are_no_cut(checked_site: CheckedSite) -> None:
    checked_site.mark_suspected("n8", others=("n9",))
    await checked_site.watch(for_s=10 * LIMIT_S)
    assert not checked_site.lease_checker.none_renews


async def test_renewal_before_the_row_of_answers_proves_nothing(checked_site: CheckedSite) -> None:
    """It was made before the network failed."""
    checked_site.mark_suspected("n1")
    await checked_site.watch(for_s=10)
    checked_site.leases.well = False
    checked_site.leases.renewed[WELL] = "t0"
    checked_site.mark_suspected("n0", "n1")
    await checked_site.watch(for_s=2)
    await checked_site.watch(for_s=2 * LIMIT_S)
    assert not checked_site.lease_checker.stale("n0")


async def test_renewing_kubelets_are_those_seen_to_renew_lately(checked_site: CheckedSite) -> None:
    checked_site.mark_suspected("n0", "n1")
    for renewal in range(4):
        checked_site.leases.renewed["n1"] = f"t{renewal}"
        await checked_site.watch(for_s=LIMIT_S - 3)
    assert checked_site.lease_checker.renewing() == {WELL, "n1"}
    checked_site.leases.silent = True
    await checked_site.watch(for_s=LIMIT_S + 2)
    assert checked_site.lease_checker.renewing() == frozenset()


async def test_controls_are_few_and_from_all_over_the_cluster(checked_site: CheckedSite) -> None:
    others = tuple(f"o{number:03}" for number in range(160))
    checked_site.mark_suspected("n0", others=others)
    await checked_site.check()
    checked_site.mark_suspected("n0", others=others)
    assert checked_site.asked_max == 1 + node_leases.CONTROLS_MIN
    assert (
        repr(checked_site.lease_checker)
        == f"<NodeLeaseChecker suspected=1 sightings={checked_site.asked_max}>"
    )
    checked_site.mark_suspected(others=others)
    await checked_site.check()
    assert checked_site.asked_max == 1 + node_leases.CONTROLS_MIN
    assert repr(checked_site.lease_checker) == "<NodeLeaseChecker suspected=0 sightings=0>"


async def test_row_of_a_silent_launcher_begins_when_it_is_silent(checked_site: CheckedSite) -> None:
    """Its node was read for comparison until all nodes were cut off: its renewal was due first."""
    checked_site.mark_suspected("n1", others=("n0", WELL))
    await checked_site.watch(for_s=LIMIT_S - 4)
    checked_site.leases.well = False
    checked_site.leases.renewed[WELL] = "t0"
    await checked_site.watch(for_s=6)
    assert not checked_site.lease_checker.stale("n0")
    checked_site.mark_suspected("n0", "n1")
    await checked_site.watch(for_s=LIMIT_S - 2)
    assert not checked_site.lease_checker.stale("n0")
    checked_site.leases.well = True
    await checked_site.watch(for_s=6)
    assert checked_site.lease_checker.stale("n0")


async def test_without_messages_others_renew_when_it_was_due(checked_site: CheckedSite) -> None:
    """All nodes are cut off before that."""
    await checked_site.check()
    await checked_site.watch(for_s=SETTLE_S)
    checked_site.mark_suspected(unreported=("n0",))
    await checked_site.watch(for_s=LIMIT_S - node_leases.SLACK_S - 2)
    checked_site.leases.well = False
    checked_site.leases.renewed[WELL] = "t0"
    await checked_site.watch(for_s=DURATION_S)
    assert not checked_site.lease_checker.stale("n0")
    checked_site.leases.well = True
    await checked_site.watch(for_s=SETTLE_S + 3)
    assert checked_site.lease_checker.stale("n0")
