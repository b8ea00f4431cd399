"""The hardware of nodes as node agents report it: one JSON document for each node.

    {"version": 1,
     "reports": [
      {"source": "sysfs", "provenance": "SEEN", "virtual": false, "hides_tree": false,
       "complete": [],
       "parts": [{"id": "0000:17:00.0", "kind": "accelerator", "pci": "0000:17:00.0", …}],
       "links": [{"technology": "NVLink", "count": 18, "between": [[0, 2], [0, 4], [2, 4]]}],
       "near": ["", "1", "55", "551"], "remarks": []}],
     "benchmarks": [
      {"device": "0000:17:00.0", "model": "NVIDIA H100 80GB HBM3", "by": "torch 2.15.0",
       "flop_per_s": 700000000000000, "memory_bytes_per_s": 2900000000000}],
     "busy": ["cpu"],
     "refused": ["NCCL topology, line 7: …"]}

A file for many nodes has an object of such documents by node name. Parts are referred to by their
index in ``parts``. A row of ``near`` has a part's distance to each part before it, 1 the nearest
and 5 the farthest, 0 if unknown. Unknown values are left out. ``benchmarks`` are those of idle
devices; ``busy`` are the devices that were not measured because they were busy, or may have been.
``refused`` are the sources that the agent could not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from railwright_topology.grouping import group
from railwright_topology.parts import (
    CPU,
    LINKS_MAX,
    NAMES_MAX,
    PARTS_MAX,
    AdapterRole,
    Benchmarks,
    DeviceBenchmark,
    Distance,
    HardwareReport,
    HardwareReports,
    Kind,
    Layer,
    Link,
    Pair,
    Part,
    Technology,
    pair,
)
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import hostlist, pci, strict_json
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.strict_json import Decoders, JsonValue, one_of
from railwright_topology.wiring import WiringError

SOURCE = "agents"
VERSION = 1

REPORTS_MAX = 16
REMARKS_MAX = 64
NODES_MAX = 1 << 14
PER_S_MAX = 10**18
"""Accelerators of 2026 reach some 10**16."""

T = TypeVar("T")

_NOWHERE = ("", "")
_NUMBERED = re.compile(r"[a-z]{1,16}:[0-9]{1,3}")


@dataclass(frozen=True, slots=True)
class Document:
    """The report of one node's agent."""

    hardware_reports: tuple[HardwareReport, ...] = ()
    refused: tuple[str, ...] = ()
    benchmarks: Benchmarks = ()
    busy: tuple[str, ...] = ()


def written(document: Document) -> str:
    """Encode a document; equal documents have equal texts. Empty fields are left out, so that
    readers of other versions can read the rest."""
    content: dict[str, list[Any]] = {
        "reports": [_report_fields(report) for report in document.hardware_reports],
        "benchmarks": [_known_fields(each) for each in document.benchmarks],
        "busy": list(document.busy),
        "refused": _few(document.refused),
    }
    return json.dumps({"version": VERSION, **{field: its for field, its in content.items() if its}})


def parse(text: str) -> Document:
    """Read the document of one node. Raises WiringError for a document that breaks a rule."""
    omissions = Omissions(SOURCE)
    return _document(JsonValue(omissions, strict_json.read(SOURCE, text, omissions)))


def parse_all(text: str) -> HardwareReports:
    """Read the documents of many nodes by node name. Sources that an agent could not read become
    remarks, and invalid documents are left out. Raises WiringError if none is left."""
    omissions = Omissions(SOURCE)
    nodes = strict_json.read(SOURCE, text, omissions)
    if not isinstance(nodes, dict) or len(nodes) > NODES_MAX:
        rule = f"expected an object with the documents of up to {NODES_MAX} nodes by node name"
        raise WiringError(SOURCE, 1, rule)
    by_host: dict[str, tuple[HardwareReport, ...]] = {}
    benchmarks: dict[str, Benchmarks] = {}
    shared: dict[str, tuple[HardwareReport, ...]] = {}
    for name, document in nodes.items():
        with omissions.part():
            reports, measured = _of_node(name, document, shared, omissions)
            if measured:
                benchmarks[name] = measured
            # With benchmarks alone, the agent did not inspect the node.
            if reports or not measured:
                by_host[name] = reports
    if nodes and not by_host and not benchmarks:
        raise WiringError(SOURCE, 1, next(iter(omissions.sentences), "no node is in it"))
    return HardwareReports(SOURCE, by_host, benchmarks, omissions.sentences)


