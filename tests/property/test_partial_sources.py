"""One element of a valid file dropped, doubled or garbled: only what hangs on it changes, and
nothing raises.

Each format gives its elements: a file with that element changed, and which hosts or devices hang on
it. What all the others are read as has to stay the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import site_fixtures
from bench.site_fixtures import Site
from fixtures import machine_files, machines
from fixtures.changes import JUNK_TEXTS, Changed, one_element, one_entry, one_line
from fixtures.examples import examples
from fixtures.machines import Machine
from fixtures.rank_tables import table
from railwright_topology.parts import HardwareReport
from railwright_topology.source_reports import SourceReport
from railwright_topology.sources import (
    hccl,
    hwloc,
    ibnetdiscover,
    kfd,
    lldp,
    nccl_topology,
    nvidia_smi,
    plan,
    slurm,
    sysfs,
    topograph,
)
from railwright_topology.wiring import Wiring, WiringError

MACHINES = st.builds(machines.planted, st.randoms(use_true_random=False))
SITES = st.builds(site_fixtures.planted, st.randoms(use_true_random=False))


def below(site: Site, name: str) -> frozenset[str]:
    return frozenset(node for node, path in site.paths.items() if name in path)


def chains(source_report: SourceReport, but: frozenset[str]) -> dict[str, tuple[list[str], str]]:
    """The domains of each node outwards, each once, and its scale-up domain."""
    return {
        node: (
            list(dict.fromkeys(tier[node] for tier in source_report.tiers if node in tier)),
            source_report.scale_up_domains.get(node, ""),
        )
        for node in source_report.nodes - but
    }


def conf(site: Site, data: st.DataObject) -> Changed:
    text, line = one_line(site_fixtures.conf(site), data)
    return Changed(text, below(site, line.split()[0].removeprefix("SwitchName=")))


def yaml(site: Site, data: st.DataObject) -> Changed:
    stated = json.loads(site_fixtures.yaml(site))
    switches = stated[0]["tree"]["switches"]
    names = [each["switch"] for each in switches]
    places = [(0, "tree", "switches", at) for at in range(len(names))]
    return Changed(json.dumps(stated), below(site, names[one_entry(stated, places, data)]))


def model(site: Site, data: st.DataObject) -> Changed:
    stated = json.loads(site_fixtures.model(site))
    places: list[tuple[Any, ...]] = [("switches", name) for name in stated["switches"]]
    names = [*stated["switches"], *(block["switch"] for block in stated["blocks"])]
    places += (("blocks", at) for at in range(len(stated["blocks"])))
    return Changed(json.dumps(stated), below(site, names[one_entry(stated, places, data)]))


def graph(site: Site, data: st.DataObject) -> Changed:
    stated = json.loads(site_fixtures.graph(site))
    names = [each["id"] for each in stated["instances"]]
    places = [("instances", at) for at in range(len(names))]
    return Changed(json.dumps(stated), frozenset({names[one_entry(stated, places, data)]}))


def planned(site: Site, data: st.DataObject) -> Changed:
    stated = json.loads(site_fixtures.plan_of(site))
    domains = stated["domains"]
    places: list[tuple[Any, ...]] = [("domains", hall) for hall in domains]
    places += (("domains", hall, row) for hall in domains for row in domains[hall])
    places += (
        ("domains", hall, row, rack)
        for hall in domains
        for row in domains[hall]
        for rack in domains[hall][row]
    )
    which = one_entry(stated, places, data)
    return Changed(json.dumps(stated), below(site, places[which][-1]))


PLACED: dict[
    str,
    tuple[
        Callable[[Site], str],
        Callable[[Site, st.DataObject], Changed],
        Callable[[str], SourceReport],
    ],
] = {
    "topology.conf": (site_fixtures.conf, conf, lambda text: slurm.parse_conf(text)[0]),
    "topology.yaml": (site_fixtures.yaml, yaml, lambda text: slurm.parse_yaml(text)[0]),
    "topograph.yaml": (site_fixtures.model, model, topograph.parse_model),
    "topograph.json": (site_fixtures.graph, graph, topograph.parse_graph),
    "plan.yaml": (site_fixtures.plan_of, planned, plan.parse),
}


@pytest.mark.parametrize("name", PLACED)
@given(SITES, st.data())
@settings(max_examples=examples(12), deadline=None)
def test_one_bad_element_moves_only_nodes_on_it(name: str, site: Site, data: st.DataObject) -> None:
    write, change, read = PLACED[name]
    changed = change(site, data)
    found, whole = read(changed.text), read(write(site))
    before, after = (chains(each, changed.touched) for each in (whole, found))
    assert {node: its for node, its in after.items() if node in before} == before


@given(SITES, st.data())
@settings(max_examples=examples(12), deadline=None)
def test_one_bad_block_keeps_the_order_of_others(site: Site, data: st.DataObject) -> None:
    """Dropped, it is not there, and the blocks behind it move up; garbled, it keeps its place."""
    racks = site.up_to(1)
    lines = site_fixtures.blocks(racks).splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    name = lines[at].split()[0].removeprefix("BlockName=")
    stated = data.draw(st.sampled_from([lines[at][:12], f"BlockName={name} Nodes=n[", "?!", "x y"]))
    garbled = [*lines[:at], stated, *lines[at + 1 :]]
    touched = below(racks, name)
    found, whole = (
        slurm.parse_conf("\n".join([*each, "BlockSizes=2,4,8"]))[0] for each in (garbled, lines)
    )
    for tier, before in zip(found.tiers, whole.tiers, strict=True):
        kept = [node for node in before if node not in touched]
        assert groups(tier, kept) == groups(before, kept)


def groups(tier: Mapping[str, str], nodes: Sequence[str]) -> set[frozenset[str]]:
    found: dict[str, set[str]] = {}
    for node in nodes:
        found.setdefault(tier[node], set()).add(node)
    return {*map(frozenset, found.values())}


def nccl(machine: Machine, data: st.DataObject) -> Changed:
    return one_element(machine_files.nccl_topology(machine), data)


def rccl(machine: Machine, data: st.DataObject) -> Changed:
    return one_element(machine_files.rccl_topology(machine), data)


def lstopo(machine: Machine, data: st.DataObject) -> Changed:
    """Of a matrix of links everything hangs on each of its parts, so links are not compared."""
    return one_element(machine_files.hwloc(machine), data)


def matrix(machine: Machine, data: st.DataObject) -> Changed:
    text = machine_files.nvidia_smi(machine)
    lines = text.splitlines()
    count = len(machine.gpus) + len(machine.cards)
    names = [*(f"GPU{gpu.number}" for gpu in machine.gpus), *(card.name for card in machine.cards)]
    at = data.draw(st.integers(1, count))
    changed, _ = one_line(lines[at], data)
    lines[at : at + 1] = changed.splitlines() if changed.strip() else []
    return Changed("\n".join(lines), frozenset({names[at - 1]}))


LOOKS: dict[
    str,
    tuple[
        Callable[[Machine], str],
        Callable[[Machine, st.DataObject], Changed],
        Callable[[str], HardwareReport],
    ],
] = {
    "NCCL": (machine_files.nccl_topology, nccl, nccl_topology.parse),
    "RCCL": (machine_files.rccl_topology, rccl, nccl_topology.parse),
    "hwloc": (machine_files.hwloc, lstopo, hwloc.parse),
    "nvidia-smi": (machine_files.nvidia_smi, matrix, nvidia_smi.parse),
}


@pytest.mark.parametrize("name", LOOKS)
@given(MACHINES, st.data())
@settings(max_examples=examples(25), deadline=None)
def test_one_bad_element_changes_only_devices_on_it(
    name: str, machine: Machine, data: st.DataObject
) -> None:
    write, change, read = LOOKS[name]
    changed, whole = change(machine, data), read(write(machine))
    try:
        found = read(changed.text)
    except WiringError:
        # Nothing is left of it.
        assert changed.touched >= {part.id for part in whole.parts}
        return
    compare(found, whole, changed.touched, links=name != "hwloc")


def compare(
    found: HardwareReport, whole: HardwareReport, touched: frozenset[str], *, links: bool = True
) -> None:
    """Everything is the same but for the touched devices."""
    before = {part.id: part for part in whole.parts if part.id not in touched}
    after = {part.id: part for part in found.parts if part.id in before}
    assert after == before
    for both, near in whole.distances.items():
        if touched.isdisjoint(both):
            assert found.distances.get(both) == near
    for link in whole.links if links else ():
        if touched.isdisjoint(link.ends):
            assert link in found.links
    for link in found.links:
        if touched.isdisjoint(link.ends):
            assert link in whole.links


@given(MACHINES, st.data())
@settings(max_examples=examples(25), deadline=None)
def test_one_bad_file_of_the_kernel_changes_only_its_device(
    machine: Machine, data: st.DataObject
) -> None:
    sections = machine_files.sysfs(machine)
    whole = sysfs.parse(sections)
    section = data.draw(st.sampled_from(["pci", "infiniband", "net"]))
    device = data.draw(st.sampled_from(sorted(sections[section])))
    path = sections[section][device].get("path", "")
    if data.draw(st.booleans()):
        del sections[section][device]
    else:
        file = data.draw(st.sampled_from(sorted(sections[section][device])))
        sections[section][device][file] = data.draw(JUNK_TEXTS)
    # What is plugged into a port has its speed.
    touched = {address for address in machine.slots if address in path.split("/")}
    touched |= {
        address
        for address, files in machine_files.sysfs(machine)["pci"].items()
        if device in files["path"].split("/")
    }
    compare(sysfs.parse(sections), whole, frozenset(touched))


@given(MACHINES, st.data())
@settings(max_examples=examples(25), deadline=None)
def test_one_bad_file_of_amds_driver_changes_only_its_device(
    machine: Machine, data: st.DataObject
) -> None:
    nodes = machine_files.kfd(machine)
    whole = kfd.parse(nodes)
    node = data.draw(st.sampled_from(sorted(nodes)))
    if data.draw(st.booleans()):
        del nodes[node]
    else:
        nodes[node][data.draw(st.sampled_from(sorted(nodes[node])))] = data.draw(JUNK_TEXTS)
    touched = {gpu.address for gpu in machine.gpus if str(gpu.number + 2) == node}
    compare(kfd.parse(nodes), whole, frozenset(touched))


@given(st.integers(2, 4), st.data())
@settings(max_examples=examples(25), deadline=None)
def test_one_bad_server_or_device_changes_only_its_server(count: int, data: st.DataObject) -> None:
    servers = [f"server-{at}" for at in range(count)]
    stated = table("1.2", *servers)
    whole, pods = hccl.parse(json.dumps(stated))
    places: list[tuple[Any, ...]] = [("server_list", at) for at in range(count)]
    places += (("server_list", at, "device", n) for at in range(count) for n in range(8))
    touched = servers[places[one_entry(stated, places, data)][1]]
    found, others = hccl.parse(json.dumps(stated))
    for server in servers:
        if server != touched:
            assert found.by_host[server] == whole.by_host[server]
            assert others.scale_up_domains[server] == pods.scale_up_domains[server]


def cables(found: Wiring, touched: frozenset[str]) -> tuple[set[object], set[object]]:
    """Everything that no touched host or switch is an end of."""
    return (
        {up for up in found.uplinks if touched.isdisjoint((up.host, up.switch))},
        {trunk for trunk in found.trunks if touched.isdisjoint(trunk.ends)},
    )


def fabric_text(hosts: int) -> str:
    """Two leaves and a spine as ibnetdiscover prints them."""
    leaves = {f"S-a{at}": range(at, hosts, 2) for at in (0, 1)}
    sections = []
    for at, (leaf, its) in enumerate(leaves.items()):
        ports = [
            f'[{n + 1}]\t"H-b{host}"[1](b{host}) \t\t# "node-{host} mlx5_0" lid {host} 4xNDR'
            for n, host in enumerate(its)
        ]
        ports.append(f'[60]\t"S-c"[{at + 1}]\t\t# "MF0;spine:MQM9700/U1" lid 3 4xNDR')
        head = f'Switch\t65 "{leaf}"\t\t# "MF0;leaf-{at}:MQM9700/U1" enhanced port 0 lid {at} lmc 0'
        sections.append(["vendid=0x2c9", f"switchguid=0xa{at}(a{at})", head, *ports])
    ports = [
        f'[{at + 1}]\t"{leaf}"[60]\t\t# "MF0;leaf-{at}:MQM9700/U1" lid {at} 4xNDR'
        for at, leaf in enumerate(leaves)
    ]
    head = 'Switch\t65 "S-c"\t\t# "MF0;spine:MQM9700/U1" enhanced port 0 lid 3 lmc 0'
    sections.append(["vendid=0x2c9", "switchguid=0xc(c)", head, *ports])
    for host in range(hosts):
        leaf = f"S-a{host % 2}"
        port = f'[1](b{host}) \t"{leaf}"[{host // 2 + 1}]\t\t# lid {host} lmc 0 "leaf" lid 1 4xNDR'
        head = f'Ca\t1 "H-b{host}"\t\t# "node-{host} mlx5_0"'
        sections.append(["vendid=0x2c9", f"caguid=0xb{host}", head, port])
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


@given(st.integers(2, 9), st.data())
@settings(max_examples=examples(40), deadline=None)
def test_one_bad_line_of_ibnetdiscover_loses_only_its_cables(
    hosts: int, data: st.DataObject
) -> None:
    sections = fabric_text(hosts).split("\n\n")
    whole = ibnetdiscover.parse("\n\n".join(sections))
    at = data.draw(st.integers(0, len(sections) - 1))
    changed, _ = one_line(sections[at], data)
    sections[at : at + 1] = [changed]
    id_ = ["S-a0", "S-a1", "S-c", *(f"node-{host}" for host in range(hosts))][at]
    touched = frozenset({id_})
    found = ibnetdiscover.parse("\n\n".join(sections))
    assert cables(found, touched) == cables(whole, touched)


@given(st.integers(2, 5), st.data())
@settings(max_examples=examples(40), deadline=None)
def test_one_bad_neighbour_of_lldp_loses_only_itself(hosts: int, data: st.DataObject) -> None:
    stated = {f"node-{host}": output(host) for host in range(hosts)}
    whole = lldp.parse(json.dumps(stated))
    places: list[tuple[Any, ...]] = [(host,) for host in stated]
    places += ((host, "lldp", 0, "interface", at) for host in stated for at in (0, 1))
    touched = frozenset({places[one_entry(stated, places, data)][0]})
    found = lldp.parse(json.dumps(stated))
    assert cables(found, touched) == cables(whole, touched)


def output(host: int) -> dict[str, Any]:
    return {"lldp": [{"interface": [*(neighbour(host, rail) for rail in (0, 1))]}]}


def neighbour(host: int, rail: int) -> dict[str, Any]:
    chassis = {
        "id": [{"type": "mac", "value": f"b8:59:9f:00:0{rail}:0{host % 2}"}],
        "name": [{"value": f"leaf-{rail}-{host % 2}"}],
        "capability": [{"type": "Bridge", "enabled": True}],
    }
    return {"name": f"ens{rail}f0", "via": "LLDP", "chassis": [chassis]}
