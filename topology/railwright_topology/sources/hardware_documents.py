"""What agents have seen inside their nodes, written down for whoever puts it together.

    {"version": 1, "looks": [
      {"source": "sysfs", "basis": "SEEN", "virtual": false, "hides_tree": false, "tells": [],
       "parts": [{"id": "0000:17:00.0", "kind": "accelerator", "pci": "0000:17:00.0", …}],
       "links": [{"technology": "NVLink", "count": 18, "between": [[0, 2], [0, 4], [2, 4]]}],
       "near": ["", "1", "55", "551"], "remarks": []}],
     "rates": [{"device": "0000:17:00.0", "model": "NVIDIA H100 80GB HBM3", "by": "torch 2.15.0",
                "flop_per_s": 700000000000000, "memory_bytes_per_s": 2900000000000}],
     "busy": ["cpu"],
     "refused": ["NCCL topology, line 7: …"]}

One such document is of one node. A file of many holds them in an object, each under its node's
name. Parts are named by their places in the list of them; a row of ``near`` says of a part how near
each one before it is, 1 the nearest and 5 the farthest, 0 where it is not known. What is not known
is left out. ``rates`` are those of devices that were measured, and ``busy`` are devices that were
not, as they worked or nobody could say whether they did. ``refused`` are the sources that the agent
could not read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from railwright_topology.parts import (
    CPU,
    LINKS_MAX,
    NAMES_MAX,
    PARTS_MAX,
    DeviceBenchmark,
    Distance,
    HardwareReport,
    HardwareReports,
    Kind,
    Layer,
    Link,
    Pair,
    Part,
    Role,
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

LOOKS_MAX = 16
REMARKS_MAX = 64
NODES_MAX = 1 << 14
RATE_MAX = 10**18
"""Devices of 2026 come near to the other; nobody minds what a reader does to the last digits."""

T = TypeVar("T")

_NOWHERE = ("", "")
_NUMBERED = re.compile(r"[a-z]{1,16}:[0-9]{1,3}")


@dataclass(frozen=True, slots=True)
class Document:
    """What an agent has to say of its node."""

    hardware_reports: tuple[HardwareReport, ...] = ()
    refused: tuple[str, ...] = ()
    rates: tuple[DeviceBenchmark, ...] = ()
    busy: tuple[str, ...] = ()


def written(document: Document) -> str:
    """As it is read again, and the same for equal documents. Fields with nothing in them are left
    out: a reader that does not know one of them reads the rest."""
    said: dict[str, list[Any]] = {
        "looks": [_written_look(look) for look in document.hardware_reports],
        "rates": [_known(rates) for rates in document.rates],
        "busy": list(document.busy),
        "refused": _few(document.refused),
    }
    return json.dumps({"version": VERSION, **{field: its for field, its in said.items() if its}})


def parse(text: str) -> Document:
    """One node's. Raises WiringError where it is none."""
    omissions = Omissions(SOURCE)
    return _document(JsonValue(omissions, strict_json.read(SOURCE, text, omissions)))


def parse_all(text: str) -> HardwareReports:
    """Many nodes', by their names. What an agent could not read is a remark; a node's document that
    is none is left out. Raises WiringError where nothing is left."""
    omissions = Omissions(SOURCE)
    nodes = strict_json.read(SOURCE, text, omissions)
    if not isinstance(nodes, dict) or len(nodes) > NODES_MAX:
        rule = f"the documents of up to {NODES_MAX} nodes stand in an object, each under its name"
        raise WiringError(SOURCE, 1, rule)
    by_host: dict[str, tuple[HardwareReport, ...]] = {}
    rates: dict[str, tuple[DeviceBenchmark, ...]] = {}
    shared: dict[str, tuple[HardwareReport, ...]] = {}
    for name, document in nodes.items():
        with omissions.part():
            reports, measured = _of_node(name, document, shared, omissions)
            if measured:
                rates[name] = measured
            # Where there are rates alone, the agent did not inspect the node.
            if reports or not measured:
                by_host[name] = reports
    if nodes and not by_host and not rates:
        raise WiringError(SOURCE, 1, next(iter(omissions.sentences), "no node is in it"))
    return HardwareReports(SOURCE, by_host, rates, omissions.sentences)


def _of_node(
    name: str, document: object, shared: dict[str, tuple[HardwareReport, ...]], omissions: Omissions
) -> tuple[tuple[HardwareReport, ...], tuple[DeviceBenchmark, ...]]:
    """The reports and rates of a node. Nodes of one kind mostly have the same hardware, and no two
    are equally fast: ``shared`` has the reports by the text of all but the rates."""
    if not hostlist.is_name(name):
        raise WiringError(SOURCE, 0, f"{name[:80]!r} is no name of a node")
    content = json.dumps({**document, "rates": []} if isinstance(document, dict) else document)
    node = JsonValue(Omissions(SOURCE), document)
    try:
        rates = _rates(node)
        if content not in shared:
            shared[content] = of(_document(node))
        else:
            for sentence in node.omissions.sentences:
                omissions.note(0, f"{name}: {sentence}")
    except WiringError as error:
        raise WiringError(SOURCE, 0, f"{name}: {error.rule}") from error
    return shared[content], rates


def of(document: Document) -> tuple[HardwareReport, ...]:
    """The looks of a document, and one more with what was refused, if anything was."""
    if not document.refused:
        return document.hardware_reports
    return (
        *document.hardware_reports,
        HardwareReport("agent", Provenance.TOLD, remarks=document.refused),
    )


