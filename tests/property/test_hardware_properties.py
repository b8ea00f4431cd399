"""The inside of a node: no order of anything matters, and no text whatever crashes a reader."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures import machine_files, machines
from fixtures.examples import examples
from fixtures.machines import Machine
from railwright_topology import hardware_inventory, outline
from railwright_topology.parts import (
    AdapterRole,
    Distance,
    HardwareReport,
    HardwareReports,
    Kind,
    Layer,
    Link,
    Part,
    Technology,
    pair,
)
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import (
    described,
    formats,
    hardware_documents,
    hwloc,
    kfd,
    nccl_topology,
    nvidia_smi,
    strict_json,
    sysfs,
)
from railwright_topology.sources.formats import File
from railwright_topology.sources.hardware_documents import Document
from railwright_topology.wiring import WiringError

T = TypeVar("T")

MACHINES = st.builds(machines.planted, st.randoms(use_true_random=False))

WRITTEN: dict[str, tuple[Callable[[Machine], str], Callable[[str], HardwareReport]]] = {
    "nccl": (machine_files.nccl_topology, nccl_topology.parse),
    "nvidia-smi": (machine_files.nvidia_smi, nvidia_smi.parse),
    "hwloc": (machine_files.hwloc, hwloc.parse),
    "description": (machine_files.description, described.parse_own),
    "agent": (
        lambda machine: hardware_documents.written(
            Document((sysfs.parse(machine_files.sysfs(machine)),))
        ),
        lambda text: next(
            iter(hardware_documents.parse(text).hardware_reports),
            HardwareReport("none", Provenance.IMPORTED),
        ),
    ),
}
"""Each format that is text: how it is written, and read."""


def shuffled(value: object, random: Random) -> object:
    """The same with all keys in another order."""
    if isinstance(value, dict):
        keys = random.sample(sorted(value), len(value))
        return {key: shuffled(value[key], random) for key in keys}
    return [shuffled(each, random) for each in value] if isinstance(value, list) else value


def reordered(text: str, random: Random) -> str:
    """XML with all children and attributes in another order; a matrix's own words stay."""
    root = ElementTree.fromstring(text)
    for element in root.iter():
        if not element.tag.startswith("distances2"):
            element[:] = random.sample([*element], len(element))
        element.attrib = dict(random.sample([*element.attrib.items()], len(element.attrib)))
    return ElementTree.tostring(root, encoding="unicode")


def equal(report: HardwareReport) -> HardwareReport:
    """Remarks have the lines of the text as it is."""
    links = tuple(sorted(report.links, key=lambda link: link.ends))
    return replace(report, links=links, remarks=())


@given(MACHINES, st.randoms(use_true_random=False))
@settings(max_examples=examples(12), deadline=None)
def test_the_order_of_what_is_written_does_not_matter(machine: Machine, random: Random) -> None:
    for name in ("nccl", "hwloc"):
        write, read = WRITTEN[name]
        text = write(machine)
        assert equal(read(reordered(text, random))) == equal(read(text))
    text = machine_files.description(machine)
    turned = json.dumps(shuffled(json.loads(text), random))
    assert described.parse_own(turned) == described.parse_own(text)
    sections, nodes = machine_files.sysfs(machine), machine_files.kfd(machine)
    turned_sections, turned_nodes = shuffled(sections, random), shuffled(nodes, random)
    assert sysfs.parse(turned_sections) == sysfs.parse(sections)  # type: ignore[arg-type]
    assert kfd.parse(turned_nodes) == kfd.parse(nodes)  # type: ignore[arg-type]


def hardware_reports(machine: Machine) -> list[HardwareReport]:
    return [
        nccl_topology.parse(machine_files.nccl_topology(machine)),
        nvidia_smi.parse(
            machine_files.nvidia_smi(machine), machine_files.nvidia_inventory(machine)
        ),
        hwloc.parse(machine_files.hwloc(machine)),
        sysfs.parse(machine_files.sysfs(machine)),
        described.parse_own(machine_files.description(machine)),
    ]


@given(MACHINES, st.randoms(use_true_random=False))
@settings(max_examples=examples(20), deadline=None)
def test_the_order_of_sources_and_of_their_parts_does_not_matter(
    machine: Machine, random: Random
) -> None:
    reported = hardware_reports(machine)
    turned = [
        replace(report, parts=tuple(random.sample(report.parts, len(report.parts))))
        for report in random.sample(reported, len(reported))
    ]
    assert hardware_inventory.of(turned) == hardware_inventory.of(reported)


