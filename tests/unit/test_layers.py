"""What follows from cables: tiers, domains, rails; held against how the cables were planned."""

from __future__ import annotations

import random

import pytest

from fixtures.clos import Cable, Clos, wiring
from railwright_topology import layers
from railwright_topology.layers import Layers

CLOS = Clos(blocks=2, groups=2, hosts=4, rails=4, leaves=2, spines=2)
SOUND = list(CLOS.cables())


def of(cables: list[Cable]) -> Layers:
    return layers.of(wiring(cables))


def rails(found: Layers) -> list[set[str]]:
    """The adapters of each rail, by name."""
    count = len({*found.rails.values()})
    return [{nic for (_, nic), rail in found.rails.items() if rail == one} for one in range(count)]


def sizes(found: Layers) -> list[list[int]]:
    """How many hosts each domain has, tier by tier."""
    return [[len(domain.hosts) for domain in tier] for tier in found.domains]


FOUR = [{"mlx5_0"}, {"mlx5_1"}, {"mlx5_2"}, {"mlx5_3"}]


def test_tiers_and_domains_are_those_of_the_plan() -> None:
    found = of(SOUND)
    tiers = {"tor": 1, "leaf": 2, "spine": 3}
    assert dict(found.tiers) == {name: tiers[name.partition("-")[0]] for name in found.tiers}
    groups = [CLOS.group(block, group) for block in range(2) for group in range(2)]
    assert [domain.hosts for domain in found.domains[0]] == groups
    assert sizes(found) == [[4, 4, 4, 4], [8, 8], [16]]
    assert found.domains[0][0].switches == tuple(f"tor-0-0-{rail}" for rail in range(4))


def test_each_adapter_that_has_switches_of_its_own_is_a_rail() -> None:
    assert rails(of(SOUND)) == FOUR


def test_adapters_that_share_their_switches_are_of_one_rail() -> None:
    paired = [(one, _paired(other)) for one, other in SOUND]
    assert rails(of(paired)) == [{"mlx5_0", "mlx5_1"}, {"mlx5_2", "mlx5_3"}]


def test_a_switch_a_rack_shows_no_rails() -> None:
    cables = [(f"node-{n} mlx5_{nic}", f"tor-{n // 4}") for n in range(8) for nic in range(4)]
    found = of(cables)
    assert not found.rails
    assert sizes(found) == [[4, 4]]


def test_hosts_of_another_kind_are_on_the_rails_of_their_ports() -> None:
    """Beside those with four adapters, hosts with two of other names, on rails 0 and 2."""
    cables = [
        (f"old-{block}-{group}-{n} ib{nic}", f"tor-{block}-{group}-{2 * nic}")
        for block in range(2)
        for group in range(2)
        for n in range(3)
        for nic in range(2)
    ]
    found = of(SOUND + cables)
    assert rails(found) == [{"mlx5_0", "ib0"}, {"mlx5_1"}, {"mlx5_2", "ib1"}, {"mlx5_3"}]
    assert sizes(found) == [[7, 7, 7, 7], [14, 14], [28]]


def test_storage_leaf_shared_by_two_adapters_joins_no_rails() -> None:
    storage = [("store mlx5_0", "storage"), ("store mlx5_1", "storage"), ("storage", "spine-0")]
    assert rails(of(SOUND + storage)) == FOUR


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_cables_changes_nothing(seed: int) -> None:
    shuffled = random.Random(seed).sample(SOUND, len(SOUND))
    assert of(shuffled) == of(SOUND)


def test_a_host_that_lost_an_adapter_stays_of_its_kind() -> None:
    large = list(Clos(blocks=1, groups=1, hosts=16, rails=4).cables())
    found = of([cable for cable in large if cable[0] != "node-0003 mlx5_1"])
    assert rails(found) == FOUR
    assert {*found.ports.kinds.values()} == {("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")}


def test_host_with_odd_adapter_names_renames_no_rail() -> None:
    odd = [(f"odd ib{nic}", f"tor-0-0-{nic % 4}") for nic in range(9)]
    assert rails(of(SOUND + odd))[1] >= {"mlx5_1"}
    assert len(rails(of(SOUND + odd))) == 4


def test_ninth_adapter_of_a_host_is_on_the_rail_of_its_port() -> None:
    found = of([*SOUND, ("node-0003 mlx5_9", "tor-0-0-2")])
    assert rails(found)[2] == {"mlx5_2", "mlx5_9"}


@pytest.mark.parametrize(
    "port",
    [
        [("node-0003 mlx5_1", "tor-0-0-2")],
        [("node-0003 mlx5_1", "tor-0-1-1")],
        [("node-0003 mlx5_1", "tor-1-1-3")],
        [("node-0003 mlx5_1", "tor-0-0-2"), ("node-0003 mlx5_2", "tor-0-0-1")],
    ],
    ids=["another rail", "another group", "another block", "swapped"],
)
def test_an_odd_plug_joins_neither_domains_nor_rails(port: list[Cable]) -> None:
    moved = {one for one, _ in port}
    found = of([cable for cable in SOUND if cable[0] not in moved] + port)
    assert rails(found) == FOUR
    assert sizes(found) == sizes(of(SOUND))
    assert {f"{up.host} {up.nic}" for up in found.ports.odd} == moved