def _of_node(
    name: str, document: object, shared: dict[str, tuple[HardwareReport, ...]], omissions: Omissions
) -> tuple[tuple[HardwareReport, ...], Benchmarks]:
    """The reports and benchmarks of a node. Nodes of one kind mostly have equal hardware, and no
    equal benchmarks: ``shared`` has the reports by the document without benchmarks."""
    if not hostlist.is_name(name):
        raise WiringError(SOURCE, 0, f"{name[:80]!r} is no valid node name")
    content = json.dumps({**document, "benchmarks": []} if isinstance(document, dict) else document)
    node = JsonValue(Omissions(SOURCE), document)
    try:
        benchmarks = _benchmarks(node)
        if content not in shared:
            shared[content] = of(_document(node))
        else:
            for sentence in node.omissions.sentences:
                omissions.note(0, f"{name}: {sentence}")
    except WiringError as error:
        raise WiringError(SOURCE, 0, f"{name}: {error.rule}") from error
    return shared[content], benchmarks


def of(document: Document) -> tuple[HardwareReport, ...]:
    """The reports of a document; refused sources are one more report with remarks."""
    if not document.refused:
        return document.hardware_reports
    return (
        *document.hardware_reports,
        HardwareReport("agent", Provenance.IMPORTED, remarks=document.refused),
    )


def _report_fields(report: HardwareReport) -> dict[str, object]:
    place = {part.id: at for at, part in enumerate(report.parts)}
    # By the properties of a link without its ends.
    linked = group(
        (replace(link, ends=_NOWHERE), sorted(place[end] for end in link.ends))
        for link in report.links
    )
    return {
        "source": report.source,
        "provenance": report.provenance.name,
        "virtual": report.virtual,
        "hides_tree": report.hides_tree,
        "complete": sorted(report.complete),
        "parts": [_known_fields(part) for part in report.parts],
        "links": [{**_known_fields(link), "between": between} for link, between in linked.items()],
        "near": [
            "".join(
                f"{report.distances.get(pair(part.id, other.id), 0):d}"
                for other in report.parts[:at]
            )
            for at, part in enumerate(report.parts)
        ],
        "remarks": _few(report.remarks),
    }


def _few(sentences: Sequence[str]) -> list[str]:
    """As many sentences as a reader accepts, in printable characters."""
    kept = [*sentences]
    if len(sentences) > REMARKS_MAX:
        kept[REMARKS_MAX - 1 :] = ["and more"]
    printable = ("".join(each if each.isprintable() else "?" for each in its) for its in kept)
    return [its[: strict_json.TEXT_MAX] for its in printable]


def _known_fields(value: Part | Link | DeviceBenchmark) -> dict[str, object]:
    """The fields of a value that are known."""
    values = ((each, getattr(value, each.name)) for each in fields(value))
    return {each.name: its for each, its in values if each.name != "ends" and its != each.default}


def _document(node: JsonValue) -> Document:
    """Decode a document. Invalid parts are left out where the rest is valid without them."""
    version = node["version"].content
    if not isinstance(version, int) or isinstance(version, bool) or version < VERSION:
        raise node["version"].error(f"expected {VERSION} or later")
    reports = _once(node["reports"], node["reports"].some(REPORTS_MAX, _report), "source")
    refused = node["refused"].some(REMARKS_MAX, JsonValue.text)
    busy = node["busy"].some(PARTS_MAX, _device)
    benchmarks = _benchmarks(node)
    return Document(reports, (*refused, *node.omissions.sentences), benchmarks, tuple(busy))


def _benchmarks(node: JsonValue) -> Benchmarks:
    its = node["benchmarks"]
    benchmarks = its.some(PARTS_MAX, lambda each: each.decode(DeviceBenchmark, _BENCHMARK))
    return _once(its, benchmarks, "device")


def _once(node: JsonValue, values: Iterable[T], name: str) -> tuple[T, ...]:
    """The first value of each name."""
    found: dict[str, T] = {}
    for value in values:
        if found.setdefault(getattr(value, name), value) is not value:
            node.omissions.add(node.error(f"each {name} may occur once"))
    return tuple(found.values())


