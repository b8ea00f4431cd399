"""One rule for what is an accelerator or an adapter, and every reader that calls it."""

from __future__ import annotations

import pytest

from railwright_topology import hardware_inventory
from railwright_topology.parts import HardwareReport, Kind
from railwright_topology.sources import devices, hwloc, lldp, nccl_topology, nvidia_smi, sysfs

ACCELERATOR, ADAPTER = Kind.ACCELERATOR, Kind.ADAPTER

CLASSES = [
    ("0302", "10de:2330", ACCELERATOR),
    ("0300", "10de:2684", ACCELERATOR),
    ("0380", "1002:740f", ACCELERATOR),
    ("1200", "1002:74a1", ACCELERATOR),
    ("0380", "1d94:55b7", ACCELERATOR),
    ("1200", "19e5:d802", ACCELERATOR),
    ("1200", "1bcf:001c", ACCELERATOR),
    ("0b40", "1bcf:001c", ACCELERATOR),
    ("0380", "8086:0bd5", ACCELERATOR),
    ("0b40", "8086:0435", None),
    ("0300", "1a03:2000", None),
    ("0380", "1a03:2000", None),
    ("0300", "102b:0538", None),
    ("0380", "102b:0538", None),
    ("0300", "1002:515e", None),
    ("0300", "19e5:1711", None),
    ("0380", "1af4:1050", None),
    ("0300", "1234:1111", None),
    ("0300", "8086:3e98", None),
    ("0200", "15b3:1021", ADAPTER),
    ("0207", "15b3:1021", ADAPTER),
    ("0208", "8086:24f0", ADAPTER),
    ("0c06", "15b3:634a", ADAPTER),
    ("0280", "8086:2723", None),
    ("0604", "1000:c030", None),
    ("0108", "144d:a808", None),
    ("0680", "10de:22a3", None),
]
"""PCI classes and devices of real machines."""


def _nccl(code: str, ids: str) -> HardwareReport:
    vendor, device = ids.split(":")
    return nccl_topology.parse(
        f'<system version="1"><cpu numaid="0"><pci busid="0000:17:00.0" class="0x{code}00"'
        f' vendor="0x{vendor}" device="0x{device}"/></cpu></system>'
    )


def _hwloc(code: str, ids: str) -> HardwareReport:
    return hwloc.parse(
        '<topology version="2.0"><object type="Machine"><object type="PCIDev"'
        f' pci_busid="0000:17:00.0" pci_type="{code} [{ids}] [0:0] a1"/></object></topology>'
    )


def _sysfs(code: str, ids: str) -> HardwareReport:
    vendor, device = ids.split(":")
    files = {"class": f"0x{code}00", "vendor": f"0x{vendor}", "device": f"0x{device}"}
    return sysfs.parse({"pci": {"0000:17:00.0": files}})


@pytest.mark.parametrize("read", [_nccl, _hwloc, _sysfs])
@pytest.mark.parametrize(("code", "ids", "kind"), CLASSES)
def test_every_reader_calls_the_one_rule(
    read: object, code: str, ids: str, kind: Kind | None
) -> None:
    assert devices.kind(code, *ids.split(":")) == kind
    assert callable(read)
    assert [part.kind for part in read(code, ids).parts] == ([kind] if kind else [])


SOFTWARE = [
    *("lo", "veth1a2b3c", "docker0", "br-9f8e7d", "br0", "virbr0", "cni0", "cali12ab", "flannel.1"),
    *("cilium_host", "lxc1234", "vxlan100", "tunl0", "sit0", "tun0", "tap0", "wg0", "dummy0"),
    *("ifb0", "bond0", "team0", "vlan100", "eth0.100", "kube-ipvs0", "nodelocaldns", "ovs-system"),
    *("genev_sys_6081", "rxe0", "siw0", "usb0"),
]
HARDWARE = [
    *("eth0", "eno1", "ens1f0np0", "enp65s0f1", "ib0", "ibp23s0", "mlx5_0", "mlx5_bond_0"),
    *("bnxt_re0", "irdma0", "rocep1s0f0", "rdmap16s27", "hsn0", "cxi0", "brcm0", "hfi1_0"),
]