def test_an_odd_plug_between_racks_joins_none() -> None:
    cables = [(f"node-{n} mlx5_{nic}", f"tor-{n // 4}") for n in range(8) for nic in range(4)]
    cables[0] = ("node-0 mlx5_0", "tor-1")
    assert sizes(of(cables)) == [[4, 4]]


@pytest.mark.parametrize("switch", ["spine-0", "leaf-0-1-0"])
def test_a_login_host_on_an_upper_switch_makes_no_tor_of_it(switch: str) -> None:
    large = list(Clos(blocks=2, groups=2, hosts=8, rails=4).cables())
    found = of([*large, ("login mlx5_0", switch)])
    assert found.tiers == of(large).tiers
    assert sizes(found)[0] == [8, 8, 8, 8]


def test_a_tor_with_one_host_left_is_a_tor() -> None:
    large = list(Clos(blocks=1, groups=2, hosts=16, rails=2).cables())
    left = [one for one in large if not ("tor-0-1" in one[1] and one[0][:9] > "node-0016")]
    found = of(left)
    assert sizes(found)[0] == [16, 1]
    assert {found.tiers[f"tor-0-1-{rail}"] for rail in range(2)} == {1}


def test_a_fabric_of_its_own_is_found_beside_a_large_one() -> None:
    found = of([*SOUND, ("store-1 mlx5_0", "island"), ("store-2 mlx5_0", "island")])
    assert ("store-1", "store-2") in [domain.hosts for domain in found.domains[0]]


def test_a_fabric_of_nothing_has_no_layers() -> None:
    found = of([])
    assert (found.tiers, found.domains, found.rails) == ({}, (), {})


def _paired(switch: str) -> str:
    """The switch that has the adapters of two rails."""
    kind, *place = switch.split("-")
    if kind == "tor":
        return f"tor-{place[0]}-{place[1]}-{int(place[2]) // 2}"
    return f"leaf-{place[0]}-{int(place[1]) // 2}-{place[2]}" if kind == "leaf" else switch


@pytest.mark.parametrize(
    "stray",
    [("tor-0-0-0", "tor-1-0-0"), ("leaf-0-0-0", "leaf-1-1-0"), ("tor-0-0-0", "spine-0")],
)
def test_a_stray_cable_between_switches_joins_nothing(stray: Cable) -> None:
    found = of([*SOUND, stray])
    assert (found.tiers, found.domains) == (of(SOUND).tiers, of(SOUND).domains)
    assert [trunk.ends for trunk in found.stray] == [tuple(sorted(stray))]


def test_links_between_paired_tors_are_intended() -> None:
    pairs = [
        (f"tor-{block}-{group}-{rail}", f"tor-{block}-{group}-{rail + 1}")
        for block in range(2)
        for group in range(2)
        for rail in (0, 2)
    ]
    found = of([*SOUND, *pairs])
    assert found.stray == ()
    assert sizes(found) == sizes(of(SOUND))


def test_a_mesh_of_tors_is_a_tier_of_its_own_above_them() -> None:
    hosts = [(f"h{tor}-{at} ib0", f"tor-{tor}") for tor in range(8) for at in range(4)]
    mesh = [(f"tor-{one}", f"tor-{other}") for one in range(8) for other in range(one)]
    assert sizes(of([*hosts, *mesh])) == [[4] * 8, [32]]


def test_a_dead_tor_makes_no_rails() -> None:
    alive = [cable for cable in SOUND if cable[1] != "tor-0-0-3" and cable[0] != "tor-0-0-3"]
    assert rails(of(alive)) == FOUR


@pytest.mark.parametrize("names", [("ib0", "ib1", "ib2", "ib3"), ("mlx5_0", "mlx5_1")])
def test_hosts_of_another_kind_are_on_the_same_rails(names: tuple[str, ...]) -> None:
    other = {*CLOS.group(0, 0)}
    cables = []
    for one, switch in SOUND:
        host, _, nic = one.partition(" ")
        rail = int(nic.removeprefix("mlx5_")) if nic else 0
        if host not in other:
            cables.append((one, switch))
        elif rail < len(names):
            cables.append((f"{host} {names[rail]}", switch))
    found = of(cables)
    assert {*found.rails.values()} == {0, 1, 2, 3}
    assert {found.rails[tuple(names), nic] for nic in names} == {*range(len(names))}


def test_a_long_way_without_hosts_is_no_tier() -> None:
    chain = [(f"spine-{at}", f"spine-{at + 1}") for at in range(1, 12)]
    assert len(of([*SOUND, *chain]).domains) == layers.TIERS_MAX
