"""Each format of a node's inside: what is planted is read, and what is broken is refused with its
place and rule. The files are written for these tests by the formats' public rules; real tools are
read in tests/integration/test_hardware_real.py."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random

import pytest

from fixtures import hardware_facts, machine_files, machines
from fixtures.machines import Machine
from fixtures.remarks import remarks
from railwright_topology import hardware_inventory
from railwright_topology.parts import Distance, HardwareReport, Layer, Link, Technology
from railwright_topology.sources import (
    described,
    hwloc,
    kfd,
    nccl_topology,
    nvidia_smi,
    strict_xml,
    sysfs,
)
from railwright_topology.wiring import WiringError

READ: dict[str, Callable[[Machine], HardwareReport]] = {
    "nccl": lambda machine: nccl_topology.parse(machine_files.nccl_topology(machine)),
    "rccl": lambda machine: nccl_topology.parse(machine_files.rccl_topology(machine)),
    "nvidia-smi": lambda machine: nvidia_smi.parse(
        machine_files.nvidia_smi(machine), machine_files.nvidia_inventory(machine)
    ),
    "hwloc": lambda machine: hwloc.parse(machine_files.hwloc(machine)),
    "sysfs": lambda machine: sysfs.parse(machine_files.sysfs(machine)),
    "KFD": lambda machine: kfd.parse(machine_files.kfd(machine)),
    "description": lambda machine: described.parse_own(machine_files.description(machine)),
}


@pytest.mark.parametrize("source", READ)
def test_what_is_planted_is_read(source: str) -> None:
    for seed in range(40):
        machine = machines.planted(Random(seed))
        found = hardware_inventory.of([READ[source](machine)])
        assert hardware_facts.read(found, source) == hardware_facts.expected(machine, source), seed


def test_all_sources_of_one_machine_agree() -> None:
    for seed in range(20):
        machine = machines.planted(Random(seed))
        hardware_reports = [
            read(machine) for source, read in READ.items() if source not in ("KFD", "rccl")
        ]
        found = hardware_inventory.of(hardware_reports)
        assert not found.conflicts, seed
        assert hardware_facts.read(found, "all") == hardware_facts.expected(machine, "all"), seed


NCCL = """<system version="1">
<cpu numaid="0">
<pci busid="0000:17:00.0" class="0x030200">
<gpu dev="0"><nvlink target="0000:3d:00.0" count="2" tclass="0x030200"/></gpu>
</pci>
<pci busid="0000:3d:00.0" class="0x030200">
<gpu dev="1"><nvlink target="0000:17:00.0" count="2" tclass="0x030200"/></gpu>
</pci>
</cpu>
</system>
"""


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        ("", "", ""),
        ('version="1"', 'version="3"', "line 1: version '3' is read as version 2"),
        ("<system", "<graphs", "line 10: is not XML: mismatched tag"),
        ('class="0x030200">\n<gpu dev="0"', 'class="gpu">\n<gpu dev="0"', "line 3: class='gpu'"),
        ('0000:17:00.0" class', '17" class', "line 3: busid='17': expected a PCI address"),
        ('0000:3d:00.0" class', '0000:17:00.0" class', "line 6: 0000:17:00.0 is described twice"),
        (
            'target="0000:17:00.0" count="2"',
            'target="0000:17:00.0" count="3"',
            "do not say the same",
        ),
        ('<nvlink target="0000:17:00.0" count="2" tclass="0x030200"/>', "", "not to 0000:17:00.0"),
        ('count="2"', 'count="0"', "line 4: count='0': expected 1 to 1024 links"),
        ('count="2"', 'count="two"', "line 4: count='two': expected a whole number"),
        (
            'class="0x030200">',
            'class="0x030200" vendor="0x10\x7fde">',
            "line 3: vendor='0x10\\x7fde': expected hexadecimal digits",
        ),
        ('numaid="0"', 'numaid="x"', "line 2: numaid='x': expected a whole number"),
    ],
)
def test_nccl_omission_has_its_rule(before: str, after: str, rule: str) -> None:
    if not rule:
        assert nccl_topology.parse(NCCL).links == (
            Link(("0000:17:00.0", "0000:3d:00.0"), Technology.NVLINK, 2, switched=False),
        )
        return
    text = NCCL.replace(before, after, 1)
    assert text != NCCL
    assert rule in remarks(lambda: nccl_topology.parse(text))


def test_amds_links_are_xgmi() -> None:
    report = nccl_topology.parse(NCCL.replace("nvlink", "xgmi").replace("0x030200", "0x120000"))
    assert [link.technology for link in report.links] == [Technology.XGMI]
    assert report.complete == {Technology.XGMI}


def test_adapters_that_are_used_as_one_are_there_once() -> None:
    text = """<system version="1"><cpu numaid="0"><pci busid="0000:18:00.0" class="0x020700"><nic>
      <net name="mlx5_0"/><net name="mlx5_0+mlx5_1"/></nic></pci><nic><net name="mlx5_1"/></nic>
      </cpu></system>"""
    report = nccl_topology.parse(text)
    assert [part.names for part in report.parts] == [("mlx5_0",), ("mlx5_1",)]
    assert report.remarks == ("line 2: mlx5_0+mlx5_1 is on an adapter that is there already",)


def test_a_file_of_several_nodes_is_refused() -> None:
    def of(first: str, second: str) -> str:
        return f'<system version="1"><cpu numaid="0"{first}/><cpu numaid="1"{second}/></system>'

    assert nccl_topology.parse(of("", ' host_hash="0x1"')).parts == ()
    reported = remarks(lambda: nccl_topology.parse(of(' host_hash="0x2"', ' host_hash="0x1"')))
    assert reported == "NCCL topology, line 1: 2 nodes are in it: one is read"


def test_what_a_cloud_gives_has_no_names_and_no_links() -> None:
    text = """<system version="1"><cpu numaid="0"><pci busid="ffff:ff:01.0" class="0x060400">
      <pci busid="0001:00:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16"/>
      <pci busid="0101:00:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16"/>
    </pci></cpu></system>"""
    report = nccl_topology.parse(text)
    assert report.distances == {("0001:00:00.0", "0101:00:00.0"): Distance.SWITCH}
    assert report.parts[1].layer == Layer.INFINIBAND
    assert report.parts[0].pcie_bytes_per_s == 63_015_384_615
    assert not report.complete


def test_link_to_unlisted_accelerator_is_remarked() -> None:
    text = NCCL.replace(NCCL[NCCL.index('<pci busid="0000:3d') : NCCL.index("</cpu>")], "")
    report = nccl_topology.parse(text)
    assert not report.links
    assert report.remarks == ("0000:17:00.0 and 0000:3d:00.0 are linked: not both are known",)


def test_nccl_topology_lists_further_ports_and_rails() -> None:
    text = """<system version="1"><cpu numaid="-1">
      <pci busid="0000:18:00.0" class="0x020000"><nic>
        <net name="mlx4_0" port="1" speed="56000" railId="3"/>
        <net name="mlx4_0" port="2" speed="56000"/></nic></pci>
      <nic><net name="eth0" speed="10000"/></nic></cpu></system>"""
    parts = {part.id: part for part in nccl_topology.parse(text).parts}
    assert [*parts] == ["0000:18:00.0", "eth0", "mlx4_0/2"]
    assert parts["0000:18:00.0"].rail == 3
    assert parts["0000:18:00.0"].numa is None
    assert parts["mlx4_0/2"].pci == "0000:18:00.0"
    assert parts["eth0"].bytes_per_s == 1_250_000_000


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('<!DOCTYPE t [<!ENTITY a "b">]><t>&a;</t>', "line 1: entity 'a': none is read"),
        ('<!DOCTYPE t [<!ENTITY a SYSTEM "/etc/passwd">]><t/>', "entity 'a': none is read"),
        ("<t>" * 65 + "</t>" * 65, "line 1: is more than 64 levels deep"),
        ("", "is not XML: no element found"),
        ("<t>&undefined;</t>", "is not XML: undefined entity"),
        ("<x/>", "<t> is the outermost element, not <x>"),
        ("<t\ud800/>", "is not XML: surrogates not allowed"),
        ("<t>" + " " * strict_xml.CHARACTERS_MAX, "characters, at most"),
        ("<t>" + "<a/>" * strict_xml.ELEMENTS_MAX + "</t>", "has more than 131072 elements"),
    ],
)
def test_xml_that_is_none_or_too_much_is_refused(text: str, rule: str) -> None:
    with pytest.raises(WiringError, match=re.escape(rule)):
        strict_xml.read("x", text, "t")


MATRIX = """\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV4\tPIX\t0-31\t0\t\tN/A
GPU1\tNV4\t X \tSYS\t32-63\t0-1\t\tN/A
NIC0\tPIX\tSYS\t X \t\t

