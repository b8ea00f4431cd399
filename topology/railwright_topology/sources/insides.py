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

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from railwright_topology.accounts import Basis
from railwright_topology.parts import (
    CPU,
    LINKS_MAX,
    NAMES_MAX,
    PARTS_MAX,
    Distance,
    Kind,
    Layer,
    Link,
    Look,
    Looks,
    Pair,
    Part,
    Rates,
    Role,
    Technology,
    pair,
)
from railwright_topology.sources import pci, strict_json
from railwright_topology.sources.omissions import Omissions
from railwright_topology.wiring import WiringError

SOURCE = "agents"
VERSION = 1

LOOKS_MAX = 16
REMARKS_MAX = 64
NODES_MAX = 1 << 14
RATE_MAX = 10**18
"""Devices of 2026 come near to the other; nobody minds what a reader does to the last digits."""

_NOWHERE = ("", "")
_NUMBERED = re.compile(r"[a-z]{1,16}:[0-9]{1,3}")


@dataclass(frozen=True, slots=True)
class Document:
    """What an agent has to say of its node."""

    looks: tuple[Look, ...] = ()
    refused: tuple[str, ...] = ()
    rates: tuple[Rates, ...] = ()
    busy: tuple[str, ...] = ()


def written(document: Document) -> str:
    """As it is read again, and the same for equal documents. Fields with nothing in them are left
    out: a reader that does not know one of them reads the rest."""
    said: dict[str, list[Any]] = {
        "looks": [_written_look(look) for look in document.looks],
        "rates": [_known(rates) for rates in document.rates],
        "busy": list(document.busy),
        "refused": _few(document.refused),
    }
    return json.dumps({"version": VERSION, **{field: its for field, its in said.items() if its}})


def parse(text: str) -> Document:
    """One node's. Raises WiringError where it is none."""
    omissions = Omissions(SOURCE)
    return _Reader(omissions).document(strict_json.read(SOURCE, text, omissions))


def parse_all(text: str) -> Looks:
    """Many nodes', by their names. What an agent could not read is a remark; a node's document that
    is none is left out. Raises WiringError where nothing is left."""
    omissions = Omissions(SOURCE)
    nodes = strict_json.read(SOURCE, text, omissions)
    if not isinstance(nodes, dict) or len(nodes) > NODES_MAX:
        rule = f"the documents of up to {NODES_MAX} nodes stand in an object, each under its name"
        raise WiringError(SOURCE, 1, rule)
    by_host: dict[str, tuple[Look, ...]] = {}
    rates: dict[str, tuple[Rates, ...]] = {}
    read: dict[str, tuple[Look, ...]] = {}
    for node, said in nodes.items():
        if not 0 < len(node) <= 253 or not node.isprintable():
            omissions.note(0, f"{node[:80]!r} is no name of a node")
            continue
        # Nodes of one kind are mostly the same inside, and no two are equally fast.
        content = json.dumps({**said, "rates": []} if isinstance(said, dict) else said)
        reader = _Reader(Omissions(SOURCE))
        try:
            its = reader.rates(said)
            if content not in read:
                read[content] = of(reader.document(said))
            else:
                for lost in reader.omissions.sentences:
                    omissions.note(0, f"{node}: {lost}")
        except WiringError as error:
            omissions.note(0, f"{node}: {error.rule}")
            continue
        if its:
            rates[node] = its
        # Where rates alone are told, nobody looked inside.
        if read[content] or not its:
            by_host[node] = read[content]
    if nodes and not by_host and not rates:
        raise WiringError(SOURCE, 1, next(iter(omissions.sentences), "no node is in it"))
    return Looks(SOURCE, by_host, rates, omissions.sentences)


def of(document: Document) -> tuple[Look, ...]:
    """The looks of a document, and one more with what was refused, if anything was."""
    if not document.refused:
        return document.looks
    return (*document.looks, Look("agent", Basis.TOLD, remarks=document.refused))


def _written_look(look: Look) -> dict[str, object]:
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


