"""What an agent writes of its node: read strictly, by itself and in a file of many."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from fixtures import machine_files, machines
from railwright_testbed import later_fields
from railwright_topology import fabric
from railwright_topology.parts import (
    CPU,
    DeviceBenchmark,
    HardwareReport,
    HardwareReports,
    Technology,
)
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import formats, hardware_documents, hwloc, sysfs
from railwright_topology.sources.formats import File
from railwright_topology.sources.hardware_documents import Document
from railwright_topology.wiring import WiringError

MACHINE = machines.planted(Random(1))
DOCUMENT = Document(
    (
        sysfs.parse(machine_files.sysfs(MACHINE)),
        hwloc.parse(machine_files.hwloc(MACHINE)),
    ),
    benchmarks=(
        DeviceBenchmark(MACHINE.gpus[0].address, "H100", "torch 9.9", 10**16, 3 * 10**12),
        DeviceBenchmark(CPU, "Xeon", "torch 9.9", 10**12),
        DeviceBenchmark("xpu:0", "Max 1550", "torch 9.9", memory_bytes_per_s=10**12),
    ),
    busy=(MACHINE.gpus[1].address,),
)


def edited(edit: Callable[[Any], object]) -> str:
    stated = json.loads(hardware_documents.written(DOCUMENT))
    edit(stated)
    try:
        return "\n".join(hardware_documents.parse(json.dumps(stated)).refused)
    except WiringError as refused:
        return str(refused)


def report(stated: Any) -> Any:
    return stated["reports"][0]


def near(stated: Any) -> Any:
    return report(stated)["near"]


def part(stated: Any) -> Any:
    return report(stated)["parts"][0]


def benchmarks(stated: Any) -> Any:
    return stated["benchmarks"][0]


@pytest.mark.parametrize(
    ("edit", "rule"),
    [
        (lambda d: d.update(version=0), "version: expected 1 or later"),
        (lambda d: d.update(version=True), "version: expected 1 or later"),
        (lambda d: d.update(reports={}), "reports: a list of up to 16 stands here"),
        (lambda d: d.update(reports=d["reports"] * 2), "reports: each source may occur once"),
        (lambda d: d.update(refused=[1]), "refused[0]: up to 1024 printable characters"),
        (
            lambda d: report(d).update(provenance="GUESSED"),
            "reports[0].provenance: one of these stands here",
        ),
        (lambda d: report(d).update(source=""), "reports[0].source: a text stands here"),
        (lambda d: report(d).update(virtual="no"), "reports[0].virtual: true, false or null"),
        (
            lambda d: report(d).update(parts=[part(d)] * 257),
            "parts: a list of up to 256 stands here",
        ),
        (lambda d: report(d).update(parts=[part(d)] * 2), "part ids are not unique"),
        (
            lambda d: near(d).__setitem__(0, "1"),
            "reports[0].near[0]: expected 0 digits from 0 to 5",
        ),
        (
            lambda d: near(d).__setitem__(1, "9"),
            "reports[0].near[1]: expected 1 digits from 0 to 5",
        ),
        (lambda d: near(d).pop(), "links and distances are left out"),
        (lambda d: part(d).update(pci="17"), "reports[0].parts[0].pci: '17' is no PCI address"),
        (lambda d: part(d).update(kind="toaster"), "parts[0].kind: one of these stands here"),
        (lambda d: part(d).update(numa=-1), "parts[0].numa: a whole number below"),
        (lambda d: part(d).update(numa=1.0), "parts[0].numa: a whole number below"),
        (lambda d: part(d).update(bytes_per_s=1 << 60), "bytes_per_s: a whole number below"),
        (
            lambda d: report(d).update(links=[{"technology": "NVLink", "between": [[0, 99]]}]),
            "reports[0].links[0].between: 0, 99: expected two ascending",
        ),
        (
            lambda d: report(d).update(links=[{"technology": "NVLink", "between": [[1, 0]]}]),
            "1, 0: expected two ascending",
        ),
        (
            lambda d: report(d).update(links=[{"technology": "NVLink", "between": [[1]]}]),
            "between[0]: expected two parts",
        ),
        (lambda d: d.update(benchmarks={}), "benchmarks: a list of up to 256 stands here"),
        (
            lambda d: d.update(benchmarks=[benchmarks(d)] * 2),
            "benchmarks: each device may occur once",
        ),
        (
            lambda d: benchmarks(d).update(device="gpu 0"),
            "benchmarks[0].device: 'gpu 0' is neither a PCI address",
        ),
        (lambda d: benchmarks(d).update(model=""), "benchmarks[0].model: a text stands here"),
        (
            lambda d: benchmarks(d).update(by=None),
            "benchmarks[0].by: up to 1024 printable characters",
        ),
        (
            lambda d: benchmarks(d).update(flop_per_s=1e12),
            "benchmarks[0].flop_per_s: a whole number below",
        ),
        (
            lambda d: benchmarks(d).update(flop_per_s=10**18),
            "benchmarks[0].flop_per_s: a whole number below",
        ),
        (lambda d: d.update(busy=[""]), "busy[0]: a text stands here"),
    ],
)
def test_document_omission_has_its_path(edit: Callable[[Any], object], rule: str) -> None:
    assert rule in edited(edit)


def test_document_of_later_version_is_read() -> None:
    stated = later_fields.extended(json.loads(hardware_documents.written(DOCUMENT))) | {
        "version": 2
    }
    assert hardware_documents.parse(json.dumps(stated)) == DOCUMENT
    link = {"technology": "Photons", "between": [[0, 1]]}
    document = {"version": 1, "reports": [report(stated) | {"links": [link]}]}
    (found,) = hardware_documents.parse(json.dumps(document)).hardware_reports
    assert [each.technology for each in found.links] == [Technology.OTHER]


def test_what_is_not_json_is_refused_with_its_line() -> None:
    with pytest.raises(WiringError, match=r"^agents, line 2: no whole JSON document"):
        hardware_documents.parse('{"version": 1,\n"reports"}')


def test_nodes_that_are_the_same_inside_are_read_once() -> None:
    stated = json.loads(hardware_documents.written(DOCUMENT))
    text = json.dumps({f"node-{n}": stated for n in range(4)})
    (hardware_reports,) = formats.read(File("site", "hardware.json", text))
    assert isinstance(hardware_reports, HardwareReports)
    assert hardware_reports.source == "site/agents"
    assert [report.source for report in hardware_reports.by_host["node-0"]] == [
        "site/sysfs",
        "site/hwloc",
    ]
    found = fabric.of(hardware_reports.nodes, [hardware_reports])
    assert len(found.inventories) == 4
    assert len({id(inventory) for inventory in found.inventories.values()}) == 1


def test_a_document_is_read_as_it_was_written() -> None:
    assert hardware_documents.parse(hardware_documents.written(DOCUMENT)) == DOCUMENT


def test_hardware_document_has_no_empty_field() -> None:
    """Who does not know rates yet reads the documents of agents that measure nothing."""
    plain = json.loads(hardware_documents.written(Document(DOCUMENT.hardware_reports)))
    assert {*plain} == {"version", "reports"}
    assert hardware_documents.parse(hardware_documents.written(Document())) == Document()


def test_equal_nodes_of_different_speed_are_read_once() -> None:
    stated = json.loads(hardware_documents.written(DOCUMENT))
    nodes = {
        f"node-{n}": {**stated, "benchmarks": [{**benchmarks(stated), "flop_per_s": n}]}
        for n in range(4)
    }
    (hardware_reports,) = formats.read(File("site", "hardware.json", json.dumps(nodes)))
    assert isinstance(hardware_reports, HardwareReports)
    assert len({id(its) for its in hardware_reports.by_host.values()}) == 1
    assert [its[0].flop_per_s for its in hardware_reports.benchmarks.values()] == [0, 1, 2, 3]


def test_benchmarks_measured_apart_change_no_inventory() -> None:
    text = json.dumps(
        {
            "node-1": {
                "version": 1,
                "benchmarks": [benchmarks(json.loads(hardware_documents.written(DOCUMENT)))],
            }
        }
    )
    (hardware_reports,) = formats.read(File("site", "benchmarks.json", text))
    found = fabric.of(["node-1"], [hardware_reports])
    assert found.benchmarks == {"node-1": DOCUMENT.benchmarks[:1]}
    assert not found.inventories


def test_unreadable_hardware_is_a_remark_on_its_node() -> None:
    document = Document(DOCUMENT.hardware_reports, ("nvidia-smi topo -m: no answer in 20 s",))
    text = json.dumps({"node-1": json.loads(hardware_documents.written(document))})
    (hardware_reports,) = formats.read(File("", "hardware.json", text))
    found = fabric.of(["node-1"], [hardware_reports])
    assert found.inventories["node-1"].remarks == ("agent: nvidia-smi topo -m: no answer in 20 s",)


def test_the_file_of_many_nodes_names_the_one_that_is_refused() -> None:
    with pytest.raises(
        WiringError, match=r"^hardware.json, line 1: a: version: expected 1 or later"
    ):
        formats.read(File("", "hardware.json", '{"a": {"reports": 0}}'))
    with pytest.raises(WiringError, match="expected an object with the documents"):
        formats.read(File("", "hardware.json", "[]"))


def test_more_remarks_than_are_read_are_not_written() -> None:
    many = HardwareReport(
        "x", Provenance.IMPORTED, remarks=tuple(f"remark\x1b {n}" for n in range(100))
    )
    (read,) = hardware_documents.parse(
        hardware_documents.written(Document((many,)))
    ).hardware_reports
    assert len(read.remarks) == hardware_documents.REMARKS_MAX
    assert read.remarks[0] == "remark? 0"
    assert read.remarks[-1] == "and more"
