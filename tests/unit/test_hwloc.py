"""hwloc's outputs of machines whose accelerators are more than one device on PCI."""

from __future__ import annotations

from railwright_topology.parts import HardwareReport
from railwright_topology.sources import hwloc


def hwloc_of(devices: str, matrix: str = "", nodes: str = "") -> HardwareReport:
    return hwloc.parse(
        f"""<topology version="2.0"><object type="Machine" nodeset="0x00000c03">
        <object type="Package" nodeset="0x00000401">{nodes}{devices}</object></object>
        {matrix}</topology>"""
    )


def test_memory_of_an_accelerator_is_no_place_of_devices() -> None:
    """On GH200 and GB200 it is a NUMA node of the processor's package."""
    device = '<object type="PCIDev" pci_busid="0008:01:00.0" pci_type="0302 [10de:2941] [0:0] a1"/>'
    nodes = (
        '<object type="NUMANode" os_index="0" nodeset="0x00000001"/>'
        '<object type="NUMANode" os_index="10" nodeset="0x00000400" subtype="GPUMemory"/>'
    )
    assert [part.numa for part in hwloc_of(device, nodes=nodes).parts] == [0]
    assert [part.numa for part in hwloc_of(device).parts] == [None]


def test_partitions_of_hwloc_are_one_accelerator() -> None:
    """They are objects at one address; between those of two, the driver tells no bandwidth."""
    devices = "".join(
        f'<object type="PCIDev" pci_busid="0000:0{bus}:00.0" pci_type="1200 [1002:74a1] [0:0] a1">'
        f'<object type="OSDev" gp_index="{bus}0" name="rsmi{bus - 5}" osdev_type="1"/>'
        f'<object type="OSDev" gp_index="{bus}1" name="rsmi{bus - 3}" osdev_type="1"/></object>'
        for bus in (5, 6)
    )

    def read(between: int) -> HardwareReport:
        values = " ".join(
            str(900 if one == other else 800 if one // 2 == other // 2 else between)
            for one in range(4)
            for other in range(4)
        )
        matrix = f"""<distances2 type="OSDev" nbobjs="4" kind="9" name="XGMIBandwidth"
        indexing="gp"><indexes>50 51 60 61</indexes><u64values>{values}</u64values></distances2>"""
        return hwloc_of(devices, matrix)

    (link,) = read(64).links
    assert (link.ends, link.bytes_per_s) == (("0000:05:00.0", "0000:06:00.0"), 64_000_000)
    assert not read(64).remarks
    assert not read(0).links
    assert not read(0).complete
