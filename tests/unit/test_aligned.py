"""Which nodes have all of their rails lead where they should, by cables and by what is inside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fixtures import machine_files, machines
from fixtures.clos import Cable, Clos, plugged, upwards, wiring
from fixtures.examples import examples
from railwright_topology import aligned, fabric, layers, networks
from railwright_topology.miscabling import Rails
from railwright_topology.parts import AdapterRole, HardwareReport, HardwareReports, Kind, Part
from railwright_topology.relative_speed import RelativeSpeed
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import sysfs

CLOS = Clos(blocks=2, groups=2, hosts=8, rails=4, leaves=2, spines=4)
SOUND = list(CLOS.cables())
HOSTS = sorted({one.split()[0] for one, _ in SOUND if " " in one})


def rail_assignments(cables: Sequence[Cable]) -> dict[str, Rails]:
    reported = wiring(list(cables))
    return {
        host: its.whole for host, its in aligned.by_cables(reported, layers.of(reported)).items()
    }


def replugged(host: str, *uplinks: tuple[int, str]) -> list[Cable]:
    """Rails of a host into other switches; into none where that is empty."""
    gone = {f"{host} mlx5_{rail}" for rail, _ in uplinks}
    more = [(f"{host} mlx5_{rail}", switch) for rail, switch in uplinks if switch]
    return [*(cable for cable in SOUND if cable[0] not in gone), *more]


def miscabled(found: dict[str, Rails]) -> dict[str, list[int]]:
    return {
        node: [each.rail for each in rails.miscabled]
        for node, rails in found.items()
        if rails.miscabled
    }


def test_all_rails_of_a_sound_fabric_lead_where_they_should() -> None:
    assert rail_assignments(SOUND) == dict.fromkeys(HOSTS, Rails((0, 1, 2, 3)))
    assert {rails.share for rails in rail_assignments(SOUND).values()} == {1.0}


@pytest.mark.parametrize(
    ("port", "why"),
    [
        ((1, ""), "it has no cable"),
        ((1, "tor-0-0-2"), "it is plugged into tor-0-0-2, and those beside it into tor-0-0-1"),
        ((1, "tor-1-1-1"), "it is plugged into tor-1-1-1, and those beside it into tor-0-0-1"),
    ],
)
def test_miscabled_rail_has_its_adapter_and_reason(port: tuple[int, str], why: str) -> None:
    found = rail_assignments(replugged("node-0003", port))
    assert miscabled(found) == {"node-0003": [1]}
    (only,) = found["node-0003"].miscabled
    assert only.description == f"rail 1 is miscabled at mlx5_1: {why}"
    assert found["node-0003"].share == 0.75


def test_host_with_all_ports_on_other_rails_is_miscabled() -> None:
    """So few are where those of its neighbours are that it stands beside nobody."""
    turned = [(rail, f"tor-0-0-{(rail + 1) % 4}") for rail in range(4)]
    found = rail_assignments(replugged("node-0003", *turned))
    assert miscabled(found) == {"node-0003": [0, 1, 2, 3]}
    assert found["node-0003"].miscabled[3].why == "it is plugged into tor-0-0-0, which is of rail 0"


def test_hosts_below_a_dead_tor_lack_its_rail() -> None:
    found = rail_assignments([cable for cable in SOUND if "tor-0-0-3" not in cable])
    assert miscabled(found) == {host: [3] for host in HOSTS[:8]}


def test_hosts_with_other_adapter_order_have_rails_in_it() -> None:
    turned = [(f"new-{n} ib{rail}", f"tor-0-0-{3 - rail}") for n in range(6) for rail in range(4)]
    found = rail_assignments([*SOUND, *turned])
    assert miscabled(found) == {}
    assert found["new-3"] == Rails((3, 2, 1, 0))


def test_hosts_with_fewer_adapters_of_their_own_kind_are_sound() -> None:
    small = [(f"old-{n} ib{rail}", f"tor-0-0-{rail}") for n in range(6) for rail in range(2)]
    found = rail_assignments([*SOUND, *small])
    assert miscabled(found) == {}
    assert found["old-3"] == Rails((0, 1))


def test_adapters_sharing_one_switch_have_no_rails() -> None:
    assert (
        rail_assignments([(f"h{n} mlx5_{nic}", "tor") for n in range(8) for nic in range(4)]) == {}
    )


@pytest.mark.parametrize("large", [30, 40, 120])
@pytest.mark.parametrize("tors", ["old", "new"])
@pytest.mark.parametrize("joined", [False, True])
def test_another_kind_of_machine_with_half_the_adapters_is_sound(
    large: int, tors: str, *, joined: bool
) -> None:
    """On switches of its own or not; cables do not say that it has no more adapters."""
    cables = plugged("big", large, "new", 8) + plugged("small", 20, tors, 4)
    found = rail_assignments(upwards(cables) if joined else cables)
    assert miscabled(found) == {}
    assert found["big-0"] == Rails(tuple(range(8)))
    assert {found[f"small-{at}"] for at in range(20)} == {Rails((0, 1, 2, 3))}


@pytest.mark.parametrize("tors", ["old", "new"])
@pytest.mark.parametrize("storage", [1, 2])
def test_hosts_with_and_without_storage_adapters_are_sound(tors: str, storage: int) -> None:
    cables = plugged("with", 30, "new", 8) + plugged("bare", 20, tors, 8)
    cables += [
        (f"with-{at} mlx5_{8 + nic}", f"storage-{nic}")
        for at in range(30)
        for nic in range(storage)
    ]
    found = rail_assignments(upwards(cables))
    assert miscabled(found) == {}
    assert {found[f"bare-{at}"] for at in range(20)} == {Rails(tuple(range(8)))}


@pytest.mark.parametrize(
    "pulled", [{"h3": [1]}, {"h3": [1, 2]}, {"h2": [1], "h3": [1]}, {"h2": [0], "h3": [1, 2]}]
)
def test_cables_missing_on_few_hosts_are_miscabled(
    pulled: dict[str, list[int]],
) -> None:
    gone = {f"{host} mlx5_{nic}" for host, nics in pulled.items() for nic in nics}
    cables = [(f"h{host} mlx5_{nic}", f"tor-{nic}") for host in range(6) for nic in range(4)]
    assert (
        miscabled(rail_assignments([cable for cable in cables if cable[0] not in gone])) == pulled
    )


def test_a_cable_missing_below_a_dead_tor_is_astray_too() -> None:
    cables = [cable for cable in SOUND if "tor-0-0-3" not in cable]
    cables.remove(("node-0003 mlx5_1", "tor-0-0-1"))
    assert miscabled(rail_assignments(cables)) == {host: [3] for host in HOSTS[:8]} | {
        "node-0003": [1, 3]
    }


@settings(deadline=None, max_examples=examples(25))
@given(st.data())
def test_moved_or_pulled_ports_alone_are_miscabled(data: st.DataObject) -> None:
    """At most one host of a group, so that its neighbours are the rule; and none whose plugs are as
    many in the same places as those of another group."""
    cables, planted = SOUND, {}
    for first in range(0, len(HOSTS), CLOS.hosts):
        host = data.draw(st.sampled_from(HOSTS[first : first + CLOS.hosts]))
        rails = data.draw(st.sets(st.integers(0, 3), max_size=2))
        where = [data.draw(st.sampled_from(["", *_tors(host, rail)])) for rail in sorted(rails)]
        assume(len(where) < 2 or not _beside(*where, rails=sorted(rails)))
        moved = replugged(host, *zip(sorted(rails), where, strict=True))
        cables = [each for each in cables if each in moved] + [
            each for each in moved if each not in SOUND
        ]
        if rails:
            planted[host] = sorted(rails)
    found = rail_assignments(cables)
    assert miscabled(found) == planted
    assert found == rail_assignments(cables[::-1])


def _beside(*tors: str, rails: Sequence[int]) -> bool:
    """Whether these are the ToRs of those rails in one group."""
    places = [tor.rpartition("-") for tor in tors]
    return len({group for group, _, _ in places}) == 1 and [it for *_, it in places] == [
        str(rail) for rail in rails
    ]


def _tors(host: str, rail: int) -> list[str]:
    """Those that this adapter should not be plugged into."""
    at = dict(SOUND)[f"{host} mlx5_{rail}"]
    return sorted({end for one, end in SOUND if " " in one and end != at})


def reported(nodes: dict[str, Iterable[tuple[str, bool | None]]]) -> HardwareReports:
    """What is inside of nodes: rails by name, and whether their cables are up."""
    by_host = {
        node: (
            HardwareReport(
                "a description",
                Provenance.DECLARED,
                tuple(
                    Part(name, Kind.ADAPTER, names=(name,), role=AdapterRole.RAIL, up=up)
                    for name, up in its
                ),
            ),
        )
        for node, its in nodes.items()
    }
    return HardwareReports("site/hardware.yaml", by_host)


ALL_UP = [(f"mlx5_{rail}", True) for rail in range(4)]


def inner(odd: dict[str, Iterable[tuple[str, bool | None]]], count: int = 12) -> dict[str, Rails]:
    nodes: dict[str, Iterable[tuple[str, bool | None]]] = {f"n{at}": ALL_UP for at in range(count)}
    nodes |= odd
    return dict(fabric.of(nodes.keys(), [reported(nodes)]).rails)


def test_cable_down_and_missing_adapter_are_miscabled() -> None:
    found = inner({"a": [*ALL_UP[:2], ("mlx5_2", False), ALL_UP[3]], "b": [ALL_UP[0], *ALL_UP[2:]]})
    assert miscabled(found) == {"a": [2], "b": [1]}
    assert [each.description for node in "ab" for each in found[node].miscabled] == [
        "rail 2 is miscabled at mlx5_2: its cable is down",
        "rail 1 is miscabled at mlx5_1: it is not there, and on a rail "
        "in others of the node's kind",
    ]


def test_cable_down_on_most_nodes_of_a_kind_is_intended() -> None:
    pulled = [*ALL_UP[:3], ("mlx5_3", False)]
    assert inner({f"n{at}": pulled for at in range(7)})["n11"] == Rails((0, 1, 2))
    assert miscabled(inner({f"n{at}": pulled for at in range(5)})).keys() == {
        f"n{at}" for at in range(5)
    }


def numbered(declared: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """The orders of nodes on which somebody says the rail of each adapter."""
    by_host = {
        node: tuple(
            Part(
                f"mlx5_{at}", Kind.ADAPTER, names=(f"mlx5_{at}",), role=AdapterRole.RAIL, rail=rail
            )
            for at, rail in enumerate(its)
        )
        for node, its in declared.items()
    }
    hardware_reports = {
        node: (HardwareReport("said", Provenance.DECLARED, parts),)
        for node, parts in by_host.items()
    }
    found = fabric.of(
        declared.keys(), [HardwareReports("site/hardware.yaml", hardware_reports)]
    ).rails
    return {node: rails.order for node, rails in found.items()}


def test_rails_of_a_kind_are_numbered_as_on_most_nodes() -> None:
    declared = {f"n{at}": (0, 1, 2, 3) for at in range(12)}
    assert numbered({**declared, "z": (7, 7, 7, 7)}) == dict.fromkeys(
        [*declared, "z"], (0, 1, 2, 3)
    )
    halves = {"a": (1, 0), "b": (0, 1), "c": (0, 1), "d": (1, 0)}
    assert numbered(halves) == dict.fromkeys(halves, (0, 1))


@pytest.mark.parametrize("seed", range(12))
def test_port_down_by_kernel_is_miscabled_on_any_machine(seed: int) -> None:
    machine = machines.planted(Random(seed))
    files = machine_files.sysfs(machine)
    sound = (sysfs.parse(files),)
    on_rails = [card.name for card in machine.cards if card.rail is not None]
    at = seed % len(on_rails)
    files["infiniband"][on_rails[at]]["ports/1/state"] = "1: DOWN"
    nodes = {f"n{number}": sound for number in range(12)} | {"odd": (sysfs.parse(files),)}
    found = fabric.of(nodes.keys(), [HardwareReports("agents", nodes)])
    count = len(on_rails)
    assert {len(rails.order) for rails in found.rails.values()} == {count}
    ((node, rails),) = miscabled(dict(found.rails)).items()
    assert (node, len(rails)) == ("odd", 1)
    assert found.rails["odd"].miscabled[0].adapter == on_rails[at]
    assert found.relative_speeds == {"odd": RelativeSpeed(rails=1.0 - 1 / count)}


def test_adapter_of_unknown_state_is_not_miscabled() -> None:
    assert miscabled(inner({"a": [(name, None) for name, _ in ALL_UP]})) == {}


def test_both_faults_are_reported_and_speed_is_of_what_is_left() -> None:
    down = reported({"node-0003": [*ALL_UP[:3], ("mlx5_3", False)]})
    sound = reported(dict.fromkeys(HOSTS[8:], ALL_UP))
    network = networks.of(wiring(replugged("node-0003", (1, ""))))
    nodes = [f"{host}.example.com" for host in HOSTS]
    found = fabric.of(nodes, [network, HardwareReports("all", {**sound.by_host, **down.by_host})])
    assert found.rails.keys() == {*nodes}
    assert miscabled(dict(found.rails)) == {"node-0003.example.com": [1, 3]}
    assert found.relative_speeds == {"node-0003.example.com": RelativeSpeed(rails=0.5)}