@given(MACHINES, st.data())
@settings(max_examples=examples(20), deadline=None)
def test_one_false_fact_is_one_conflict_and_the_others_stay(
    machine: Machine, data: st.DataObject
) -> None:
    reported = hardware_reports(machine)
    at = data.draw(st.integers(0, len(reported) - 1))
    parts = reported[at].parts
    which = data.draw(st.integers(0, len(parts) - 1))
    stated = parts[which].numa
    if stated is None:
        return
    false = replace(parts[which], numa=stated + 1)
    reported[at] = replace(reported[at], parts=(*parts[:which], false, *parts[which + 1 :]))
    found, true = hardware_inventory.of(reported), hardware_inventory.of(hardware_reports(machine))
    if found.parts == true.parts:
        (conflict,) = found.conflicts
        assert (conflict.fact, conflict.reported, conflict.source) == (
            "numa",
            str(stated + 1),
            reported[at].source,
        )
    else:
        # It counts, by the order of equally trusted sources; then the others all contradict it.
        assert len(found.conflicts) >= 1
        assert {conflict.fact for conflict in found.conflicts} == {"numa"}
        assert {conflict.by for conflict in found.conflicts} == {reported[at].source}


def tried(read: Callable[[], T]) -> T | WiringError:
    """What is read, or why it is not."""
    try:
        return read()
    except WiringError as refused:
        return refused


def broken(text: str, data: st.DataObject) -> str:
    """The text with a few pieces cut out, doubled, swapped or overwritten."""
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 40)))
        piece = data.draw(
            st.sampled_from(["", text[start:end] * 2, "\x00", "-1", "99999999999999999999", '"'])
            | st.text(max_size=8)
        )
        text = text[:start] + piece + text[end:]
    return text


@pytest.mark.parametrize("name", WRITTEN)
@given(MACHINES, st.data())
@settings(max_examples=examples(60), deadline=None)
def test_broken_document_is_refused_with_place_and_rule_or_read(
    name: str, machine: Machine, data: st.DataObject
) -> None:
    write, read = WRITTEN[name]
    found = tried(lambda: read(broken(write(machine), data)))
    if isinstance(found, WiringError):
        assert found.rule
        return
    # What was read can be put together, told and written down whatever it is.
    whole = hardware_inventory.of([found])
    assert outline.of(whole)
    assert (
        hardware_inventory.of(
            hardware_documents.parse(
                hardware_documents.written(Document((found,)))
            ).hardware_reports
        )
        == whole
    )


@given(st.text(max_size=60) | MACHINES.map(machine_files.description))
@settings(max_examples=examples(40), deadline=None)
def test_files_of_a_site_are_refused_or_read(text: str) -> None:
    for file in ("hccl.json", "hardware.json", "hardware.yaml"):
        found = tried(lambda file=file: formats.read(File("site", file, text)))  # type: ignore[misc]
        if isinstance(found, WiringError):
            assert str(found).startswith(f"site/{file}")
        else:
            assert isinstance(found[0], HardwareReports)


TEXTS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=12)
NUMBERS = st.integers(0, strict_json.INTEGER_MAX - 1)
PARTS = st.builds(
    Part,
    id=TEXTS,
    kind=st.sampled_from(Kind),
    pci=st.sampled_from(["", "0000:17:00.0", "10000:e1:1f.7"]),
    number=st.none() | NUMBERS,
    names=st.lists(TEXTS, max_size=3).map(tuple),
    model=st.sampled_from(["", "10de:2330"]),
    numa=st.none() | NUMBERS,
    pcie_bytes_per_s=NUMBERS,
    bytes_per_s=NUMBERS,
    layer=st.none() | st.sampled_from(Layer),
    up=st.none() | st.booleans(),
    rail=st.none() | NUMBERS,
    role=st.none() | st.sampled_from(AdapterRole),
)


@st.composite
def any_reports(draw: st.DrawFn) -> HardwareReport:
    parts = draw(st.lists(PARTS, max_size=5, unique_by=lambda part: part.id))
    pairs = [pair(one.id, other.id) for at, one in enumerate(parts) for other in parts[:at]]
    some = st.lists(st.sampled_from(pairs), unique=True) if pairs else st.just([])
    links = st.builds(
        Link,
        st.just(("", "")),
        st.sampled_from(Technology),
        NUMBERS,
        NUMBERS,
        switched=st.none() | st.booleans(),
    )
    return HardwareReport(
        draw(TEXTS),
        draw(st.sampled_from(Provenance)),
        tuple(parts),
        tuple(replace(draw(links), ends=ends) for ends in draw(some)),
        {ends: draw(st.sampled_from(Distance)) for ends in draw(some)},
        frozenset(draw(st.lists(st.sampled_from(Technology)))),
        draw(st.none() | st.booleans()),
        draw(st.none() | st.booleans()),
        tuple(draw(st.lists(TEXTS, max_size=2))),
    )


@given(st.lists(any_reports(), max_size=3, unique_by=lambda report: report.source), st.lists(TEXTS))
@settings(max_examples=examples(60), deadline=None)
def test_agent_document_reads_back_unchanged(
    reported: list[HardwareReport], refused: list[str]
) -> None:
    document = Document(tuple(reported), tuple(refused))
    found = hardware_documents.parse(hardware_documents.written(document))
    assert found.refused == document.refused
    for report, original in zip(found.hardware_reports, document.hardware_reports, strict=True):
        assert {*report.links} == {*original.links}
        assert replace(report, links=()) == replace(original, links=())