def test_interfaces_of_software_are_no_adapters() -> None:
    assert [name for name in SOFTWARE if not devices.is_by_software(name)] == []
    assert [name for name in HARDWARE if devices.is_by_software(name)] == []


@pytest.mark.parametrize("name", ["veth1a2b", "docker0", "br-1f", "tunl0", "bond0"])
def test_readers_of_names_pass_over_interfaces_of_software(name: str) -> None:
    nccl = nccl_topology.parse(
        f'<system version="1"><cpu numaid="0"><nic><net name="{name}" speed="10000"/>'
        '<net name="eth0" speed="10000"/></nic></cpu></system>'
    )
    assert [part.names for part in nccl.parts] == [("eth0",)]
    matrix = nvidia_smi.parse(
        "\tGPU0\tNIC0\tNIC1\nGPU0\t X \tPIX\tPIX\nNIC0\tPIX\t X \tPIX\n"
        f"NIC1\tPIX\tPIX\t X \n\nNIC Legend:\n\n  NIC0: {name}\n  NIC1: mlx5_0\n"
    )
    assert [part.id for part in matrix.parts] == ["GPU0", "mlx5_0"]
    neighbour = (
        '{"chassis": {"leaf": {"id": {"type": "mac", "value": "02:00:00:00:00:01"},'
        ' "capability": {"type": "Bridge", "enabled": true}}}}'
    )
    reported = f'{{"h": {{"lldp": {{"interface": [{{"{name}": {neighbour}}}]}}}}}}'
    assert not lldp.parse(reported).uplinks


def test_virtual_functions_are_their_adapter_once_more() -> None:
    def machine(*ids: str) -> HardwareReport:
        parts = "".join(
            f'<object type="PCIDev" pci_busid="0000:17:00.{at}" pci_type="0200 [{each}] [0:0]"/>'
            for at, each in enumerate(ids)
        )
        return hwloc.parse(
            f'<topology version="2.0"><object type="Machine">{parts}</object></topology>'
        )

    assert [part.model for part in machine("15b3:1021", "15b3:101e").parts] == ["15b3:1021"]
    assert [part.model for part in machine("15b3:101e", "8086:1592").parts] == [
        "15b3:101e",
        "8086:1592",
    ]


def test_nameless_function_beside_a_named_one_is_virtual() -> None:
    """hwloc does not say which functions are virtual; those that nothing uses have no name."""

    def function(slot: str, ids: str, name: str = "") -> str:
        named = f'<object type="OSDev" name="{name}" osdev_type="2"/>' if name else ""
        at = f'pci_busid="0000:{slot}" pci_type="0200 [{ids}] [0:0]"'
        return f'<object type="PCIDev" {at}>{named}</object>'

    shown = (
        function("0b:00.0", "1137:0043", "eth4"),
        function("0b:00.1", "1137:00cf"),
        function("0b:00.2", "1138:00cf"),
        function("0c:00.0", "14e4:1639", "eth5"),
        function("0c:00.1", "14e4:1639"),
        function("0d:00.0", "8086:1592"),
        function("0d:00.1", "8086:1593"),
        function("0e:00.1", "8086:1593"),
    )
    report = hwloc.parse(
        f'<topology version="2.0"><object type="Machine">{"".join(shown)}</object></topology>'
    )
    assert [part.pci[5:] for part in report.parts] == [
        *("0b:00.0", "0c:00.0", "0c:00.1", "0d:00.0", "0d:00.1", "0e:00.1")
    ]


DUAL = """<system version="2"><cpu numaid="0"><pci busid="0000:42:00.0" class="0x020000"
  vendor="0x15b3" device="0x1021" link_speed="32.0 GT/s PCIe" link_width="16"><nic>
  <net name="mlx5_0" dev="0" speed="200000" port="1"/>
  <net name="mlx5_1" dev="1" speed="200000" port="2"/></nic></pci></cpu></system>"""
"""A card with two ports, as NCCL writes it: both functions at the address of the first."""


def _function(number: int) -> dict[str, str]:
    return {
        "path": f"devices/pci0000:40/0000:40:01.0/0000:42:00.{number}",
        "class": "0x020000",
        "vendor": "0x15b3",
        "device": "0x1021",
        "numa_node": "0",
    }