def _written_look(look: HardwareReport) -> dict[str, object]:
    place = {part.id: at for at, part in enumerate(look.parts)}
    linked: dict[Link, list[list[int]]] = {}
    for link in look.links:
        # All that there is to say of links but where they end.
        alike = replace(link, ends=_NOWHERE)
        linked.setdefault(alike, []).append(sorted(place[end] for end in link.ends))
    return {
        "source": look.source,
        "basis": look.basis.name,
        "virtual": look.virtual,
        "hides_tree": look.hides_tree,
        "tells": sorted(look.tells),
        "parts": [_known(part) for part in look.parts],
        "links": [{**_known(link), "between": between} for link, between in linked.items()],
        "near": [
            "".join(
                f"{look.distances.get(pair(part.id, other.id), 0):d}" for other in look.parts[:at]
            )
            for at, part in enumerate(look.parts)
        ],
        "remarks": _few(look.remarks),
    }


def _few(said: Sequence[str]) -> list[str]:
    """No more of it than is read."""
    kept = [*said] if len(said) <= REMARKS_MAX else [*said[: REMARKS_MAX - 1], "and more"]
    printable = ("".join(each if each.isprintable() else "?" for each in its) for its in kept)
    return [its[: strict_json.TEXT_MAX] for its in printable]


def _known(value: Part | Link | DeviceBenchmark) -> dict[str, object]:
    """Its fields as far as they are known."""
    said = ((each, getattr(value, each.name)) for each in fields(value))
    return {each.name: its for each, its in said if each.name != "ends" and its != each.default}


def _document(node: JsonValue) -> Document:
    """What is wrong is left out where the rest holds without it."""
    version = node["version"].content
    if not isinstance(version, int) or isinstance(version, bool) or version < VERSION:
        raise node["version"].error(f"this is read, and later ones: {VERSION}")
    reports = _once(node["looks"], node["looks"].some(LOOKS_MAX, _report), "source")
    refused = node["refused"].some(REMARKS_MAX, JsonValue.text)
    busy = node["busy"].some(PARTS_MAX, _device)
    rates = _rates(node)
    return Document(reports, (*refused, *node.omissions.sentences), rates, tuple(busy))


def _rates(node: JsonValue) -> tuple[DeviceBenchmark, ...]:
    rates = node["rates"].some(PARTS_MAX, lambda each: each.decode(DeviceBenchmark, _RATES))
    return _once(node["rates"], rates, "device")


def _once(node: JsonValue, values: Iterable[T], name: str) -> tuple[T, ...]:
    """The first of each name."""
    found: dict[str, T] = {}
    for value in values:
        if found.setdefault(getattr(value, name), value) is not value:
            node.omissions.add(node.error(f"each {name} is there once"))
    return tuple(found.values())


def _report(node: JsonValue) -> HardwareReport:
    # One that breaks a rule keeps its place: links and rows name parts by their places.
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
    technologies = node["tells"].some(8, _TECHNOLOGY)
    return node.decode(
        HardwareReport,
        _REPORT,
        parts=tuple(parts.values()),
        links=tuple(links),
        distances=near,
        tells=frozenset(technologies if links or not node["links"].content else ()),
        remarks=tuple(node["remarks"].some(REMARKS_MAX, JsonValue.text)),
    )


def _check_places(node: JsonValue, ids: Sequence[str]) -> None:
    """Raise where the places of parts have shifted."""
    named = [id_ for id_ in ids if id_]
    if len({*named}) < len(named):
        rule = "each part has an id of its own: links and distances are left out"
        raise node["parts"].error(rule)
    near = node["near"]
    if isinstance(near.content, list) and len(near.content) not in (0, len(ids)):
        rule = f"{len(near.content)} rows for {len(ids)} parts: links and distances are left out"
        raise near.error(rule)


def _links(node: JsonValue, ids: Sequence[str]) -> list[Link]:
    """Those between several pairs, and all alike."""
    link = node.decode(Link, _LINK, ends=_NOWHERE)
    found: list[Link] = []
    for each in node["between"].each(LINKS_MAX):
        places = [place.whole() for place in each.each(2)]
        if len(places) != 2:
            raise each.error("two parts stand here")
        one, other = places
        if not one < other < len(ids):
            rule = f"{one}, {other}: two of {len(ids)} parts stand here, in their order"
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
                raise row.error(f"{at} digits from 0 to 5 stand here")
            for other, digit in zip(ids, digits, strict=False):
                if digit != "0" and id_ and other:
                    found[pair(id_, other)] = Distance(int(digit))
    return found


def _device(node: JsonValue) -> str:
    name = node.text()
    if name != CPU and pci.address(name) != name and not _NUMBERED.fullmatch(name):
        raise node.error(f"{name[:80]!r} is no PCI address, and neither {CPU} nor such as xpu:0")
    return name


def _address(node: JsonValue) -> str:
    address = node.printable()
    if pci.address(address) != address:
        raise node.error(f"{address[:80]!r} is no PCI address")
    return address


def _rate(node: JsonValue) -> int:
    return node.whole(RATE_MAX)


_TECHNOLOGY = one_of(Technology, Technology.OTHER)
_RATES: Decoders = {
    "device": _device,
    "model": JsonValue.text,
    "by": JsonValue.text,
    "flop_per_s": _rate,
    "memory_bytes_per_s": _rate,
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
    "role": one_of(Role, Role.UNDECIDED),
}
_LINK: Decoders = {
    "technology": _TECHNOLOGY,
    "count": JsonValue.whole,
    "bytes_per_s": JsonValue.whole,
    "switched": JsonValue.truth,
}
_REPORT: Decoders = {
    "source": JsonValue.text,
    "basis": one_of(Provenance),
    "virtual": JsonValue.truth,
    "hides_tree": JsonValue.truth,
}