def _report(node: JsonValue) -> HardwareReport:
    # An invalid part keeps its index, by which links and rows refer to it.
    ids, parts = list[str](), dict[str, Part]()
    for each in node["parts"].each(PARTS_MAX):
        ids.append("")
        with node.omissions.part():
            part = each.decode(Part, _PART)
            ids[-1] = part.id
            parts.setdefault(part.id, part)
    links, near = list[Link](), dict[Pair, Distance]()
    with node.omissions.part():
        _check_places(node, ids)
        grouped = node["links"].some(LINKS_MAX, lambda each: _links(each, ids))
        links = [link for group in grouped for link in group]
        near = _near(node["near"], ids)
    if len(links) > LINKS_MAX:
        raise node["links"].error(f"{len(links)} links, at most {LINKS_MAX}")
    technologies = node["complete"].some(8, _TECHNOLOGY)
    return node.decode(
        HardwareReport,
        _REPORT,
        parts=tuple(parts.values()),
        links=tuple(links),
        distances=near,
        complete=frozenset(technologies if links or not node["links"].content else ()),
        remarks=tuple(node["remarks"].some(REMARKS_MAX, JsonValue.text)),
    )


def _check_places(node: JsonValue, ids: Sequence[str]) -> None:
    """Raise WiringError if indexes of parts may have shifted."""
    named = [id_ for id_ in ids if id_]
    if len({*named}) < len(named):
        rule = "part ids are not unique: links and distances are left out"
        raise node["parts"].error(rule)
    near = node["near"]
    if isinstance(near.content, list) and len(near.content) not in (0, len(ids)):
        rule = f"{len(near.content)} rows for {len(ids)} parts: links and distances are left out"
        raise near.error(rule)


def _links(node: JsonValue, ids: Sequence[str]) -> list[Link]:
    """Links with equal properties between several pairs of parts."""
    link = node.decode(Link, _LINK, ends=_NOWHERE)
    found: list[Link] = []
    for each in node["between"].each(LINKS_MAX):
        places = [place.whole() for place in each.each(2)]
        if len(places) != 2:
            raise each.error("expected two parts")
        one, other = places
        if not one < other < len(ids):
            rule = f"{one}, {other}: expected two ascending indexes of {len(ids)} parts"
            raise node["between"].error(rule)
        if ids[one] and ids[other]:
            found.append(replace(link, ends=pair(ids[one], ids[other])))
    return found


def _near(node: JsonValue, ids: Sequence[str]) -> dict[Pair, Distance]:
    found: dict[Pair, Distance] = {}
    for at, (row, id_) in enumerate(zip(node.each(PARTS_MAX), ids, strict=False)):
        with node.omissions.part():
            digits = row.printable()
            if len(digits) != at or not {*digits} <= {*"012345"}:
                raise row.error(f"expected {at} digits from 0 to 5")
            for other, digit in zip(ids, digits, strict=False):
                if digit != "0" and id_ and other:
                    found[pair(id_, other)] = Distance(int(digit))
    return found


def _device(node: JsonValue) -> str:
    name = node.text()
    if name != CPU and pci.address(name) != name and not _NUMBERED.fullmatch(name):
        raise node.error(f"{name[:80]!r} is neither a PCI address nor {CPU} nor such as xpu:0")
    return name


def _address(node: JsonValue) -> str:
    address = node.printable()
    if pci.address(address) != address:
        raise node.error(f"{address[:80]!r} is no PCI address")
    return address


def _per_s(node: JsonValue) -> int:
    return node.whole(PER_S_MAX)


_TECHNOLOGY = one_of(Technology, Technology.OTHER)
_BENCHMARK: Decoders = {
    "device": _device,
    "model": JsonValue.text,
    "by": JsonValue.text,
    "flop_per_s": _per_s,
    "memory_bytes_per_s": _per_s,
}
_PART: Decoders = {
    "id": JsonValue.text,
    "kind": one_of(Kind),
    "pci": _address,
    "number": JsonValue.whole,
    "names": lambda node: tuple(name.text() for name in node.each(NAMES_MAX)),
    "model": JsonValue.printable,
    "numa": JsonValue.whole,
    "pcie_bytes_per_s": JsonValue.whole,
    "bytes_per_s": JsonValue.whole,
    "layer": one_of(Layer, Layer.OTHER),
    "up": JsonValue.truth,
    "rail": JsonValue.whole,
    "role": one_of(AdapterRole, AdapterRole.UNDECIDED),
}
_LINK: Decoders = {
    "technology": _TECHNOLOGY,
    "count": JsonValue.whole,
    "bytes_per_s": JsonValue.whole,
    "switched": JsonValue.truth,
}
_REPORT: Decoders = {
    "source": JsonValue.text,
    "provenance": one_of(Provenance),
    "virtual": JsonValue.truth,
    "hides_tree": JsonValue.truth,
}
