"""What dumps of NCCL and RCCL hold that their sources do not lead one to expect."""

from __future__ import annotations

import pytest

from railwright_topology.parts import Distance, HardwareReport, Kind
from railwright_topology.sources import hwloc, nccl_topology, strict_xml
from railwright_topology.wiring import WiringError


def nccl(inner: str, version: str = "1") -> HardwareReport:
    return nccl_topology.parse(
        f'<system version="{version}">\n<cpu numaid="0">\n{inner}</cpu>\n</system>\n'
    )


def gpu(address: str, number: int, links: str = "") -> str:
    return f'<pci busid="{address}" class="0x030200"><gpu dev="{number}">{links}</gpu></pci>\n'


def nic(address: str, name: str, class_code: str = "0x020700") -> str:
    return f'<pci busid="{address}" class="{class_code}"><nic><net name="{name}"/></nic></pci>\n'


def switch(address: str, inner: str) -> str:
    return f'<pci busid="{address}" class="0x060400">\n{inner}</pci>\n'


ADDRESSES = ("0000:17:00.0", "0000:18:00.0", "0000:3d:00.0", "0000:3e:00.0")


@pytest.mark.parametrize("comment", ["<!-- a -- b -->", "<!------\n- a licence\n------>"])
def test_comment_that_xml_forbids_is_passed_over(comment: str) -> None:
    """NCCL reads up to the next arrow, whatever stands before it."""
    text = f'<system version="2">{comment}<cpu numaid="x">{gpu(ADDRESSES[0], 0)}</cpu></system>'
    report = nccl_topology.parse(f"{comment}\n{text}")
    lines = 2 + 2 * comment.count("\n")
    assert [part.id for part in report.parts] == [ADDRESSES[0]]
    assert report.remarks == (f"line {lines}: numaid='x': expected a whole number",)


def test_comment_without_an_end_is_not_xml() -> None:
    for text in ("<!-- <system/>", "<system><!-- -- </system>", "<system/><!--" * 50_000):
        with pytest.raises(WiringError, match="is not XML"):
            strict_xml.read("any", text, "system")
    assert not hwloc.parse("<!--a--b--><topology><object type='Machine'/></topology>").parts


def test_bridge_in_two_elements_is_one_switch() -> None:
    one, near, other, far = ADDRESSES
    report = nccl(
        switch("0000:15:00.0", gpu(one, 0))
        + switch("0000:15:00.0", nic(near, "mlx5_0") + gpu(other, 1) + gpu(one, 2))
    )
    assert [part.id for part in report.parts] == [one, near, other]
    assert report.distances == dict.fromkeys(
        ((one, near), (one, other), (near, other)), Distance.SWITCH
    )
    assert report.remarks == (
        "line 6: bridge 0000:15:00.0 is described twice: what is below both is below one switch",
        "line 9: 0000:17:00.0 is described twice",
    )
    assert far not in report.remarks


def test_device_at_the_address_of_a_bridge_is_read() -> None:
    report = nccl(switch(ADDRESSES[1], gpu(ADDRESSES[0], 0)) + nic(ADDRESSES[1], "mlx5_0"))
    assert [part.id for part in report.parts] == [*ADDRESSES[:2]]


def test_second_gpu_of_one_address_adds_no_links() -> None:
    one, other, *_ = ADDRESSES
    there, back = (f'<nvlink target="{end}" count="4"/>' for end in (other, one))
    report = nccl(gpu(one, 0, there) + gpu(one, 0, there) + gpu(other, 1, back))
    assert [(link.ends, link.count) for link in report.links] == [((one, other), 4)]
    assert report.remarks == ("line 4: 0000:17:00.0 is described twice",)


def test_link_to_itself_is_left_out() -> None:
    """A cloud's file has it where GPUs are linked in pairs: it says nothing of these links."""
    report = nccl(
        "".join(
            gpu(end, number, f'<nvlink target="{end}" count="12"/>')
            for number, end in enumerate(ADDRESSES[:2])
        )
    )
    assert not report.links
    assert not report.complete
    assert report.remarks == tuple(
        f"line {line}: {end} is linked to itself: the link is left out"
        for line, end in enumerate(ADDRESSES[:2], 3)
    )


@pytest.mark.parametrize("version", ["1", "2"])
def test_nccl_file_without_links_is_incomplete(version: str) -> None:
    """Clouds give such files of nodes with NVLink: NCCL adds the links that it finds."""
    report = nccl(gpu(ADDRESSES[0], 0) + gpu(ADDRESSES[1], 1), version)
    assert not report.complete
    assert not report.remarks


@pytest.mark.parametrize("class_code", ["0x060000", "0x060400"])
def test_nets_at_a_bridge_are_no_adapter_of_its_address(class_code: str) -> None:
    """A sandbox's file has them at the host bridge; NCCL puts those that it uses as one there."""
    nets = '<nic><net name="mlx5_0"/><net name="mlx5_1" speed="100000"/></nic>'
    inner = gpu(ADDRESSES[0], 0)
    report = nccl(f'<pci busid="0000:00:00.0" class="{class_code}">\n{nets}{inner}</pci>\n')
    assert [(part.id, part.pci, part.names) for part in report.parts] == [
        (ADDRESSES[0], ADDRESSES[0], ()),
        ("mlx5_0", "", ("mlx5_0",)),
        ("mlx5_1", "", ("mlx5_1",)),
    ]
    assert report.distances[(ADDRESSES[0], "mlx5_0")] == Distance.SWITCH
    assert not report.remarks