def test_second_port_joins_the_adapter_of_sysfs() -> None:
    """NCCL calls the second function of a card port 2 of the first."""
    shown = {f"0000:42:00.{number}": _function(number) for number in (0, 1)}
    rdma = {
        f"mlx5_{number}": {
            "path": _function(number)["path"],
            "ports/1/rate": "200 Gb/sec (4X HDR)",
            "ports/1/state": "4: ACTIVE",
            "ports/1/link_layer": "Ethernet",
        }
        for number in (0, 1)
    }
    both = [sysfs.parse({"pci": shown, "infiniband": rdma}), nccl_topology.parse(DUAL)]
    found = hardware_inventory.of(both)
    assert [(part.id, part.names) for part in found.adapters] == [
        ("0000:42:00.0", ("mlx5_0",)),
        ("0000:42:00.1", ("mlx5_1",)),
    ]
    assert not found.conflicts
    assert not found.remarks


def test_port_two_alone_joins_its_adapter() -> None:
    """Where the first port is not used, the second one has its address in the file of NCCL."""
    second = DUAL.replace('<net name="mlx5_0" dev="0" speed="200000" port="1"/>', "")
    rdma = {"mlx5_1": {"path": _function(1)["path"], "ports/1/link_layer": "Ethernet"}}
    shown = {f"0000:42:00.{number}": _function(number) for number in (0, 1)}
    hardware_reports = [
        sysfs.parse({"pci": shown, "infiniband": rdma}),
        nccl_topology.parse(second),
    ]
    adapters = hardware_inventory.of(hardware_reports).adapters
    assert [part.id for part in adapters if "mlx5_1" in part.names] == ["0000:42:00.1"]


def test_nccl_alone_shows_both_ports() -> None:
    parts = nccl_topology.parse(DUAL).parts
    assert [(part.id, part.names) for part in parts] == [
        ("0000:42:00.0", ("mlx5_0",)),
        ("mlx5_1", ("mlx5_1",)),
    ]


def test_speed_in_another_unit_is_left_out_alone() -> None:
    text = DUAL.replace('speed="200000" port="1"', 'speed="200000000" port="1"')
    report = nccl_topology.parse(text)
    assert [part.bytes_per_s for part in report.parts] == [0, 25_000_000_000]
    assert report.remarks == (
        "line 3: speed='200000000': expected 0 to 10000000 Mb/s: the speed is left out",
    )


def test_device_without_a_class_loses_nothing_else() -> None:
    bridge = """<system version="1"><cpu numaid="0">
      <pci busid="0000:15:00.0"><pci busid="0000:17:00.0"><gpu dev="0"/></pci>
      <pci busid="0000:18:00.0"><nic><net name="mlx5_0"/></nic></pci>
      <pci busid="0000:19:00.0"/></pci></cpu></system>"""
    report = nccl_topology.parse(bridge)
    assert {part.id: part.kind for part in report.parts} == {
        "0000:17:00.0": ACCELERATOR,
        "0000:18:00.0": ADAPTER,
    }
    assert report.distances == {("0000:17:00.0", "0000:18:00.0"): 1}
    assert report.remarks == (
        "line 4: 0000:19:00.0 has no class and nothing below it: it is left out",
    )


@pytest.mark.parametrize(("version", "remarks"), [("1", 0), ("2", 0), ("3", 1), ("", 1)])
def test_each_version_of_nccl_is_read(version: str, remarks: int) -> None:
    """RCCL writes 2, and every dump of an AMD machine was refused once."""
    report = nccl_topology.parse(DUAL.replace('version="2"', f'version="{version}"'))
    assert len(report.parts) == 2
    assert len(report.remarks) == remarks


def test_types_of_hwloc_3_are_bits() -> None:
    report = hwloc.parse(
        '<topology version="3.0"><object type="Machine"><object type="PCIDev"'
        ' pci_busid="0000:17:00.0" pci_type="0207 [15b3:1021] [0:0] a1">'
        '<object type="OSDev" name="ib0" osdev_type="16"/>'
        '<object type="OSDev" name="mlx5_0" osdev_type="32"/></object></object></topology>'
    )
    assert [part.names for part in report.parts] == [("mlx5_0", "ib0")]
    assert not report.remarks
