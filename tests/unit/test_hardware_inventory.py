"""Looks into one node put together: who is who, who is believed, what differs, what nobody says."""

from __future__ import annotations

from dataclasses import replace

from railwright_topology import hardware_inventory
from railwright_topology.hardware_inventory import DISTANCE, HardwareConflict
from railwright_topology.parts import Distance, HardwareReport, Kind, Layer, Link, Part, Technology
from railwright_topology.source_reports import Provenance

A, B, N = "0000:17:00.0", "0000:3d:00.0", "0000:18:00.0"
NVLINK = Technology.NVLINK


def gpu(address: str, number: int | None = None, **facts: object) -> Part:
    return replace(Part(address, Kind.ACCELERATOR, address, number), **facts)  # type: ignore[arg-type]


def nic(address: str, *names: str, **facts: object) -> Part:
    part = Part(address or names[0], Kind.ADAPTER, address, names=names)
    return replace(part, **facts)  # type: ignore[arg-type]


def report(
    source: str, *parts: Part, provenance: Provenance = Provenance.SEEN, **more: object
) -> HardwareReport:
    return replace(HardwareReport(source, provenance, parts), **more)  # type: ignore[arg-type]


def test_facts_of_one_part_merge_from_all_sources() -> None:
    kernel = report("sysfs", gpu(A, numa=1), nic(N, "mlx5_0", "ens1", bytes_per_s=50_000_000_000))
    dump = report(
        "nccl", gpu(A, 3), nic(N, "mlx5_0", layer=Layer.INFINIBAND), provenance=Provenance.IMPORTED
    )
    found = hardware_inventory.of([dump, kernel])
    assert found.accelerators == (gpu(A, 3, numa=1),)
    (adapter,) = found.adapters
    assert adapter.names == ("mlx5_0", "ens1")
    assert adapter.layer == Layer.INFINIBAND
    assert found.sources[A, "numa"] == "sysfs"
    assert found.sources[A, "number"] == "nccl"
    assert not found.conflicts


def test_more_trusted_source_counts_and_other_is_a_conflict() -> None:
    kernel = report("sysfs", gpu(A, numa=0))
    plan = report("description", gpu(A, numa=1), provenance=Provenance.DECLARED)
    found = hardware_inventory.of([plan, kernel])
    assert found.accelerators[0].numa == 0
    assert found.conflicts == (HardwareConflict(A, "numa", "description", "1", "0", "sysfs"),)
    assert hardware_inventory.describe(found.conflicts[0]) == (
        f"{A}: by description its numa is 1; 0 counts, by sysfs"
    )


def test_speeds_differing_by_rounding_are_no_conflict() -> None:
    one, other = nic(N, "mlx5_0", bytes_per_s=7_000_000_000), nic(N, bytes_per_s=6_818_181_818)
    assert not hardware_inventory.of([report("a", one), report("b", other)]).conflicts
    slower = nic(N, bytes_per_s=6_000_000_000)
    (conflict,) = hardware_inventory.of([report("a", one), report("b", slower)]).conflicts
    assert (conflict.reported, conflict.held) == ("6,000,000,000 bytes/s", "7,000,000,000 bytes/s")


def test_parts_without_addresses_match_by_numbers_and_names() -> None:
    matrix = report(
        "nvidia-smi",
        Part("GPU0", Kind.ACCELERATOR, number=0),
        Part("GPU1", Kind.ACCELERATOR, number=1),
        nic("", "mlx5_0"),
        links=(Link(("GPU0", "GPU1"), NVLINK, 18),),
        distances={("GPU1", "mlx5_0"): Distance.SWITCH},
        complete=frozenset({NVLINK}),
    )
    dump = report("nccl", gpu(B, 0), gpu(A, 1), nic(N, "mlx5_0"), provenance=Provenance.IMPORTED)
    found = hardware_inventory.of([matrix, dump])
    assert [part.id for part in found.parts] == [B, A, N]
    assert found.links == (Link((A, B), NVLINK, 18),)
    assert found.distances == {(A, N): Distance.SWITCH}


def test_numbers_without_address_are_left_out_and_reported() -> None:
    matrix = report(
        "nvidia-smi",
        Part("GPU0", Kind.ACCELERATOR, number=0),
        Part("GPU1", Kind.ACCELERATOR, number=1),
        nic("", "mlx5_0"),
    )
    found = hardware_inventory.of([matrix, report("sysfs", gpu(A), gpu(B), nic(N, "mlx5_0"))])
    assert [part.id for part in found.parts] == [A, B, N]
    assert found.remarks == ("nvidia-smi: no source has the PCI address of GPU0 and 1 more",)