def test_adapters_used_as_one_are_known_by_name() -> None:
    """NCCL leaves them out of a dump of what it uses."""
    one, near, *_ = ADDRESSES
    nets = '<nic><net name="mlx5_0+mlx5_1" speed="200000"/></nic>\n'
    report = nccl(switch("0000:15:00.0", nets + gpu(one, 0) + nic(near, "mlx5_1")))
    assert [(part.id, part.names, part.numa, part.bytes_per_s) for part in report.parts] == [
        (one, (), 0, 0),
        (near, ("mlx5_1",), 0, 0),
        ("mlx5_0", ("mlx5_0",), 0, 0),
    ]
    assert report.remarks == ("line 4: mlx5_0+mlx5_1 stands for mlx5_0, known by name alone",)
    assert nccl(nets).remarks == (
        "line 3: mlx5_0+mlx5_1 stands for mlx5_0, mlx5_1, known by name alone",
    )
    assert nccl(nets).parts[1].names == ("mlx5_1",)


def test_wireless_controller_of_nccl_is_no_adapter() -> None:
    """NCCL's sockets use any interface that is up, so its dumps list that of a wireless card."""
    report = nccl(nic(ADDRESSES[0], "wlp9s0", "0x028000") + nic(ADDRESSES[1], "enp1s0", "0x020000"))
    assert [(part.kind, part.names) for part in report.parts] == [(Kind.ADAPTER, ("enp1s0",))]


def test_further_ranks_and_parts_of_a_gpu_are_it() -> None:
    """NCCL writes a <gpu> for each, and all links of the accelerator in all of them."""
    link = '<nvlink target="fffffff:ff:ff.0" count="36" tclass="0x068000"/>'
    ranks = "".join(
        f'<gpu dev="0" mlopart="{part}" rank="{part}">{link}</gpu>\n' for part in (0, 1)
    )
    one, other, *_ = ADDRESSES
    report = nccl(f'<pci busid="{one}" class="0x030200">{ranks}</pci>' + gpu(other, 1, link))
    assert [(link.ends, link.count) for link in report.links] == [((one, other), 36)]
    assert not report.remarks


@pytest.mark.parametrize("both", [False, True])
def test_second_way_of_an_adapter_is_the_adapter(both: bool) -> None:
    """NCCL calls what ConnectX-8 has beside the GPU (Data Direct) by its name and _dma."""
    one, near, other, _ = ADDRESSES
    own = nic(other, "mlx5_0") if both else ""
    report = nccl(switch("0000:15:00.0", gpu(one, 0) + nic(near, "mlx5_0_dma", "0x088000")) + own)
    adapters = [part for part in report.parts if part.kind == Kind.ADAPTER]
    assert [(part.pci, part.names) for part in adapters] == [(other if both else "", ("mlx5_0",))]
    assert both or report.distances[(one, "mlx5_0")] == Distance.SWITCH
    assert not report.remarks


def test_second_ways_used_as_one_are_their_adapters() -> None:
    report = nccl(nic(ADDRESSES[0], "mlx5_0") + '<nic><net name="mlx5_0_dma+mlx5_1_dma"/></nic>')
    assert [part.names for part in report.parts] == [("mlx5_0",), ("mlx5_1",)]


def test_partitions_of_rccl_are_their_accelerator() -> None:
    """They are functions that PCI does not have, so RCCL knows no processor of them; what PCI has
    at such an address may be an adapter."""

    def partition(bus: int, function: int, more: str = "") -> str:
        links = "".join(
            f'<xgmi target="0000:{other:02x}:00.{each}" count="4" tclass="0x120000"/>'
            for other in (3, 4)
            for each in (0, 1)
            if (other, each) != (bus, function)
        )
        inner = f'<gpu dev="{2 * bus + function}" gcn="gfx942">{links}</gpu>{more}'
        return f'<pci busid="0000:{bus:02x}:00.{function}" class="0x120000">{inner}</pci>'

    net = '<nic><net name="mlx5_0"/></nic>'
    unknown = f'</cpu><cpu numaid="-1">{partition(3, 1, net)}{partition(4, 1)}'
    report = nccl(partition(3, 0) + partition(4, 0) + unknown, "2")
    assert [(part.id, part.kind) for part in report.parts] == [
        ("0000:03:00.0", Kind.ACCELERATOR),
        ("0000:03:00.1", Kind.ADAPTER),
        ("0000:04:00.0", Kind.ACCELERATOR),
    ]
    assert [(link.ends, link.count) for link in report.links] == [
        (("0000:03:00.0", "0000:04:00.0"), 4)
    ]
    assert not report.remarks


def test_accelerator_of_amd_without_an_address_costs_no_other() -> None:
    without = '<pci class="0x120000"><gpu dev="1" gcn="gfx942"/></pci>'
    report = nccl(gpu("0000:03:00.0", 0) + without, "2")
    assert [part.id for part in report.parts] == ["0000:03:00.0"]
    assert "busid" in report.remarks[0]


def test_functions_of_other_makers_are_accelerators() -> None:
    report = nccl(gpu("0000:03:00.0", 0) + gpu("0000:03:00.1", 1))
    assert [part.id for part in report.parts] == ["0000:03:00.0", "0000:03:00.1"]