NIC Legend:

  NIC0: mlx5_0
"""


def test_matrix_without_inventory_names_parts_by_number() -> None:
    report = nvidia_smi.parse(MATRIX)
    assert [part.id for part in report.parts] == ["GPU0", "GPU1", "mlx5_0"]
    assert [part.numa for part in report.parts] == [0, None, None]
    assert report.distances == {
        ("GPU0", "mlx5_0"): Distance.SWITCH,
        ("GPU1", "mlx5_0"): Distance.SYSTEM,
    }
    assert report.links == (Link(("GPU0", "GPU1"), Technology.NVLINK, 4),)


def test_parts_of_unknown_distance_are_left_out() -> None:
    report = nvidia_smi.parse(MATRIX.replace("SYS", "N/A"))
    assert report.distances == {("GPU0", "mlx5_0"): Distance.SWITCH}


def test_older_drivers_head_their_columns_with_device_names() -> None:
    text = "\tGPU0\tmlx5_0\tCPU Affinity\nGPU0\t X \tSOC\t0-7\nmlx5_0\tSOC\t X \t\n"
    report = nvidia_smi.parse(text)
    assert report.distances == {("GPU0", "mlx5_0"): Distance.SYSTEM}
    assert report.parts[1].names == ("mlx5_0",)


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        (MATRIX, "", "line 1: the matrix starts with its columns"),
        ("GPU1\tNV4\t X \tSYS\t32-63\t0-1\t\tN/A\n", "", "line 1: GPU1 has a column and no row"),
        ("NIC0\tPIX\tSYS\t X \t\t\n", "", "line 1: NIC0 has a column and no row"),
        ("NIC0\tPIX\tSYS", "NIC0\tPIX", "line 4: 2 of 3 columns are there"),
        ("NIC0\tPIX", "NIC0\tPXB", "line 4: NIC0 and GPU0 are 'PXB' here, and 'PIX' there"),
        ("GPU0\t X ", "GPU0\tPIX", "line 2: GPU0 and itself are X"),
        ("NV4", "NV0", "line 3: GPU1 and GPU0 are 'NV4' here, and 'NV0' there"),
        ("\tGPU0\tGPU1", "\tGPU0\tGPU0", "line 1: each of at most 256 GPUs and adapters"),
    ],
)
def test_matrix_omission_has_its_rule(before: str, after: str, rule: str) -> None:
    assert rule in remarks(lambda: nvidia_smi.parse(MATRIX.replace(before, after, 1)))


@pytest.mark.parametrize("inventory", ["0, 17", "zero, 00000000:17:00.0", "0, 0:0\n"])
def test_an_inventory_that_is_none_is_left_out(inventory: str) -> None:
    assert "each line has a GPU's number and its PCI address" in remarks(
        lambda: nvidia_smi.parse(MATRIX, inventory)
    )


def test_invalid_distance_is_left_out() -> None:
    text = MATRIX.replace("PIX", "FAR")
    assert "'FAR': expected one of PIX, PXB, PHB, NODE, SYS, SOC, or NV and a number" in remarks(
        lambda: nvidia_smi.parse(text)
    )


HWLOC = machine_files.hwloc(machines.planted(Random(5)))


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        ('version="2.0"', 'version="4.0"', "line 3: version '4.0' is read as version 2"),
        (
            'nodeset="0x00000003"',
            'nodeset="all"',
            "line 4: nodeset='all': expected a set of NUMA nodes",
        ),
        (
            ' pci_type="0302 [10de',
            ' pci_type="0302 10de',
            "expected class and ids such as 0302 [10de:2330]",
        ),
        (' bridge_pci="', ' bridge="', "has an attribute bridge_pci"),
        (' type="PCIDev"', "", "<object> has an attribute type"),
    ],
)
def test_hwloc_omission_has_its_rule(before: str, after: str, rule: str) -> None:
    assert before in HWLOC
    assert rule in remarks(lambda: hwloc.parse(HWLOC.replace(before, after, 1)))


def test_a_matrix_of_hwloc_has_as_many_values_as_objects_squared() -> None:
    machine = next(m for m in map(machines.planted, map(Random, range(99))) if m.links)
    text = machine_files.hwloc(machine)
    values = text[text.index("<u64values") : text.index("</distances2hetero>")]
    assert "values: n and n² up to 256" in remarks(lambda: hwloc.parse(text.replace(values, "")))
    odd = text.replace(" 1000000 ", " lots ").replace(">1000000 ", ">lots ")
    assert "'lots': expected megabytes a second" in remarks(lambda: hwloc.parse(odd))


def test_switched_links_have_bandwidth_of_the_slower_end() -> None:
    devices = "".join(
        f'<object type="PCIDev" gp_index="{n}" pci_busid="0000:{n:02x}:00.0"'
        f' pci_type="{code} [10de:2330] [0:0] a1"/>'
        for n, code in ((1, "0302"), (2, "0302"), (3, "0680"), (4, "0680"))
    )
    values = "0 0 50 50 0 0 50 25 50 50 0 0 50 25 0 0"
    text = f"""<topology version="2.0"><object type="Machine">{devices}</object>
    <distances2 type="PCIDev" nbobjs="4" kind="25" name="NVLinkBandwidth" indexing="gp">
    <indexes>1 2 3 4</indexes><u64values>{values}</u64values></distances2></topology>"""
    (link,) = hwloc.parse(text).links
    assert (link.bytes_per_s, link.switched) == (75_000_000, True)


def test_a_description_is_read_for_each_of_its_nodes() -> None:
    text = """
