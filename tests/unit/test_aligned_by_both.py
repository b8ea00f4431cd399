"""Rails of nodes that cables tell of, and agents that see the same adapters from inside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fixtures.clos import Cable, plugged, upwards, wiring
from railwright_topology import fabric, networks
from railwright_topology.fabric import Fabric
from railwright_topology.miscabling import Rails
from railwright_topology.parts import AdapterRole, HardwareReport, HardwareReports, Kind, Part
from railwright_topology.source_reports import Provenance


def paired(*dead: str, called: str = "mlx5_{}") -> list[Cable]:
    """Hosts with four adapters on two rails, two on each; some of those of h3 have no cable."""
    cables = [
        (f"h{host} {called.format(nic)}", f"tor-{host // 8}-{nic // 2}")
        for host in range(24)
        for nic in range(4)
    ]
    return [cable for cable in cables if cable[0] not in {f"h3 {nic}" for nic in dead}]


def of_both(cables: Sequence[Cable], inner: HardwareReports) -> Rails:
    """The rails of h3."""
    hosts = {one.partition(" ")[0] for one, _ in cables}
    return fabric.of(hosts, [networks.of(wiring(list(cables))), inner]).rails["h3"]


def down(*adapters: str, rails: Sequence[int] = (), more: Sequence[str] = ()) -> HardwareReports:
    """What an agent sees in h3; ``more`` names follow those of the adapters."""
    parts = tuple(
        Part(
            f"pci-{at}",
            Kind.ADAPTER,
            names=(f"mlx5_{at}", *more[at : at + 1]),
            role=AdapterRole.RAIL,
            rail=rails[at] if rails else None,
            up=f"mlx5_{at}" not in adapters,
        )
        for at in range(4)
    )
    sound = tuple(replace(part, up=True) for part in parts)
    hardware_reports = {
        f"h{at}": (HardwareReport("agent", Provenance.SEEN, sound),) for at in range(24)
    }
    return HardwareReports(
        "agents", hardware_reports | {"h3": (HardwareReport("agent", Provenance.SEEN, parts),)}
    )


def test_adapter_from_both_sources_counts_once_on_its_cable_rail() -> None:
    found = of_both(paired("mlx5_2"), down("mlx5_2"))
    assert [each.description for each in found.miscabled] == [
        "rail 1 is miscabled at mlx5_2: it has no cable"
    ]
    assert (found.order, found.share) == ((0, 0, 1, 1), 0.75)
    found = of_both(paired(), down("mlx5_2"))
    assert [each.description for each in found.miscabled] == [
        "rail 1 is miscabled at mlx5_2: its cable is down"
    ]


def test_two_adapters_whose_rails_have_one_number_are_two() -> None:
    found = of_both(paired("mlx5_2"), down("mlx5_1"))
    assert [(each.rail, each.adapter) for each in found.miscabled] == [(0, "mlx5_1"), (1, "mlx5_2")]
    found = of_both(paired("mlx5_2"), down("mlx5_3", rails=(0, 0, 1, 1)))
    assert [(each.rail, each.adapter) for each in found.miscabled] == [(1, "mlx5_2"), (1, "mlx5_3")]
    assert found.share == 0.5


def test_cables_may_call_an_adapter_by_any_of_its_names() -> None:
    names = [f"ib{at}" for at in (3, 2, 1, 0)]
    found = of_both(paired("ib1", called="ib{}"), down("mlx5_2", more=names))
    assert [each.description for each in found.miscabled] == [
        "rail 0 is miscabled at ib1: it has no cable"
    ]
    found = of_both(paired(called="ib{}"), down("mlx5_2", more=names))
    assert [each.description for each in found.miscabled] == [
        "rail 0 is miscabled at mlx5_2: its cable is down"
    ]


def test_adapters_without_common_name_match_by_equal_numbering() -> None:
    equal = down("mlx5_2", "mlx5_3", rails=(0, 0, 1, 1))
    found = of_both(paired("ib2", called="ib{}"), equal)
    assert [(each.rail, each.adapter) for each in found.miscabled] == [(1, "ib2"), (1, "mlx5_3")]
    found = of_both(paired("ib2", called="ib{}"), down("mlx5_1"))
    assert [(each.rail, each.adapter) for each in found.miscabled] == [(1, "ib2"), (1, "mlx5_1")]


def test_adapter_without_cable_counts_beside_cabled_ones() -> None:
    cables = [cable for cable in paired() if not cable[0].endswith("_3")]
    found = of_both(cables, down("mlx5_3"))
    assert ([each.rail for each in found.miscabled], found.share) == ([3], 0.75)


def miscabled(found: Fabric) -> dict[str, list[int]]:
    return {
        node: [each.rail for each in rails.miscabled]
        for node, rails in found.rails.items()
        if rails.miscabled
    }


def seen(hosts: dict[str, int], storage: Sequence[str] = ()) -> HardwareReports:
    """Agents in these hosts see so many adapters, all up; those for storage are front-end ones."""
    by_host = {
        host: (
            HardwareReport(
                "agent",
                Provenance.SEEN,
                tuple(
                    Part(name, Kind.ADAPTER, names=(name,), role=role, up=True)
                    for role, names in (
                        (AdapterRole.RAIL, [f"mlx5_{at}" for at in range(count)]),
                        (AdapterRole.FRONT_END, storage),
                    )
                    for name in names
                ),
            ),
        )
        for host, count in hosts.items()
    }
    return HardwareReports("agents", by_host)


def test_two_kinds_of_machines_from_cables_and_agents_are_sound() -> None:
    cables = upwards(plugged("big", 30, "new", 8) + plugged("small", 20, "old", 4))
    counts = {f"big-{at}": 8 for at in range(30)} | {f"small-{at}": 4 for at in range(20)}
    found = fabric.of(counts, [networks.of(wiring(cables)), seen(counts)])
    assert {rails.order for rails in found.rails.values()} == {(0, 1, 2, 3), tuple(range(8))}
    assert (miscabled(found), found.relative_speeds) == ({}, {})


def test_absent_adapter_misses_no_cable() -> None:
    """By cables alone, one among six with fewer adapters has lost two cables."""
    counts = {f"n{at}": 4 for at in range(6)} | {"n3": 2}
    cables = [
        (f"{host} mlx5_{nic}", f"t{nic}") for host, its in counts.items() for nic in range(its)
    ]
    network = networks.of(wiring(cables))
    assert miscabled(fabric.of(counts, [network])) == {"n3": [2, 3]}
    found = fabric.of(counts, [network, seen(counts)])
    assert (miscabled(found), found.rails["n3"]) == ({}, Rails((0, 1)))
    elsewhere = fabric.of(counts, [network, seen({"n3": 4})])
    assert miscabled(elsewhere) == {"n3": [2, 3]}


def test_absent_usual_adapter_is_reported_on_its_cable_rail() -> None:
    network = networks.of(wiring(paired("mlx5_3")))
    counts = {f"h{at}": 4 for at in range(24)} | {"h3": 3}
    (only,) = fabric.of(counts, [network, seen(counts)]).rails["h3"].miscabled
    assert only.description == (
        "rail 1 is miscabled at mlx5_3: it is not there, and on a rail in others of the node's kind"
    )


def test_storage_adapters_on_few_agent_nodes_are_no_rails() -> None:
    cables = plugged("n", 24, "new", 4)
    cables += [(f"n-{at} mlx5_4", "storage") for at in range(24)]
    few = {f"n-{at}": 4 for at in range(8)}
    nodes = [f"n-{at}" for at in range(24)]
    network = networks.of(wiring(upwards(cables)))
    found = fabric.of(nodes, [network, seen(few, ["mlx5_4"])])
    assert miscabled(found) == {}
    assert found.rails["n-3"] == Rails((0, 1, 2, 3))
