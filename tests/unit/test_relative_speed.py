"""Who is slow beside most others of a kind, in numbers and in words; who counts for a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from railwright_topology import fabric, slow_devices
from railwright_topology.parts import (
    CPU,
    DeviceBenchmark,
    HardwareReport,
    HardwareReports,
    Kind,
    Part,
)
from railwright_topology.relative_speed import RelativeSpeed
from railwright_topology.slow_devices import Slow
from railwright_topology.source_reports import Provenance

H100 = DeviceBenchmark("0000:17:00.0", "H100", "torch 9.9", 660 * 10**12, 29 * 10**11)
XEON = DeviceBenchmark(CPU, "Xeon", "torch 9.9", 2 * 10**12, 3 * 10**11)
NODES = [f"n{number}" for number in range(8)]


def site(**other: DeviceBenchmark) -> dict[str, tuple[DeviceBenchmark, ...]]:
    """A device on each of eight nodes, some of them others."""
    return {node: (other.get(node, H100),) for node in NODES}


def slow_of(benchmarks: Mapping[str, tuple[DeviceBenchmark, ...]]) -> tuple[Slow, ...]:
    """Who is slow of nodes that all have accelerators."""
    return slow_devices.slow(benchmarks, benchmarks)


def test_a_slow_device_makes_its_node_slow_in_what_it_is_slow_at() -> None:
    found = slow_of(site(n3=replace(H100, flop_per_s=403 * 10**12)))
    assert found == (Slow("n3", H100.device, "H100", "flop_per_s", 403 * 10**12, H100.flop_per_s),)
    assert slow_devices.of(found) == {"n3": RelativeSpeed(products=0.61)}
    assert slow_devices.describe(found[0]) == (
        "0000:17:00.0 multiplies at 61 % of what most H100 do: 400 TFLOP/s of 660 TFLOP/s"
    )


def test_the_slowest_of_a_nodes_devices_counts() -> None:
    others = (
        replace(H100, device="0000:18:00.0", memory_bytes_per_s=10**12),
        replace(H100, device="0000:19:00.0", memory_bytes_per_s=2 * 10**12),
    )
    benchmarks = site() | {"n1": (H100, *others)}
    found = slow_of(benchmarks)
    assert [each.device for each in found] == ["0000:18:00.0", "0000:19:00.0"]
    assert slow_devices.of(found) == {"n1": RelativeSpeed(memory=0.34)}
    assert slow_devices.describe(found[0]).endswith(
        "copies at 34 % of what most H100 do: 1 Tbytes/s of 2.9 Tbytes/s"
    )


@pytest.mark.parametrize(
    ("share", "expected"), [(96, {}), (94, {"n5": RelativeSpeed(products=0.94)})]
)
def test_difference_within_noise_is_not_slower(
    share: int, expected: dict[str, RelativeSpeed]
) -> None:
    benchmarks = site(n5=replace(H100, flop_per_s=H100.flop_per_s * share // 100))
    assert slow_devices.of(slow_of(benchmarks)) == expected


def test_faster_node_makes_no_other_node_slow() -> None:
    assert not slow_of(site(n5=replace(H100, flop_per_s=2 * H100.flop_per_s)))


def test_half_of_a_kind_is_not_most_of_it() -> None:
    half = replace(H100, flop_per_s=H100.flop_per_s // 2)
    assert not slow_of(site(**dict.fromkeys(NODES[:4], half)))
    assert len(slow_of(site(**dict.fromkeys(NODES[:3], half)))) == 3


def test_few_nodes_are_no_rule_however_many_devices_they_have() -> None:
    slow = replace(H100, flop_per_s=H100.flop_per_s // 2)
    three = {"n0": (slow,), "n1": (H100,), "n2": (H100,)}
    assert len(slow_of(three)) == 1
    devices = tuple(replace(H100, device=f"0000:{bus}:00.0") for bus in range(20, 28))
    assert not slow_of({"n0": (slow,), "n1": devices})


@pytest.mark.parametrize("value", [1, 10**17])
def test_one_agent_that_makes_up_devices_has_one_vote(value: int) -> None:
    """31 nodes with eight devices each, one of them slow, and one that tells of 256."""

    def devices(count: int, flop_per_s: int) -> tuple[DeviceBenchmark, ...]:
        return tuple(
            replace(H100, device=f"xpu:{at}", flop_per_s=flop_per_s) for at in range(count)
        )

    honest = {f"n{number}": devices(8, H100.flop_per_s) for number in range(30)}
    benchmarks = honest | {"slow": devices(8, H100.flop_per_s // 2), "liar": devices(256, value)}
    found = slow_devices.of(slow_of(benchmarks))
    assert found.pop("slow") == RelativeSpeed(products=0.5)
    assert not {*found} - {"liar"}


def test_devices_of_other_models_and_other_tools_are_no_rule() -> None:
    slow = replace(H100, flop_per_s=H100.flop_per_s // 2)
    assert not slow_of(site(n3=replace(slow, model="H100 PCIe")))
    assert not slow_of(site(n3=replace(slow, by="numpy 2.0")))


def test_what_was_not_measured_is_not_slow() -> None:
    assert not slow_of(site(n3=replace(H100, memory_bytes_per_s=0)))


def test_what_hardly_moves_still_moves() -> None:
    (found,) = slow_of(site(n3=replace(H100, flop_per_s=1)))
    assert found.relative_speed == slow_devices.RELATIVE_SPEED_MIN


def reported(
    benchmarks: Mapping[str, tuple[DeviceBenchmark, ...]], *accelerated: str
) -> fabric.Fabric:
    gpu = Part("0000:17:00.0", Kind.ACCELERATOR, "0000:17:00.0")
    hardware_reports = {
        node: (HardwareReport("sysfs", Provenance.SEEN, (gpu,)),) for node in accelerated
    }
    return fabric.of(NODES, [HardwareReports("agents", hardware_reports, benchmarks)])


def test_the_processor_counts_where_there_is_no_accelerator() -> None:
    slow = replace(XEON, flop_per_s=10**12)
    benchmarks = {node: (XEON,) for node in NODES} | {
        "n1": (slow,),
        "n2": (slow,),
        "n3": (slow, H100),
    }
    found = reported(benchmarks, "n2")
    assert found.relative_speeds == {"n1": RelativeSpeed(products=0.5)}
    assert [each.node for each in found.slow] == ["n1"]


def test_late_accelerator_replaces_processor_in_speed() -> None:
    benchmarks = {node: (XEON,) for node in NODES} | {"n1": (replace(XEON, flop_per_s=10**12),)}
    before = reported(benchmarks)
    assert [*before.relative_speeds] == ["n1"]
    gpu = HardwareReport(
        "sysfs", Provenance.SEEN, (Part("0000:17:00.0", Kind.ACCELERATOR, "0000:17:00.0"),)
    )
    after = fabric.of(NODES, [HardwareReports("agents", {"n1": (gpu,)}, benchmarks)], before)
    assert (after.slow, after.relative_speeds) == ((), {})


def test_processors_beside_accelerators_set_no_reference() -> None:
    """They wait for accelerators, or for whoever trains there."""
    benchmarks = {node: (XEON,) for node in NODES} | {"n1": (replace(XEON, flop_per_s=10**12),)}
    assert not reported(benchmarks, *NODES[2:]).slow


def test_host_maps_to_node_of_its_first_name() -> None:
    benchmarks = {
        f"{node}.example.com": its for node, its in site(n3=replace(H100, flop_per_s=1)).items()
    }
    found = reported(benchmarks | {"elsewhere": (H100,)})
    assert [*found.relative_speeds] == ["n3"]
    assert found.remarks == ("agents: no node of the cluster: 1 of 9, the first is elsewhere",)


def test_two_sources_with_other_results_are_a_conflict() -> None:
    before = replace(H100, flop_per_s=800 * 10**12)
    file = HardwareReports("site/agents", {}, {"n3": (before, XEON)})
    found = fabric.of(NODES, [file, HardwareReports("agents", {}, site())])
    assert found.benchmarks["n3"] == (H100, XEON)
    ((node, conflict),) = found.inner_conflicts()
    assert (node, conflict.part, conflict.fact) == ("n3", H100.device, "flop_per_s")
    assert (conflict.source, conflict.reported) == ("site/agents", "800 TFLOP/s")
    assert (conflict.by, conflict.held) == ("agents", "660 TFLOP/s")


def test_equal_results_or_other_tools_are_no_conflict() -> None:
    for other in (replace(H100, flop_per_s=650 * 10**12), replace(H100, by="numpy", flop_per_s=1)):
        file = HardwareReports("site/agents", {}, {"n3": (other,)})
        found = fabric.of(NODES, [file, HardwareReports("agents", {}, site())])
        assert not [*found.inner_conflicts()]
        assert found.benchmarks["n3"] == (H100,)