def test_a_source_alone_is_understood_without_addresses() -> None:
    found = hardware_inventory.of(
        [report("x", Part("GPU0", Kind.ACCELERATOR, number=0), nic("", "mlx5_0"))]
    )
    assert [part.id for part in found.parts] == ["GPU0", "mlx5_0"]
    assert not found.remarks


def test_both_ports_of_an_adapter_are_parts_of_their_own() -> None:
    first, second = nic(N, "mlx4_0"), replace(nic(N, "mlx4_0/2"), id=f"{N}/2")
    dump = report("nccl", nic(N, "mlx4_0"), replace(nic(N, "mlx4_0/2"), id="mlx4_0/2"))
    found = hardware_inventory.of([report("sysfs", first, second), dump])
    assert [part.id for part in found.adapters] == [N, f"{N}/2"]


def linked(
    source: str, *links: Link, complete: bool = True, provenance: Provenance = Provenance.SEEN
) -> HardwareReport:
    parts = gpu(A), gpu(B)
    reported = frozenset({NVLINK} if complete else ())
    return report(source, *parts, links=links, complete=reported, provenance=provenance)


def test_links_are_counted_by_one_source_and_measured_by_another() -> None:
    counted = linked("nvidia-smi", Link((A, B), NVLINK, 18))
    measured = linked("hwloc", Link((A, B), NVLINK, bytes_per_s=450_000_000_000, switched=True))
    found = hardware_inventory.of([counted, measured])
    assert found.links == (Link((A, B), NVLINK, 18, 450_000_000_000, switched=True),)
    assert not found.conflicts


def test_missing_link_is_a_conflict_if_source_reports_links() -> None:
    dump = linked("nccl", Link((A, B), NVLINK, 18), provenance=Provenance.IMPORTED)
    now = linked("nvidia-smi", Link((A, B), NVLINK, 17))
    (conflict,) = hardware_inventory.of([dump, now]).conflicts
    assert (conflict.fact, conflict.reported, conflict.held) == ("NVLink", "18 links", "17 links")
    down = hardware_inventory.of([dump, linked("nvidia-smi")])
    assert not down.links
    assert [(c.reported, c.held, c.by) for c in down.conflicts] == [
        ("18 links", "no link", "nvidia-smi")
    ]
    silent = hardware_inventory.of([dump, linked("sysfs", complete=False)])
    assert len(silent.links) == 1
    assert not silent.conflicts


def test_how_near_two_are_is_compared_as_finely_as_both_can_tell() -> None:
    def near(source: str, distance: Distance) -> HardwareReport:
        return report(source, gpu(A), nic(N, "mlx5_0"), distances={(A, N): distance})

    same = hardware_inventory.of([near("a", Distance.BRIDGE), near("b", Distance.NUMA)])
    assert same.distances == {(A, N): Distance.BRIDGE}
    assert not same.conflicts
    (conflict,) = hardware_inventory.of(
        [near("a", Distance.BRIDGE), near("b", Distance.SWITCH)]
    ).conflicts
    assert (conflict.part, conflict.fact) == (f"{A} and {N}", DISTANCE)
    assert (conflict.reported, conflict.held) == ("SWITCH", "BRIDGE")


def test_unreported_properties_are_listed_as_unknown() -> None:
    found = hardware_inventory.of([report("sysfs", gpu(A), gpu(B), nic(N, "mlx5_0"))])
    assert found.unknown == (
        "which part is near which",
        "how accelerators are linked beside PCIe",
        "the speed of mlx5_0",
    )


def test_hidden_tree_of_a_virtual_machine_is_recognised() -> None:
    bare = report("sysfs", gpu(A), nic(N, "mlx5_0"), virtual=True, hides_tree=True)
    found = hardware_inventory.of([bare])
    assert found.virtual
    assert found.hides_tree
    assert found.unknown[0] == (
        "which part is near which: the machine exposes no PCI tree, as virtual machines do"
    )
    tree = report(
        "nccl", gpu(A), nic(N), provenance=Provenance.IMPORTED, distances={(A, N): Distance.SWITCH}
    )
    given = hardware_inventory.of([bare, tree])
    assert given.virtual
    assert not given.hides_tree
    assert given.distances == {(A, N): Distance.SWITCH}


def test_nothing_is_put_together_of_nothing() -> None:
    assert hardware_inventory.of([]) == hardware_inventory.HardwareInventory()
