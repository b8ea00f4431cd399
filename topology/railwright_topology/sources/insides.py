"""What agents have seen inside their nodes, written down for whoever puts it together.

    {"version": 1, "looks": [
      {"source": "sysfs", "basis": "SEEN", "virtual": false, "hides_tree": false, "tells": [],
       "parts": [{"id": "0000:17:00.0", "kind": "accelerator", "pci": "0000:17:00.0", …}],
       "links": [{"technology": "NVLink", "count": 18, "between": [[0, 2], [0, 4], [2, 4]]}],
       "near": ["", "1", "55", "551"], "remarks": []}],
     "refused": ["NCCL topology, line 7: …"]}

One such document is of one node. A file of many holds them in an object, each under its node's
name. Parts are named by their places in the list of them; a row of ``near`` says of a part how near
each one before it is, 1 the nearest and 5 the farthest, 0 where it is not known. What is not known
is left out. ``refused`` are the sources that the agent could not read.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from railwright_topology.accounts import Basis
from railwright_topology.parts import (
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

T = TypeVar("T")

_NOWHERE = ("", "")
_LOOK_FIELDS = (
    *("source", "basis", "virtual", "hides_tree", "tells"),
    *("parts", "links", "near", "remarks"),
)
_LINK_FIELDS = ("technology", "count", "bytes_per_s", "switched", "between")


@dataclass(frozen=True, slots=True)
class Document:
    """What an agent has to say of its node."""

    looks: tuple[Look, ...]
    refused: tuple[str, ...] = ()


def written(document: Document) -> str:
    """As it is read again, and the same for equal documents."""
    looks = [_written_look(look) for look in document.looks]
    return json.dumps({"version": VERSION, "looks": looks, "refused": _few(document.refused)})


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
    read: dict[str, tuple[Look, ...]] = {}
    for node, said in nodes.items():
        if not 0 < len(node) <= 253 or not node.isprintable():
            raise WiringError(SOURCE, 1, f"{node[:80]!r} is no name of a node")
        # Nodes of one kind are mostly the same inside.
        content = json.dumps(said)
        if content not in read:
            read[content] = of(_Reader(f"{SOURCE} of {node}").document(said))
        by_host[node] = read[content]
    return Looks(SOURCE, by_host)


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


def _known(value: Part | Link) -> dict[str, object]:
    """Its fields as far as they are known."""
    said = ((each, getattr(value, each.name)) for each in fields(value))
    return {each.name: its for each, its in said if each.name != "ends" and its != each.default}


class _Reader:
    """Reads values of one document; what is wrong is told with its path."""

    def __init__(self, source: str) -> None:
        self._source = source

    def document(self, said: object) -> Document:
        found = self._object("the document", said, ("version", "looks", "refused"))
        if found.get("version") != VERSION or isinstance(found.get("version"), bool):
            raise self._error("version", f"this is read: {VERSION}")
        looks = self._each("looks", found.get("looks", []), LOOKS_MAX, self._look)
        sources = [look.source for look in looks]
        if len({*sources}) < len(sources):
            raise self._error("looks", "each source is there once")
        refused = self._each("refused", found.get("refused", []), REMARKS_MAX, self._text)
        return Document(tuple(looks), tuple(refused))

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

    def _whole(self, path: str, said: object) -> int:
        if not isinstance(said, int) or isinstance(said, bool) or not 0 <= said < INTEGER_MAX:
            raise self._error(path, f"a whole number below {INTEGER_MAX} stands here")
        return said

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
