"""What is held of a node's rates while its agent begins anew, measures again, or tells more."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from railwright_topology import slow_devices
from railwright_topology.parts import CPU, PARTS_MAX, DeviceBenchmark, HardwareReport, Kind, Part
from railwright_topology.source_reports import Provenance

GPUS = tuple(
    DeviceBenchmark(f"0000:{bus}:00.0", "H100", "torch 9.9", 660 * 10**12, 29 * 10**11)
    for bus in (17, 18)
)
XPU = replace(GPUS[0], device="xpu:0")
XEON = DeviceBenchmark(CPU, "Xeon", "torch 9.9", 2 * 10**12, 3 * 10**11)


def report(*addresses: str) -> tuple[HardwareReport, ...]:
    parts = (Part(address, Kind.ACCELERATOR, address) for address in addresses)
    adapter = Part("0000:99:00.0", Kind.ADAPTER, "0000:99:00.0")
    return (HardwareReport("sysfs", Provenance.SEEN, (*parts, adapter)),)


BOTH = report(*(each.device for each in GPUS))


def test_benchmarks_stay_until_agent_measures_again() -> None:
    assert slow_devices.held(GPUS, (), BOTH) == GPUS
    assert slow_devices.held((*GPUS, XEON), (), ()) == (*GPUS, XEON)


def test_new_benchmark_counts_for_its_device_alone() -> None:
    slow = replace(GPUS[1], flop_per_s=403 * 10**12)
    assert slow_devices.held(GPUS, (slow,), BOTH) == (GPUS[0], slow)


def test_a_device_that_a_node_shows_no_more_has_no_rates() -> None:
    assert slow_devices.held(GPUS, (), report(GPUS[1].device)) == GPUS[1:]


def test_report_without_accelerators_removes_no_benchmark() -> None:
    assert slow_devices.held(GPUS, (), report()) == GPUS


def test_an_agent_is_believed_about_devices_that_its_looks_show() -> None:
    made_up = replace(GPUS[0], device="0000:aa:00.0")
    adapter = replace(GPUS[0], device="0000:99:00.0")
    reported = (*GPUS, made_up, adapter, XEON, XPU)
    assert slow_devices.held((), reported, BOTH) == (*GPUS, XEON, XPU)


def scaled(its: DeviceBenchmark, share: float) -> DeviceBenchmark:
    return replace(its, flop_per_s=round(its.flop_per_s * share))


def test_benchmark_within_noise_keeps_last_value() -> None:
    again = tuple(scaled(each, share) for each, share in zip(GPUS, (0.985, 1.015), strict=True))
    assert slow_devices.held(GPUS, again, BOTH) == GPUS
    other = replace(again[0], memory_bytes_per_s=10**12)
    assert slow_devices.held(GPUS, (other,), BOTH)[0] == replace(GPUS[0], memory_bytes_per_s=10**12)


def test_gradual_slowdown_is_detected() -> None:
    held: tuple[DeviceBenchmark, ...] = GPUS[:1]
    for percent in range(99, 89, -1):
        reported = scaled(GPUS[0], percent / 100)
        held = slow_devices.held(held, (reported,), ())
        assert held[0].flop_per_s <= reported.flop_per_s * (1 + 1.1 * slow_devices.NOISE)


@pytest.mark.parametrize("change", [{"by": "torch 10.0"}, {"model": "H200"}])
def test_incomparable_benchmark_replaces_the_last(change: dict[str, str]) -> None:
    reported = scaled(replace(GPUS[0], **change), 1.01)  # type: ignore[arg-type]
    assert slow_devices.held(GPUS[:1], (reported,), ()) == (reported,)


def test_noise_at_the_border_of_what_is_slow_is_no_news() -> None:
    """1,000 nodes that differ by some percent, each measured ten times."""
    rng = Random(0)
    true = {f"n{at}": scaled(GPUS[0], rng.uniform(0.9, 1.0)) for at in range(1000)}

    def seen(its: DeviceBenchmark) -> tuple[DeviceBenchmark, ...]:
        return (scaled(its, rng.uniform(0.991, 1.009)),)

    held = {node: seen(its) for node, its in true.items()}
    slow = slow_devices.slow(held, held)
    assert 0 < len(slow) < 500
    for _ in range(10):
        for node, its in true.items():
            held[node] = slow_devices.held(held[node], seen(its), ())
        assert slow_devices.slow(held, held) == slow


def test_held_benchmarks_are_bounded_and_newest() -> None:
    before, now = (
        tuple(replace(XPU, device=f"{kind}:{at}") for at in range(PARTS_MAX))
        for kind in ("npu", "xpu")
    )
    found = slow_devices.held(before, now[1:], ())
    assert len(found) == PARTS_MAX
    assert {*now[1:]} < {*found}