version: 1
kinds:
- nodes: npu-[01-02]
  accelerators: [{numa: 0}, {numa: 1}]
  links:
  - {technology: HCCS, among: [0, 1], count: 7, speed: 1568 Gb/s}
  adapters:
  - {name: roce0, speed: 200 Gb/s, layer: Ethernet, beside: [0], role: rail, rail: 0}
  - {name: eth0, role: front-end}
"""
    hardware_reports = described.parse(text)
    assert sorted(hardware_reports.by_host) == ["npu-01", "npu-02"]
    (report,) = hardware_reports.by_host["npu-01"]
    ends = ("accelerator 0", "accelerator 1")
    assert report.links == (Link(ends, Technology.HCCS, 7, 196_000_000_000),)
    assert report.distances == {("accelerator 0", "roce0"): Distance.SWITCH}
    assert report.complete == {Technology.HCCS}


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("{accelerators: [], links: []}", "nodes is not there"),
        ("{nodes: a, wheels: 4}", "'wheels' is no field of a kind of node"),
        ("{nodes: a, accelerators: [{pci: x}]}", "'x': expected a PCI address"),
        ("{nodes: a, accelerators: [{numa: -1}]}", "'-1': expected a number up to 1024"),
        ("{nodes: a, accelerators: [{model: H100}]}", "'H100': expected PCI vendor and device"),
        ("{nodes: a, links: [{technology: rope, among: []}]}", "one of these stands here: NVLink"),
        ("{nodes: a, links: [{among: []}]}", "technology is not there"),
        (
            "{nodes: a, accelerators: [{}], links: [{technology: HCCS, among: [0, 1]}]}",
            "1: accelerators 0 to 0 stand here, each once",
        ),
        ("{nodes: a, adapters: [{speed: 1 Gb/s}]}", "name is not there"),
        (
            "{nodes: a, adapters: [{name: n, speed: fast}]}",
            "'fast': expected a speed such as 200 Gb/s",
        ),
        ("{nodes: a, adapters: [{name: n, rail: 1}]}", "a rail is there where role is rail"),
        ("{nodes: a, adapters: [{name: n}, {name: n}]}", "'n' is described twice"),
    ],
)
def test_description_omission_has_its_rule(kind: str, rule: str) -> None:
    text = f"version: 1\nkinds:\n- {kind}\n"
    assert re.search(f"line 3: .*{re.escape(rule)}", remarks(lambda: described.parse(text)))


def test_on_a_node_itself_no_nodes_are_named() -> None:
    text = json.dumps({"version": 1, "kinds": [{"nodes": "a"}]})
    assert "one kind is described, and no nodes are named" in remarks(
        lambda: described.parse_own(text)
    )
