"""Cables of the front-end network taken out of a wiring, and out of domains and rails."""

from __future__ import annotations

from railwright_topology import fabric, front_end, networks
from railwright_topology.fabric import Facts
from railwright_topology.networks import Network
from railwright_topology.parts import AdapterRole, HardwareReport, HardwareReports, Kind, Part
from railwright_topology.source_reports import Provenance
from railwright_topology.wiring import Switch, Trunk, Uplink, Wiring

SPEED = 50_000_000_000
HOSTS = [f"node-{n}" for n in range(8)]


def wiring() -> Wiring:
    """Two racks of two rails each under a spine, and storage under a leaf and a core that join the
    racks."""
    uplinks = [
        Uplink(host, f"mlx5_{rail}", f"tor-{at // 4}-{rail}", SPEED)
        for at, host in enumerate(HOSTS)
        for rail in (0, 1)
    ]
    uplinks += [Uplink(host, "mlx5_2", "storage", SPEED) for host in HOSTS]
    tors = [f"tor-{rack}-{rail}" for rack in (0, 1) for rail in (0, 1)]
    names = [*tors, "spine", "storage", "core"]
    trunks = [Trunk(("spine", tor), 4, SPEED) for tor in tors]
    trunks.append(Trunk(("core", "storage"), 4, SPEED))
    switches = tuple(Switch(name, name) for name in sorted(names))
    return Wiring("ibnetdiscover", switches, tuple(uplinks), tuple(trunks))


def hardware_reports(hosts: list[str]) -> HardwareReports:
    part = Part("mlx5_2", Kind.ADAPTER, names=("mlx5_2",), role=AdapterRole.FRONT_END)
    return HardwareReports(
        "agents",
        {host: (HardwareReport("description", Provenance.DECLARED, (part,)),) for host in hosts},
    )


def test_front_end_only_switches_belong_to_front_end() -> None:
    left = front_end.without(wiring(), {(host, "mlx5_2") for host in HOSTS})
    assert {switch.id for switch in left.switches} == {
        "spine",
        *(f"tor-{rack}-{rail}" for rack in (0, 1) for rail in (0, 1)),
    }
    assert len(left.uplinks) == 16
    assert not networks.of(left).faults


def test_a_switch_that_carries_both_stays() -> None:
    left = front_end.without(wiring(), {(HOSTS[0], "mlx5_2")})
    assert left.switches == wiring().switches
    assert len(left.uplinks) == 23


def test_wiring_without_front_end_is_unchanged() -> None:
    whole = wiring()
    assert front_end.without(whole, {("elsewhere", "mlx5_2")}) is whole


def test_hosts_sharing_storage_alone_share_no_domain() -> None:
    network: Network = networks.of(wiring())
    before = fabric.of(HOSTS, [network])
    assert len(before.sizes(HOSTS, len(before.levels) - 1)) == 1
    after = fabric.of(HOSTS, [network, hardware_reports(HOSTS)])
    assert [*after.sizes(HOSTS, len(after.levels) - 1).values()] == [4, 4]
    assert after.networks[0].rails == 2


def test_a_source_that_sees_the_front_end_alone_counts_as_it_is() -> None:
    uplinks = tuple(uplink for uplink in wiring().uplinks if uplink.nic == "mlx5_2")
    network = networks.of(Wiring("LLDP", (Switch("storage", "storage"),), uplinks))
    found = fabric.of(HOSTS, [network, hardware_reports(HOSTS)])
    assert found.networks == (network,)
    assert [*found.sizes(HOSTS, 0).values()] == [8]


def test_host_with_another_name_is_found_by_first_name() -> None:
    network: Network = networks.of(wiring())
    nodes = [f"{host}.example.com" for host in HOSTS]
    found = fabric.of(nodes, [network, hardware_reports(HOSTS)])
    assert found.networks[0].rails == 2
    assert {*found.inventories} == {*nodes}


def test_hosts_without_node_are_remarked() -> None:
    found = fabric.of(HOSTS[:1], [hardware_reports(HOSTS)])
    assert [*found.inventories] == HOSTS[:1]
    assert found.remarks == ("agents: no node of the cluster: 7 of 8, the first is node-1",)


def test_unchanged_inventory_is_reused() -> None:
    reported = hardware_reports(HOSTS)
    before = fabric.of(HOSTS, [reported])
    after = fabric.of(HOSTS[:4], [reported], before)
    assert after.inventories == {host: before.inventories[host] for host in HOSTS[:4]}
    assert after.inventories[HOSTS[0]] is before.inventories[HOSTS[0]]


def test_network_with_unchanged_cables_is_not_derived_again() -> None:
    reported: list[Facts] = [networks.of(wiring()), hardware_reports(HOSTS)]
    before = fabric.of(HOSTS, reported)
    after = fabric.of(HOSTS, reported, before)
    assert after.networks[0] is before.networks[0]
    assert (
        fabric.of(HOSTS, [reported[0], hardware_reports(HOSTS[:1])], before).networks
        != before.networks
    )
