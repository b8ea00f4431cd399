"""The schema accepts the status of any sources."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.clos import wiring
from fixtures.examples import examples
from railwright_api.fabric import FabricStatus
from railwright_api.node_health import NodeHealthSpec
from railwright_controllers.discovery import AgentSummary, FabricState
from railwright_controllers.file_reads import FileRead
from railwright_controllers.report import fabric as report
from railwright_controllers.report import node_healths
from railwright_conversion import node_healths as conversion
from railwright_topology import fabric, networks
from railwright_topology.fabric import Fabric
from railwright_topology.parts import (
    CPU,
    AdapterRole,
    DeviceBenchmark,
    HardwareReport,
    HardwareReports,
    Kind,
    Part,
)
from railwright_topology.source_reports import Provenance, SourceReport
from railwright_topology.sources.formats import File

HEARD_NONE = AgentSummary(0, ())
NODES = [f"n{number}" for number in range(12)]
WORDS = st.one_of(st.text(max_size=12), st.integers(1, 3).map(lambda many: "x" * 1100 * many))
TIERS = st.lists(st.dictionaries(st.sampled_from(NODES), st.sampled_from("abcd")), max_size=10)


@st.composite
def source_reports(draw: st.DrawFn) -> SourceReport:
    """What no source says, and more than any may."""
    tiers = draw(TIERS)
    return SourceReport(
        draw(WORDS),
        draw(st.sampled_from(Provenance)),
        tuple(tiers),
        draw(st.dictionaries(st.sampled_from(NODES), WORDS, max_size=4)),
        tuple(draw(st.lists(WORDS, max_size=20))),
        tuple(draw(st.lists(WORDS, min_size=len(tiers), max_size=len(tiers)))),
    )


def chain(length: int) -> list[tuple[str, str]]:
    """Hosts at the end of a long way of switches."""
    uplinks = [(f"{node} mlx5_0", "s0") for node in NODES]
    return [*uplinks, *((f"s{at}", f"s{at + 1}") for at in range(length))]


def accepted(found: Fabric, *files: FileRead) -> None:
    summary = report.summarize(FabricState(found, files))
    FabricStatus.model_validate(summary.status | {"topology": summary.topology})
    assert not summary.problems
    for spec in node_healths.contents(found).values():
        health = NodeHealthSpec.model_validate(spec)
        rails = conversion.parse_rails(spec.get("rails"))
        assert health.relative_speed is None or conversion.parse_speed(spec["relativeSpeed"], rails)


@settings(max_examples=examples(60))
@given(st.lists(source_reports(), max_size=40))
def test_any_accounts_give_a_status_that_is_taken(reported: list[SourceReport]) -> None:
    accepted(fabric.of(NODES, reported))


LOOKS = st.builds(
    HardwareReport,
    st.sampled_from(["one", "other"]),
    st.sampled_from(Provenance),
    st.lists(
        st.builds(
            Part,
            WORDS,
            st.sampled_from(Kind),
            st.sampled_from(["", "0000:17:00.0"]),
            names=st.lists(WORDS, max_size=2).map(tuple),
            numa=st.none() | st.integers(0, 9),
            up=st.none() | st.booleans(),
            rail=st.none() | st.integers(0, 9),
            role=st.none() | st.just(AdapterRole.RAIL),
        ),
        max_size=3,
        unique_by=lambda part: part.id,
    ).map(tuple),
    remarks=st.lists(WORDS, max_size=2).map(tuple),
)


@settings(max_examples=examples(30))
@given(
    st.dictionaries(
        st.sampled_from([*NODES[:3], "elsewhere"]),
        st.lists(LOOKS, max_size=2, unique_by=lambda report: report.source).map(tuple),
    ),
    WORDS,
)
async def test_any_insides_of_nodes_give_a_status_that_is_taken(
    by_host: dict[str, tuple[HardwareReport, ...]], source: str
) -> None:
    found = fabric.of(NODES, [HardwareReports(source, by_host)])
    accepted(found)
    FabricStatus.model_validate(await problems(FabricState(found)))


async def problems(found: FabricState, agents: AgentSummary = HEARD_NONE, *unsurveyed: str) -> Any:
    """What is told of it, of no nodes."""
    return await report.problems(found, {}, lambda: 0.0, agents=agents, unsurveyed=unsurveyed)


RATE = st.sampled_from([0, 1, 10**9, 2 * 10**15, 10**18 - 1])
BENCHMARKS = st.builds(DeviceBenchmark, st.just(CPU), WORDS, st.just("torch"), RATE, RATE)


@settings(max_examples=examples(30))
@given(st.lists(BENCHMARKS, min_size=len(NODES), max_size=len(NODES)), WORDS)
def test_any_rates_of_devices_give_a_status_that_is_taken(
    benchmarks: list[DeviceBenchmark], model: str
) -> None:
    its = (replace(each, model=model) for each in benchmarks)
    by_node = {node: (each,) for node, each in zip(NODES, its, strict=True)}
    other = {NODES[0]: (DeviceBenchmark(CPU, model, "torch", 1, 1),)}
    accepted(
        fabric.of(
            NODES, [HardwareReports("agents", {}, by_node), HardwareReports("site", {}, other)]
        )
    )


@given(st.integers(1, 30))
def test_any_way_of_switches_gives_a_status_that_is_taken(length: int) -> None:
    accepted(fabric.of(NODES, [networks.of(wiring(chain(length)))]))


@given(WORDS, WORDS)
async def test_any_problem_of_a_file_is_taken(name: str, problem: str) -> None:
    read = FileRead(File("site", name, ""), problem=problem)
    reported = await problems(
        FabricState(Fabric(), (read,), problem), AgentSummary(9, (name,) * 5), problem
    )
    FabricStatus.model_validate(reported)


@given(st.floats(0.0, 2.0**33), st.none() | st.floats(0.0, 1e6))
def test_any_freshness_is_accepted(now_s: float, age_s: float | None) -> None:
    status = report.freshness(max(now_s, age_s or 0.0), oldest_report_s=age_s)
    found = FabricStatus.model_validate({"freshness": status}).freshness
    assert found is not None
    assert (found.oldest_report is None) == (age_s is None)
    assert found.oldest_report is None or found.oldest_report <= found.checked
