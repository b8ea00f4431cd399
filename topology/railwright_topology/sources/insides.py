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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

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
from railwright_topology.wiring import WiringError

SOURCE = "agents"
VERSION = 1

LOOKS_MAX = 16
REMARKS_MAX = 64
TEXT_MAX = 1024
NODES_MAX = 1 << 14
INTEGER_MAX = 1 << 53
"""Beyond it JSON's readers disagree on what a number is."""
RATE_MAX = 10**18
"""Devices of 2026 come near to the other; nobody minds what a reader does to the last digits."""

T = TypeVar("T")

_NOWHERE = ("", "")
_LOOK_FIELDS = (
    *("source", "basis", "virtual", "hides_tree", "tells"),
    *("parts", "links", "near", "remarks"),
)
_LINK_FIELDS = ("technology", "count", "bytes_per_s", "switched", "between")
_DOCUMENT_FIELDS = ("version", "looks", "rates", "busy", "refused")
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
    """One node's. Raises WiringError where it breaks a rule of the format."""
    return _Reader(SOURCE).document(strict_json.read(SOURCE, text))


def parse_all(text: str) -> Looks:
    """Many nodes', by their names. What an agent could not read is a remark."""
    nodes = strict_json.read(SOURCE, text)
    if not isinstance(nodes, dict) or len(nodes) > NODES_MAX:
        rule = f"the documents of up to {NODES_MAX} nodes stand in an object, each under its name"
        raise WiringError(SOURCE, 1, rule)
    by_host: dict[str, tuple[Look, ...]] = {}
    rates: dict[str, tuple[Rates, ...]] = {}
    read: dict[str, tuple[Look, ...]] = {}
    for node, said in nodes.items():
        if not 0 < len(node) <= 253 or not node.isprintable():
            raise WiringError(SOURCE, 1, f"{node[:80]!r} is no name of a node")
        reader = _Reader(f"{SOURCE} of {node}")
        if its := reader.rates(said):
            rates[node] = its
        # Nodes of one kind are mostly the same inside, and no two are equally fast.
        content = json.dumps({**said, "rates": []} if isinstance(said, dict) else said)
        if content not in read:
            read[content] = of(reader.document(said))
        # Where rates alone are told, nobody looked inside.
        if read[content] or not its:
            by_host[node] = read[content]
    return Looks(SOURCE, by_host, rates)


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
    return [its[:TEXT_MAX] for its in printable]


def _known(value: Part | Link | Rates) -> dict[str, object]:
    """Its fields as far as they are known."""
    said = ((each, getattr(value, each.name)) for each in fields(value))
    return {each.name: its for each, its in said if each.name != "ends" and its != each.default}