def _known(value: Part | Link | Rates) -> dict[str, object]:
    """Its fields as far as they are known."""
    said = ((each, getattr(value, each.name)) for each in fields(value))
    return {each.name: its for each, its in said if each.name != "ends" and its != each.default}


class _Reader(strict_json.Values):
    """Reads one document; what is wrong is left out where the rest holds without it."""

    def document(self, said: object) -> Document:
        found = self.entries("the document", said)
        version = found.get("version")
        if not isinstance(version, int) or isinstance(version, bool) or version < VERSION:
            raise self.error("version", f"this is read, and later ones: {VERSION}")
        looks: dict[str, Look] = {}
        for look in self.some("looks", found.get("looks", []), LOOKS_MAX, self._look):
            if looks.setdefault(look.source, look) is not look:
                self.omissions.add(self.error("looks", "each source is there once"))
        refused = self.some("refused", found.get("refused", []), REMARKS_MAX, self.text)
        busy = self.some("busy", found.get("busy", []), PARTS_MAX, self._device)
        rates = self.rates(found)
        lost = (*refused, *self.omissions.sentences)
        return Document(tuple(looks.values()), lost, rates, tuple(busy))

    def rates(self, said: object) -> tuple[Rates, ...]:
        """Those that stand in a document."""
        found = self.entries("the document", said)
        rates: dict[str, Rates] = {}
        for its in self.some("rates", found.get("rates", []), PARTS_MAX, self._rates):
            if rates.setdefault(its.device, its) is not its:
                self.omissions.add(self.error("rates", "each device is there once"))
        return tuple(rates.values())

    def _rates(self, path: str, said: object) -> Rates:
        found = self.entries(path, said)
        return Rates(
            self._device(f"{path}.device", found.get("device")),
            self.text(f"{path}.model", found.get("model")),
            self.text(f"{path}.by", found.get("by")),
            self._rate(f"{path}.flop_per_s", found.get("flop_per_s", 0)),
            self._rate(f"{path}.memory_bytes_per_s", found.get("memory_bytes_per_s", 0)),
        )

    def _device(self, path: str, said: object) -> str:
        name = self.text(path, said)
        if name != CPU and pci.address(name) != name and not _NUMBERED.fullmatch(name):
            rule = f"{name[:80]!r} is no PCI address, and neither {CPU} nor such as xpu:0"
            raise self.error(path, rule)
        return name

    def _look(self, path: str, said: object) -> Look:
        found = self.entries(path, said)
        listed = self.each(f"{path}.parts", found.get("parts", []), PARTS_MAX, lambda _, its: its)
        # One that breaks a rule keeps its place: links and rows name parts by their places.
        ids, known = [""] * len(listed), dict[str, Part]()
        for at, its in enumerate(listed):
            with self.omissions.part():
                part = self._part(f"{path}.parts[{at}]", its)
                ids[at] = part.id
                known.setdefault(part.id, part)
        links, near = list[Link](), dict[Pair, Distance]()
        with self.omissions.part():
            self._check_places(path, ids, found.get("near", []))
            read = functools.partial(self._links, ids)
            grouped = self.some(f"{path}.links", found.get("links", []), LINKS_MAX, read)
            links = [link for its in grouped for link in its]
            near = self._near(f"{path}.near", found.get("near", []), ids)
        if len(links) > LINKS_MAX:
            raise self.error(f"{path}.links", f"{len(links)} links, at most {LINKS_MAX}")
        technology = self.one_of(Technology, Technology.OTHER)
        tells = self.some(f"{path}.tells", found.get("tells", []), 8, technology)
        remarks = self.some(f"{path}.remarks", found.get("remarks", []), REMARKS_MAX, self.text)
        return Look(
            self.text(f"{path}.source", found.get("source")),
            self.one_of(Basis)(f"{path}.basis", found.get("basis")),
            tuple(known.values()),
            tuple(links),
            near,
            frozenset(tells) if links or not found.get("links") else frozenset(),
            self.truth(f"{path}.virtual", found.get("virtual")),
            self.truth(f"{path}.hides_tree", found.get("hides_tree")),
            tuple(remarks),
        )

    def _check_places(self, path: str, ids: Sequence[str], near: object) -> None:
        """Raise where the places of parts have shifted."""
        named = [id_ for id_ in ids if id_]
        if len({*named}) < len(named):
            rule = "each part has an id of its own: links and distances are left out"
            raise self.error(f"{path}.parts", rule)
        if isinstance(near, list) and len(near) not in (0, len(ids)):
            rule = f"{len(near)} rows for {len(ids)} parts: links and distances are left out"
            raise self.error(f"{path}.near", rule)

    def _part(self, path: str, said: object) -> Part:
        found = self.entries(path, said)
        address = self.text(f"{path}.pci", found.get("pci", ""), empty=True)
        if pci.address(address) != address:
            raise self.error(f"{path}.pci", f"{address[:80]!r} is no PCI address")
        names = self.each(f"{path}.names", found.get("names", []), NAMES_MAX, self.text)
        return Part(
            self.text(f"{path}.id", found.get("id")),
            self.one_of(Kind)(f"{path}.kind", found.get("kind")),
            address,
            self.maybe(self.whole, f"{path}.number", found.get("number")),
            tuple(names),
            self.text(f"{path}.model", found.get("model", ""), empty=True),
            self.maybe(self.whole, f"{path}.numa", found.get("numa")),
            self.whole(f"{path}.pcie_bytes_per_s", found.get("pcie_bytes_per_s", 0)),
            self.whole(f"{path}.bytes_per_s", found.get("bytes_per_s", 0)),
            self.maybe(self.one_of(Layer, Layer.OTHER), f"{path}.layer", found.get("layer")),
            self.truth(f"{path}.up", found.get("up")),
            self.maybe(self.whole, f"{path}.rail", found.get("rail")),
            self.maybe(self.one_of(Role, Role.UNDECIDED), f"{path}.role", found.get("role")),
        )

    def _links(self, ids: Sequence[str], path: str, said: object) -> list[Link]:
        """Those between several pairs, and all alike."""
        found = self.entries(path, said)
        alike = Link(
            _NOWHERE,
            self.one_of(Technology, Technology.OTHER)(
                f"{path}.technology", found.get("technology")
            ),
            self.whole(f"{path}.count", found.get("count", 0)),
            self.whole(f"{path}.bytes_per_s", found.get("bytes_per_s", 0)),
            self.truth(f"{path}.switched", found.get("switched")),
        )
        between = self.each(f"{path}.between", found.get("between"), LINKS_MAX, self._two)
        for one, other in between:
            if not one < other < len(ids):
                rule = f"{one}, {other}: two of {len(ids)} parts stand here, in their order"
                raise self.error(f"{path}.between", rule)
        return [
            replace(alike, ends=pair(ids[one], ids[other]))
            for one, other in between
            if ids[one] and ids[other]
        ]

    def _two(self, path: str, said: object) -> tuple[int, int]:
        found = self.each(path, said, 2, self.whole)
        if len(found) != 2:
            raise self.error(path, "two parts stand here")
        return found[0], found[1]

    def _near(self, path: str, said: object, ids: Sequence[str]) -> dict[Pair, Distance]:
        rows = self.each(path, said, PARTS_MAX, functools.partial(self.text, empty=True))
        found: dict[Pair, Distance] = {}
        for at, row in enumerate(rows):
            if len(row) != at or not {*row} <= {*"012345"}:
                rule = f"{at} digits from 0 to 5 stand here"
                self.omissions.add(self.error(f"{path}[{at}]", rule))
                continue
            for other, digit in enumerate(row):
                if digit != "0" and ids[at] and ids[other]:
                    found[pair(ids[at], ids[other])] = Distance(int(digit))
        return found

    def _rate(self, path: str, said: object) -> int:
        return self.whole(path, said, RATE_MAX)
