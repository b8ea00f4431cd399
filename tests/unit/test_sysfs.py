"""What the kernel shows, read: odd devices, cables that are down, ports, virtual machines, AMD."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from fixtures import machine_files, machines
from fixtures.machines import LINK_MB_S
from fixtures.remarks import remarks
from railwright_agent import kernel
from railwright_topology import hardware_inventory
from railwright_topology.parts import Distance, Layer, Part, Technology
from railwright_topology.sources import kfd, sysfs

Sections = dict[str, dict[str, dict[str, str]]]

GPU, NIC = "0000:17:00.0", "0000:18:00.0"


def device(address: str, class_code: str, ids: str = "15b3:1021", **more: str) -> dict[str, str]:
    vendor, number = ids.split(":")
    return {
        "path": f"devices/pci0000:15/0000:15:01.0/{address}",
        "class": f"0x{class_code}00",
        "vendor": f"0x{vendor}",
        "device": f"0x{number}",
        **more,
    }


def sections(**more: dict[str, dict[str, str]]) -> Sections:
    pci = {GPU: device(GPU, "0302", "10de:2330"), NIC: device(NIC, "0207")}
    return {"pci": pci, **more}


def rdma(**files: str) -> dict[str, str]:
    return {"path": device(NIC, "0207")["path"], **files}


def interface(**files: str) -> dict[str, str]:
    return {"path": device(NIC, "0207")["path"], **files}


def adapters(stated: Sections) -> list[Part]:
    return [part for part in sysfs.parse(stated).parts if part.id != GPU]


PORT = {
    "ports/1/rate": "400 Gb/sec (4X NDR)",
    "ports/1/state": "4: ACTIVE",
    "ports/1/link_layer": "InfiniBand",
}


def test_adapter_is_named_by_rdma_device_and_interfaces() -> None:
    stated = sections(
        infiniband={"mlx5_0": rdma(**PORT)},
        net={"ibp24s0": interface(type="32", operstate="up", speed="400000")},
    )
    (part,) = adapters(stated)
    assert part.names == ("mlx5_0", "ibp24s0")
    assert part.bytes_per_s == 50_000_000_000
    assert part.layer == Layer.INFINIBAND
    assert part.up


def test_interface_alone_is_an_adapter_and_vf_is_none() -> None:
    stated = sections(net={"ens1": interface(type="1", operstate="up", speed="25000")})
    (part,) = adapters(stated)
    assert (part.names, part.layer, part.bytes_per_s) == (("ens1",), Layer.ETHERNET, 3_125_000_000)
    stated["pci"][NIC]["physfn"] = ""
    assert not adapters(stated)


def test_cable_down_has_no_speed() -> None:
    down = PORT | {"ports/1/state": "1: DOWN", "ports/1/rate": "10 Gb/sec (4X SDR)"}
    (part,) = adapters(sections(infiniband={"mlx5_0": rdma(**down)}))
    assert (part.bytes_per_s, part.up) == (0, False)
    (part,) = adapters(sections(net={"ens1": interface(operstate="down", speed="1000")}))
    assert (part.bytes_per_s, part.up) == (0, False)


@pytest.mark.parametrize("stated", ["-1", "4294967295"])
def test_a_speed_that_the_kernel_does_not_know_is_none(stated: str) -> None:
    (part,) = adapters(sections(net={"ens1": interface(operstate="up", speed=stated)}))
    assert (part.bytes_per_s, part.up) == (0, True)


def test_further_ports_are_parts_with_interfaces_of_their_own() -> None:
    second = {name.replace("/1/", "/2/"): stated for name, stated in PORT.items()}
    second["ports/2/link_layer"] = "Ethernet"
    stated = sections(
        infiniband={"mlx4_0": rdma(**PORT, **second)},
        net={"ib0": interface(dev_port="0"), "ens1": interface(dev_port="1")},
    )
    assert [(part.id, part.names, part.layer) for part in adapters(stated)] == [
        (NIC, ("mlx4_0", "ib0"), Layer.INFINIBAND),
        (f"{NIC}/2", ("mlx4_0/2", "ens1"), Layer.ETHERNET),
    ]


def test_a_clouds_own_fabric_is_of_another_layer() -> None:
    stated = sections(
        infiniband={"rdmap24s0": rdma(**PORT | {"ports/1/link_layer": "Unspecified"})}
    )
    assert adapters(stated)[0].layer == Layer.OTHER


def test_interface_without_pci_network_device_is_no_adapter() -> None:
    usb = "devices/pci0000:15/0000:15:02.0/0000:16:00.0/usb1/1-1/1-1:1.0"
    stated = sections(net={"enx0": {"path": usb}, "virbr0": {"path": "."}})
    stated["pci"]["0000:16:00.0"] = device("0000:16:00.0", "0c03", "8086:1234")
    (part,) = adapters(stated)
    assert part.names == ()


def test_representors_of_vfs_do_not_name_their_adapter() -> None:
    net = {f"ens1_{n}": interface(phys_port_name=f"pf0vf{n}") for n in range(64)}
    (part,) = adapters(sections(net={**net, "ens1": interface(phys_port_name="p0")}))
    assert part.names == ("ens1",)


def test_console_graphics_is_no_accelerator_and_amd_is() -> None:
    for class_code, ids, count in (
        ("0300", "1a03:2000", 0),
        ("0300", "10de:2684", 1),
        ("0380", "1002:740f", 1),
        ("1200", "1002:74a1", 1),
        ("1200", "19e5:d802", 1),
        ("0604", "1000:c030", 0),
    ):
        found = sysfs.parse({"pci": {GPU: device(GPU, class_code, ids)}})
        assert len(found.parts) == count, (class_code, ids)


def test_parts_at_pci_root_have_no_distances() -> None:
    stated = sections(machine={"cpu": {"hypervisor": "yes"}})
    for at, address in enumerate((GPU, NIC)):
        stated["pci"][address] |= {"path": f"devices/pci000{at}:00/{address}", "numa_node": str(at)}
    report = sysfs.parse(stated)
    assert report.hides_tree
    assert report.virtual
    assert not report.distances
    assert [part.numa for part in report.parts] == [0, 1]


def test_a_virtual_machine_that_shows_its_tree_hides_nothing() -> None:
    report = sysfs.parse(sections(machine={"cpu": {"hypervisor": "yes"}}))
    assert report.virtual
    assert report.hides_tree is False
    assert report.distances == {(GPU, NIC): Distance.BRIDGE}


def test_the_slower_one_of_a_part_and_the_port_above_it_counts() -> None:
    fast, slow = {"max_link_speed": "32.0 GT/s PCIe"}, {"max_link_speed": "16.0 GT/s PCIe"}
    stated = {
        "pci": {
            GPU: device(GPU, "0302", "10de:2330", **fast, max_link_width="16"),
            "0000:15:01.0": {**slow, "max_link_width": "16"},
        }
    }
    assert sysfs.parse(stated).parts[0].pcie_bytes_per_s == 31_507_692_308


@pytest.mark.parametrize(
    ("section", "name", "file", "stated", "rule"),
    [
        ("pci", GPU, "class", "gpu", f"{GPU}/class: 'gpu' is no number such as 0x10de"),
        ("pci", GPU, "numa_node", "one", f"{GPU}/numa_node: 'one' is no whole number"),
        ("pci", "17:0", "class", "0x030200", "'17:0' is no PCI address"),
        ("net", "ens1", "speed", "fast", "net/ens1/speed: 'fast' is no whole number"),
        ("infiniband", "m", "ports/1/rate", "fast", "infiniband/m: 'fast' is no rate"),
    ],
)
def test_what_the_kernel_never_writes_is_left_out(
    section: str, name: str, file: str, stated: str, rule: str
) -> None:
    whole = sections(net={"ens1": interface()}, infiniband={"m": rdma()})
    whole[section].setdefault(name, {})[file] = stated
    assert rule in remarks(lambda: sysfs.parse(whole))


def test_a_whole_tree_of_files_is_read_as_it_was_written(tmp_path: Path) -> None:
    for seed in range(6):
        root = tmp_path / str(seed)
        machine = machines.planted(Random(seed))
        written = machine_files.sysfs(machine)
        machine_files.write_sysfs(root, written)
        (root / "sys/class/net/lo").mkdir()
        assert kernel.sections(root) == written
        assert kernel.accelerators(root) == {}


def test_a_machine_that_shows_nothing_has_nothing(tmp_path: Path) -> None:
    report = sysfs.parse(kernel.sections(tmp_path))
    assert not report.parts
    assert report.virtual is None
    assert report.hides_tree is None


def test_amds_nodes_are_read_from_files(tmp_path: Path) -> None:
    machine = next(m for m in map(machines.planted, map(Random, range(99))) if m.links)
    nodes = machine_files.kfd(machine)
    machine_files.write_kfd(tmp_path, nodes)
    read = kernel.accelerators(tmp_path)
    assert kfd.parse(read) == kfd.parse(nodes)
    found = hardware_inventory.of([kfd.parse(read), sysfs.parse(machine_files.sysfs(machine))])
    assert {link.technology for link in found.links} == {Technology.XGMI}
    assert len(found.links) == len(machine.links)
    assert not found.conflicts


def test_accelerators_connected_by_pcie_alone_have_no_links() -> None:
    machine = next(m for m in map(machines.planted, map(Random, range(99))) if m.links)
    nodes = machine_files.kfd(machine)
    by_pcie = {
        node: {file: stated.replace("type 11\n", "type 2\n") for file, stated in files.items()}
        for node, files in nodes.items()
    }
    report = kfd.parse(by_pcie)
    assert len(report.parts) == len(machine.gpus)
    assert not report.links
    assert report.complete == {Technology.XGMI}


@pytest.mark.parametrize(
    ("node", "file", "stated", "rule"),
    [
        ("2", "properties", "location_id many", "'location_id many' is no word and its number"),
        ("2", "properties", "location_id 99999999", "are no PCI address"),
        ("2", "properties", "domain 0", "location_id -1 and domain 0 are no PCI address"),
        ("2", "io_links/1/properties", "type 11\nnode_from 3\nnode_to 2", "a link of node 3"),
        ("3", "properties", "location_id 256", "is described twice"),
        (
            "2",
            "io_links/1/properties",
            "type 11\nnode_from 2\nnode_to 3\nmax_bandwidth 5",
            "0000:01:00.0 is linked to 0000:02:00.0, and 0000:02:00.0 not to 0000:01:00.0",
        ),
    ],
)
def test_what_amds_driver_never_writes_is_left_out(
    node: str, file: str, stated: str, rule: str
) -> None:
    nodes = {
        "2": {"gpu_id": "1", "properties": "location_id 256\ndomain 0"},
        "3": {"gpu_id": "2", "properties": "location_id 512\ndomain 0"},
    }
    nodes[node][file] = stated
    assert rule in remarks(lambda: kfd.parse(nodes))


def partitions(place: int, *, shift: int) -> dict[str, dict[str, str]]:
    """Two accelerators with two partitions each, as the driver shows all four of them."""
    places = {number: (place + (number // 2 << 8)) | number % 2 << shift for number in range(4)}
    nodes = {"0": {"gpu_id": "0", "properties": "cpu_cores_count 64"}}
    for number, its in places.items():
        files = {"gpu_id": str(40000 + number), "properties": f"location_id {its}\ndomain 0"}
        for other in places.keys() - {number}:
            within = number // 2 == other // 2
            stated = f"type 11\nnode_from {number + 1}\nnode_to {other + 1}\n"
            stated += f"max_bandwidth {819200 if within else LINK_MB_S}\n"
            files[f"io_links/{other}/properties"] = stated
        nodes[str(number + 1)] = files
    return nodes


@pytest.mark.parametrize("shift", [0, 28])
def test_partitions_of_an_accelerator_are_one_part(shift: int) -> None:
    """The driver has the number of a partition in bits 28 to 31, or in place of the function."""
    report = kfd.parse(partitions(0x0500, shift=shift))
    assert [part.id for part in report.parts] == ["0000:05:00.0", "0000:06:00.0"]
    assert not report.remarks
    (link,) = report.links
    assert link.ends == ("0000:05:00.0", "0000:06:00.0")
    assert link.bytes_per_s == LINK_MB_S * 1_000_000


def test_lost_partition_loses_neither_part_nor_link() -> None:
    nodes = partitions(0x0500, shift=28)
    whole = kfd.parse(nodes)
    nodes["1"]["properties"] = "location_id many"
    found = kfd.parse(nodes)
    assert (found.parts, found.links) == (whole.parts, whole.links)


def test_function_of_a_lone_accelerator_is_no_partition() -> None:
    nodes = {"2": {"gpu_id": "1", "properties": "location_id 1281\ndomain 0"}}
    (part,) = kfd.parse(nodes).parts
    assert part.pci == "0000:05:00.1"


def test_words_of_later_drivers_are_passed_over() -> None:
    """Patches of the driver make unique_id hexadecimal, and add the name of a family."""
    stated = "location_id 1280\ndomain 0\nunique_id 0x1f2e\nisa_family gfx94X"
    report = kfd.parse({"2": {"gpu_id": "1", "properties": stated}})
    assert [part.pci for part in report.parts] == ["0000:05:00.0"]
    assert not report.remarks