class _Reader:
    """Reads values of one document; what is wrong is told with its path."""

    def __init__(self, source: str) -> None:
        self._source = source

    def document(self, said: object) -> Document:
        found = self._object("the document", said, _DOCUMENT_FIELDS)
        if found.get("version") != VERSION or isinstance(found.get("version"), bool):
            raise self._error("version", f"this is read: {VERSION}")
        looks = self._each("looks", found.get("looks", []), LOOKS_MAX, self._look)
        sources = [look.source for look in looks]
        if len({*sources}) < len(sources):
            raise self._error("looks", "each source is there once")
        refused = self._each("refused", found.get("refused", []), REMARKS_MAX, self._text)
        busy = self._each("busy", found.get("busy", []), PARTS_MAX, self._device)
        return Document(tuple(looks), tuple(refused), self.rates(found), tuple(busy))

    def rates(self, said: object) -> tuple[Rates, ...]:
        """Those that stand in a document."""
        found = self._object("the document", said, _DOCUMENT_FIELDS)
        rates = self._each("rates", found.get("rates", []), PARTS_MAX, self._rates)
        if len({each.device for each in rates}) < len(rates):
            raise self._error("rates", "each device is there once")
        return tuple(rates)

    def _rates(self, path: str, said: object) -> Rates:
        found = self._object(path, said, tuple(each.name for each in fields(Rates)))
        return Rates(
            self._device(f"{path}.device", found.get("device")),
            self._text(f"{path}.model", found.get("model")),
            self._text(f"{path}.by", found.get("by")),
            self._rate(f"{path}.flop_per_s", found.get("flop_per_s", 0)),
            self._rate(f"{path}.memory_bytes_per_s", found.get("memory_bytes_per_s", 0)),
        )

    def _device(self, path: str, said: object) -> str:
        name = self._text(path, said)
        if name != CPU and pci.address(name) != name and not _NUMBERED.fullmatch(name):
            rule = f"{name[:80]!r} is no PCI address, and neither {CPU} nor such as xpu:0"
            raise self._error(path, rule)
        return name

    def _look(self, path: str, said: object) -> Look:
        found = self._object(path, said, _LOOK_FIELDS)
        parts = self._each(f"{path}.parts", found.get("parts", []), PARTS_MAX, self._part)
        if len({part.id for part in parts}) < len(parts):
            raise self._error(f"{path}.parts", "each part has an id of its own")
        ids = [part.id for part in parts]
        grouped = self._each(
            f"{path}.links", found.get("links", []), LINKS_MAX, functools.partial(self._links, ids)
        )
        links = [link for its in grouped for link in its]
        if len(links) > LINKS_MAX:
            raise self._error(f"{path}.links", f"{len(links)} links, at most {LINKS_MAX}")
        near = self._near(f"{path}.near", found.get("near", []), ids)
        tells = self._each(f"{path}.tells", found.get("tells", []), 8, self._one_of(Technology))
        remarks = self._each(f"{path}.remarks", found.get("remarks", []), REMARKS_MAX, self._text)
        return Look(
            self._text(f"{path}.source", found.get("source")),
            self._one_of(Basis)(f"{path}.basis", found.get("basis")),
            tuple(parts),
            tuple(links),
            near,
            frozenset(tells),
            self._truth(f"{path}.virtual", found.get("virtual")),
            self._truth(f"{path}.hides_tree", found.get("hides_tree")),
            tuple(remarks),
        )

    def _part(self, path: str, said: object) -> Part:
        found = self._object(path, said, tuple(each.name for each in fields(Part)))
        address = self._text(f"{path}.pci", found.get("pci", ""), empty=True)
        if pci.address(address) != address:
            raise self._error(f"{path}.pci", f"{address[:80]!r} is no PCI address")
        names = self._each(f"{path}.names", found.get("names", []), NAMES_MAX, self._text)
        return Part(
            self._text(f"{path}.id", found.get("id")),
            self._one_of(Kind)(f"{path}.kind", found.get("kind")),
            address,
            self._maybe(self._whole, f"{path}.number", found.get("number")),
            tuple(names),
            self._text(f"{path}.model", found.get("model", ""), empty=True),
            self._maybe(self._whole, f"{path}.numa", found.get("numa")),
            self._whole(f"{path}.pcie_bytes_per_s", found.get("pcie_bytes_per_s", 0)),
            self._whole(f"{path}.bytes_per_s", found.get("bytes_per_s", 0)),
            self._maybe(self._one_of(Layer), f"{path}.layer", found.get("layer")),
            self._truth(f"{path}.up", found.get("up")),
            self._maybe(self._whole, f"{path}.rail", found.get("rail")),
            self._maybe(self._one_of(Role), f"{path}.role", found.get("role")),
        )

    def _links(self, ids: Sequence[str], path: str, said: object) -> list[Link]:
        """Those between several pairs, and all alike."""
        found = self._object(path, said, _LINK_FIELDS)
        alike = Link(
            _NOWHERE,
            self._one_of(Technology)(f"{path}.technology", found.get("technology")),
            self._whole(f"{path}.count", found.get("count", 0)),
            self._whole(f"{path}.bytes_per_s", found.get("bytes_per_s", 0)),
            self._truth(f"{path}.switched", found.get("switched")),
        )
        between = self._each(f"{path}.between", found.get("between"), LINKS_MAX, self._two)
        for one, other in between:
            if not one < other < len(ids):
                rule = f"{one}, {other}: two of {len(ids)} parts stand here, in their order"
                raise self._error(f"{path}.between", rule)
        return [replace(alike, ends=pair(ids[one], ids[other])) for one, other in between]

    def _two(self, path: str, said: object) -> tuple[int, int]:
        found = self._each(path, said, 2, self._whole)
        if len(found) != 2:
            raise self._error(path, "two parts stand here")
        return found[0], found[1]

    def _near(self, path: str, said: object, ids: Sequence[str]) -> dict[Pair, Distance]:
        rows = self._each(path, said, len(ids), functools.partial(self._text, empty=True))
        found: dict[Pair, Distance] = {}
        for at, row in enumerate(rows):
            if len(row) != at or not {*row} <= {*"012345"}:
                raise self._error(f"{path}[{at}]", f"{at} digits from 0 to 5 stand here")
            for other, digit in enumerate(row):
                if digit != "0":
                    found[pair(ids[at], ids[other])] = Distance(int(digit))
        return found

    def _object(self, path: str, said: object, known: tuple[str, ...]) -> Mapping[str, object]:
        if not isinstance(said, dict):
            raise self._error(path, "an object stands here")
        for name in said:
            if name not in known:
                raise self._error(path, f"{name[:80]!r} is no field: {', '.join(known)}")
        return said

    def _each(
        self, path: str, said: object, most: int, read: Callable[[str, object], T]
    ) -> list[T]:
        if not isinstance(said, list) or len(said) > most:
            raise self._error(path, f"a list of up to {most} stands here")
        return [read(f"{path}[{at}]", each) for at, each in enumerate(said)]

    def _text(self, path: str, said: object, *, empty: bool = False) -> str:
        if not isinstance(said, str) or len(said) > TEXT_MAX or not said.isprintable():
            raise self._error(path, f"up to {TEXT_MAX} printable characters stand here")
        if not said and not empty:
            raise self._error(path, "a text stands here, and not an empty one")
        return said

    def _whole(self, path: str, said: object, most: int = INTEGER_MAX) -> int:
        if not isinstance(said, int) or isinstance(said, bool) or not 0 <= said < most:
            raise self._error(path, f"a whole number below {most} stands here")
        return said

    def _rate(self, path: str, said: object) -> int:
        return self._whole(path, said, RATE_MAX)

    def _truth(self, path: str, said: object) -> bool | None:
        if said is not None and not isinstance(said, bool):
            raise self._error(path, "true, false or null stands here")
        return said

    def _maybe(self, read: Callable[[str, object], T], path: str, said: object) -> T | None:
        return None if said is None else read(path, said)

    def _one_of(self, known: Iterable[T]) -> Callable[[str, object], T]:
        """Reads one of these: by its value where that is a word, else by its name."""
        words: dict[str, T] = {}
        for each in known:
            value: Any = each
            words[value if isinstance(value, str) else value.name] = each

        def read(path: str, said: object) -> T:
            if not isinstance(said, str) or said not in words:
                raise self._error(path, f"one of these stands here: {', '.join(words)}")
            return words[said]

        return read

    def _error(self, path: str, rule: str) -> WiringError:
        return WiringError(self._source, 1, f"{path}: {rule}")
