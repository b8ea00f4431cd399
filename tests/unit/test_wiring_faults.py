"""Faults planted in a sound fabric are found, each named by its plug, and no others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures.clos import Cable, Clos, wiring
from railwright_topology import faults, layers, networks
from railwright_topology.wiring import Switch, Wiring

CLOS = Clos(blocks=2, groups=2, hosts=8, rails=4, leaves=2, spines=4)
SOUND = list(CLOS.cables())


def reported(found: Wiring) -> tuple[str, ...]:
    return faults.of(found, layers.of(found))


def without(*missing: Cable) -> list[Cable]:
    return [cable for cable in SOUND if cable not in missing]


def test_a_sound_fabric_has_none() -> None:
    assert reported(wiring(SOUND)) == ()


def test_a_missing_uplink_is_named_by_its_adapter() -> None:
    assert reported(wiring(without(("node-0003 mlx5_2", "tor-0-0-2")))) == (
        "node-0003 has no cable at mlx5_2, where those of its kind have one",
    )


@pytest.mark.parametrize("switch", ["tor-0-0-2", "tor-0-1-1", "tor-1-0-0"])
def test_a_plug_in_the_wrong_switch_is_named_with_the_right_one(switch: str) -> None:
    cables = without(("node-0003 mlx5_1", "tor-0-0-1"))
    assert reported(wiring([*cables, ("node-0003 mlx5_1", switch)])) == (
        f"node-0003 mlx5_1 is plugged into {switch}, and those of the hosts beside it into "
        "tor-0-0-1",
    )


def test_two_plugs_the_wrong_way_round_are_both_named() -> None:
    cables = without(("node-0003 mlx5_1", "tor-0-0-1"), ("node-0003 mlx5_2", "tor-0-0-2"))
    swapped = [("node-0003 mlx5_1", "tor-0-0-2"), ("node-0003 mlx5_2", "tor-0-0-1")]
    assert [fault.partition(",")[0] for fault in reported(wiring(cables + swapped))] == [
        "node-0003 mlx5_1 is plugged into tor-0-0-2",
        "node-0003 mlx5_2 is plugged into tor-0-0-1",
    ]


def test_a_host_on_an_upper_switch_is_told() -> None:
    assert reported(wiring([*SOUND, ("login mlx5_0", "spine-0")])) == (
        "login mlx5_0 is plugged into spine-0, a switch of tier 3",
    )


def test_hosts_with_fewer_or_older_adapters_are_no_fault() -> None:
    small = [(f"old-{n} ib{nic}", f"tor-0-0-{nic}") for n in range(6) for nic in range(2)]
    assert reported(wiring([*SOUND, *small])) == ()
    found = wiring([*SOUND, *small])
    slow = [replace(up, bytes_per_s=up.bytes_per_s // 2) for up in found.uplinks]
    older = ("tor-1-1-0", "tor-1-1-1", "tor-1-1-2", "tor-1-1-3")
    mixed = [
        half if up.switch in older else up for up, half in zip(found.uplinks, slow, strict=True)
    ]
    assert reported(replace(found, uplinks=tuple(mixed))) == ()


def test_a_missing_way_up_is_named_by_its_switches() -> None:
    assert reported(wiring(without(("tor-0-1-3", "leaf-0-3-1")))) == (
        "tor-0-1-3 has no cable to leaf-0-3-1, where those like it have one",
    )
    assert reported(wiring(without(("leaf-1-2-0", "spine-3")))) == (
        "leaf-1-2-0 has no cable to spine-3, where those like it have one",
    )


def test_a_leaf_without_any_way_up_is_told() -> None:
    cables = [cable for cable in SOUND if cable[0] != "leaf-1-2-0"]
    assert reported(wiring(cables)) == ("leaf-1-2-0 has no cable upwards, and is of tier 2 of 3",)


def test_a_way_up_with_fewer_cables_than_others_is_thin() -> None:
    doubled = [cable for cable in SOUND for _ in range(1 if " " in cable[0] else 2)]
    doubled.remove(("tor-0-0-0", "leaf-0-0-0"))
    assert reported(wiring(doubled)) == (
        "tor-0-0-0 reaches leaf-0-0-0 with 400 Gb/s, such pairs have 800 Gb/s",
    )


def test_an_uplink_below_those_beside_it_is_slow() -> None:
    found = wiring(SOUND)
    slow = replace(found.uplinks[5], bytes_per_s=25_000_000_000)
    found = replace(found, uplinks=(*found.uplinks[:5], slow, *found.uplinks[6:]))
    assert reported(found) == (
        f"{slow.host} {slow.nic} runs at 200 Gb/s, most beside it at 400 Gb/s",
    )


def test_a_switch_without_hosts_is_told() -> None:
    found = wiring(SOUND)
    found = replace(found, switches=(*found.switches, Switch("x", "lost")))
    assert reported(found) == ("switch lost reaches no host",)


def test_finding_is_in_faults_or_in_remarks() -> None:
    """Each was printed twice once: the command line shows both."""
    network = networks.of(replace(wiring(SOUND), strange=("an adapter names no host",)))
    assert not network.faults
    assert network.source_report.strange == ("an adapter names no host",)


def test_dead_tor_is_one_fault_with_its_hosts() -> None:
    alive = [cable for cable in SOUND if "tor-0-0-3" not in cable]
    assert reported(wiring(alive)) == (
        "hosts without a cable at mlx5_3, where most with the same adapters have one: 8, the first "
        "is node-0000",
    )


def test_a_stray_cable_between_switches_is_named() -> None:
    assert reported(wiring([*SOUND, ("tor-0-0-0", "spine-2")])) == (
        "spine-2 has a cable to tor-0-0-0, where none of those like either has one",
    )


def test_a_smaller_network_beside_it_lacks_no_way_up() -> None:
    beside = [(f"login-{at} mlx5_0", "io-switch") for at in range(8)]
    assert reported(wiring([*SOUND, *beside])) == ()
