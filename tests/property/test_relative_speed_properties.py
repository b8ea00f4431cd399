"""Paces follow from what devices reach beside their kind, and from nothing else."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.examples import examples
from railwright_topology import slow_devices
from railwright_topology.parts import DeviceBenchmark
from railwright_topology.relative_speed import EVEN, RelativeSpeed

NODES = [f"n{number}" for number in range(6)]
Benchmarks = dict[str, tuple[DeviceBenchmark, ...]]

RATE = st.one_of(st.just(0), st.integers(1, 10**16), st.integers(90, 110).map(lambda n: n * 10**12))


@st.composite
def benchmarks(draw: st.DrawFn) -> Benchmarks:
    """Devices of two models on some nodes."""

    def device(at: int) -> DeviceBenchmark:
        model = draw(st.sampled_from(["one", "other"]))
        return DeviceBenchmark(f"xpu:{at}", model, "torch", draw(RATE), draw(RATE))

    counts = draw(st.dictionaries(st.sampled_from(NODES), st.integers(1, 4)))
    return {node: tuple(map(device, range(count))) for node, count in counts.items()}


def of(reported: Benchmarks) -> dict[str, RelativeSpeed]:
    return slow_devices.of(slow_devices.slow(reported, NODES))


@given(benchmarks())
def test_a_pace_is_never_above_one_and_never_nothing(reported: Benchmarks) -> None:
    for relative_speed in of(reported).values():
        assert relative_speed != EVEN
        assert 0 < relative_speed.products <= 1
        assert 0 < relative_speed.memory <= 1
        assert relative_speed.rails == 1


@given(benchmarks(), st.randoms(use_true_random=False))
def test_the_order_and_the_names_of_nodes_change_nothing(
    reported: Benchmarks, random: object
) -> None:
    shuffled = [*reported.items()]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    names = dict(zip(NODES, reversed(NODES), strict=True))
    renamed = {names[node]: its[::-1] for node, its in shuffled}
    assert of(renamed) == {
        names[node]: relative_speed for node, relative_speed in of(reported).items()
    }


@given(benchmarks(), st.integers(1, 1000))
def test_a_kind_that_is_so_many_times_as_fast_is_as_even(reported: Benchmarks, factor: int) -> None:
    def scaled(each: DeviceBenchmark) -> DeviceBenchmark:
        if each.model != "one":
            return each
        flop_per_s, memory_bytes_per_s = each.flop_per_s, each.memory_bytes_per_s
        return replace(
            each, flop_per_s=factor * flop_per_s, memory_bytes_per_s=factor * memory_bytes_per_s
        )

    assert of({node: tuple(map(scaled, its)) for node, its in reported.items()}) == of(reported)


@given(
    st.integers(4, 6),
    st.integers(1, 8),
    st.integers(1000, 10**15),
    st.floats(0.02, 0.9),
    st.data(),
)
def test_one_slower_device_makes_just_its_node_slower(
    nodes: int, devices: int, value: int, share: float, data: st.DataObject
) -> None:
    noise = st.floats(0.98, 1.02)
    node = data.draw(st.integers(0, nodes - 1))
    reported = {
        NODES[n]: [
            DeviceBenchmark(f"xpu:{at}", "one", "torch", int(value * data.draw(noise)), value)
            for at in range(devices)
        ]
        for n in range(nodes)
    }
    reported[NODES[node]][0] = replace(
        reported[NODES[node]][0], flop_per_s=max(1, int(value * share))
    )
    found = of({name: tuple(its) for name, its in reported.items()})
    assert [*found] == [NODES[node]]
    assert abs(found[NODES[node]].products - share) <= 0.04
    assert found[NODES[node]].memory == 1


SOURCES = st.sampled_from(["agents", "a/agents", "site/agents"])


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(SOURCES, benchmarks()), max_size=4), st.randoms(use_true_random=False))
def test_order_of_sources_changes_neither_result_nor_conflicts(
    reported: list[tuple[str, Benchmarks]], random: object
) -> None:
    def together(sources: list[tuple[str, Benchmarks]]) -> dict[str, list[slow_devices.Measured]]:
        return {
            node: [(source, its[node]) for source, its in sources if node in its] for node in NODES
        }

    shuffled = [*reported]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    first = {node: its for node, its in together(reported).items() if its}
    again = {node: its for node, its in together(shuffled).items() if its}
    assert slow_devices.settled(again) == slow_devices.settled(first)
