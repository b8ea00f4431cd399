"""What ``nvidia-smi topo -m`` prints, and which PCI address each of its GPUs has.

            GPU0    GPU1    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
    GPU0     X      NV18    PIX     SYS     0-55,112-167    0               N/A
    GPU1    NV18     X      SYS     PIX     56-111,168-223  1               N/A
    NIC0    PIX     SYS      X      SYS
    NIC1    SYS     PIX     SYS      X

    NIC Legend:

      NIC0: mlx5_0
      NIC1: mlx5_1

Older drivers call adapters by their names, and show no legend. Each two are named twice; where
the two differ, nothing is known. Cells that touch, as in what a terminal wrapped, are read one by
one. Where two GPUs have NVLinks, how near they are on PCIe is not shown. The driver counts its GPUs
as it likes: addresses come from
``nvidia-smi --query-gpu=index,pci.bus_id --format=csv,noheader``, if that is there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from railwright_topology.accounts import Basis
from railwright_topology.parts import PARTS_MAX, Distance, Kind, Link, Look, Part, Technology, pair
from railwright_topology.sources import devices, links, pci
from railwright_topology.sources.omissions import Omissions
from railwright_topology.wiring import WiringError

SOURCE = "nvidia-smi"

LENGTH_MAX = 1 << 20

DISTANCES: Mapping[str, Distance] = {
    "PIX": Distance.SWITCH,
    "PXB": Distance.SWITCHES,
    "PHB": Distance.BRIDGE,
    "NODE": Distance.NUMA,
    "SYS": Distance.SYSTEM,
    "SOC": Distance.SYSTEM,  # What older drivers call it.
}

_UNKNOWN = "N/A"
_STEERING = re.compile(r"\x1b\[[0-9;]*m")
_CALLED = re.compile(r"(GPU|NIC)([0-9]{1,3})|[a-z][\w-]{0,62}")
_CELL = r"NV[0-9]+|PIX|PXB|PHB|NODE|SYS|SOC|X|N/A"
_CELLS = re.compile(rf"(?:{_CELL})+")
_LEGEND = re.compile(r"\s+(NIC[0-9]{1,3}):\s+([\w.:-]{1,64})\s*")
_NVLINKS = re.compile(r"NV([1-9][0-9]{0,2})")
_AFFINITY = re.compile(r"[0-9]{1,4}([-,][0-9]{1,4})*")
_INVENTORY = re.compile(r"\s*([0-9]{1,3})\s*,\s*([0-9A-Fa-f:.]+)\s*")


@dataclass(frozen=True, slots=True)
class _Row:
    line: int
    name: str
    cells: Sequence[str]
    numa: int | None


def parse(text: str, inventory: str = "") -> Look:
    """Read a matrix. Raises WiringError where it is none."""
    if len(text) > LENGTH_MAX or len(inventory) > LENGTH_MAX:
        raise WiringError(SOURCE, 1, f"has more than {LENGTH_MAX} characters")
    omissions = Omissions(SOURCE)
    lines = [_STEERING.sub("", line).rstrip() for line in text.splitlines()]
    # What was pasted may start with the command.
    head = next((at for at, line in enumerate(lines) if _columns(line)), None)
    if head is None:
        raise WiringError(SOURCE, 1, "the matrix starts with its columns, GPU0 and so on")
    columns = _columns(lines[head])
    if len(columns) > PARTS_MAX or len({*columns}) < len(columns):
        rule = f"each of at most {PARTS_MAX} GPUs and adapters has one column"
        raise WiringError(SOURCE, head + 1, rule)
    rows = _rows(lines, head, columns, omissions)
    legend = dict(_legend(lines[head + 1 :]))
    for name, row in rows.items():
        if name.startswith("NIC") and name not in legend:
            omissions.note(row.line, f"{name} is not in the legend: its name is not known")
    addresses = _addresses(inventory, omissions)
    distances, found, sure = _pairs(rows, columns, omissions)
    parts: dict[str, Part] = {}
    taken: set[str] = set()
    for row in rows.values():
        part = _part(row, legend, addresses)
        if part.kind == Kind.ADAPTER and devices.is_by_software(part.id):
            omissions.note(row.line, f"{part.id} is made by software: it is no adapter")
        elif part.id in taken:
            omissions.note(row.line, f"{part.id!r} is described twice: it is left out")
        else:
            parts[row.name] = part
            taken.add(part.id)
    return Look(
        SOURCE,
        Basis.SEEN,
        tuple(sorted(parts.values(), key=lambda part: part.id)),
        tuple(
            sorted(
                (
                    replace(link, ends=pair(*(parts[end].id for end in link.ends)))
                    for link in found
                    if parts.keys() >= {*link.ends}
                ),
                key=lambda link: link.ends,
            )
        ),
        {
            pair(parts[one].id, parts[other].id): near
            for (one, other), near in distances.items()
            if parts.keys() >= {one, other}
        },
        frozenset({Technology.NVLINK} if sure else ()),
        remarks=omissions.sentences,
    )


def _columns(line: str) -> list[str]:
    """What each column stands for; those of affinities follow. A row has none."""
    names = line.split()
    if "X" in names or not any(name.startswith("GPU") for name in names[:1]):
        return []
    for at, name in enumerate(names):
        if not _CALLED.fullmatch(name):
            return names[:at]
    return names


def _rows(
    lines: Sequence[str], head: int, columns: Sequence[str], omissions: Omissions
) -> dict[str, _Row]:
    found: dict[str, _Row] = {}
    for number, line in enumerate(lines[head + 1 :], head + 2):
        if not line.strip():
            break
        name, *cells = _split(line)
        with omissions.part():
            if name not in columns or name in found:
                rule = f"{name[:80]!r} has no column of its own: the row is left out"
                raise WiringError(SOURCE, number, rule)
            if len(cells) < len(columns):
                rule = f"{len(cells)} of {len(columns)} columns are there: the row is left out"
                raise WiringError(SOURCE, number, rule)
            found[name] = _Row(number, name, cells[: len(columns)], _numa(cells[len(columns) :]))
    for name in columns:
        if name not in found:
            omissions.note(head + 1, f"{name} has a column and no row")
    return found


def _split(line: str) -> list[str]:
    """The words of a row, and each of those that touch."""
    words = line.split()
    return [
        cell
        for word in words
        for cell in (re.findall(_CELL, word) if _CELLS.fullmatch(word) else [word])
    ]


def _numa(affinities: Sequence[str]) -> int | None:
    """The second of the affinities is that to NUMA nodes; a list is not one."""
    said = affinities[1] if len(affinities) > 1 else ""
    return int(said) if _AFFINITY.fullmatch(said) and said.isdigit() else None


def _legend(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if entry := _LEGEND.fullmatch(line):
            yield entry[1], entry[2]


def _addresses(inventory: str, omissions: Omissions) -> dict[int, str]:
    """The PCI address of each GPU."""
    found: dict[int, str] = {}
    for number, line in enumerate(inventory.splitlines(), 1):
        if not line.strip():
            continue
        entry = _INVENTORY.fullmatch(line)
        address = pci.address(entry[2]) if entry else ""
        if entry is None or not address or int(entry[1]) in found:
            rule = f"{line[:80]!r}: each line has a GPU's number and its PCI address, once"
            omissions.note(number, f"--query-gpu: {rule}")
        else:
            found[int(entry[1])] = address
    return found


def _pairs(
    rows: Mapping[str, _Row], columns: Sequence[str], omissions: Omissions
) -> tuple[dict[tuple[str, str], Distance], list[Link], bool]:
    """How near each two are, what links them, and whether that is known of all GPUs."""
    distances: dict[tuple[str, str], Distance] = {}
    found: list[Link] = []
    sure = all(name in rows for name in columns if name.startswith("GPU"))
    place = {name: at for at, name in enumerate(columns)}
    for one, other in itertools.combinations([name for name in columns if name in rows], 2):
        row, cell = rows[other], rows[other].cells[place[one]]
        back = rows[one].cells[place[other]]
        ends = pair(one, other)
        try:
            if back != cell:
                rule = f"{other} and {one} are {cell[:16]!r} here, and {back[:16]!r} there"
                raise WiringError(SOURCE, row.line, f"{rule}: it is left out")
            if cell == _UNKNOWN or (cell in DISTANCES and one[:3] != "GPU" != other[:3]):
                continue
            if cell in DISTANCES:
                distances[ends] = DISTANCES[cell]
            elif nvlinks := _NVLINKS.fullmatch(cell):
                if int(nvlinks[1]) > links.COUNT_MAX or not one[:3] == other[:3] == "GPU":
                    raise WiringError(SOURCE, row.line, f"{cell!r}: NVLinks are between GPUs")
                found.append(Link(ends, Technology.NVLINK, int(nvlinks[1])))
            else:
                known = ", ".join(DISTANCES)
                rule = f"{cell[:16]!r}: one of these stands here, or NV and a number: {known}"
                raise WiringError(SOURCE, row.line, rule)
        except WiringError as error:
            omissions.add(error)
            sure = sure and not one[:3] == other[:3] == "GPU"
    for name, row in rows.items():
        if row.cells[place[name]] != "X":
            omissions.note(row.line, f"{name} and itself are X")
    return distances, found, sure


def _part(row: _Row, legend: Mapping[str, str], addresses: Mapping[int, str]) -> Part:
    called = _CALLED.fullmatch(row.name)
    assert called is not None
    if called[1] == "GPU":
        number = int(called[2])
        address = addresses.get(number, "")
        id_ = address or row.name
        return Part(id_, Kind.ACCELERATOR, address, number=number, numa=row.numa)
    name = legend.get(row.name, row.name)
    return Part(name, Kind.ADAPTER, names=(name,), numa=row.numa)
