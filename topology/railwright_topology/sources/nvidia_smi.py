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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from railwright_topology.parts import (
    PARTS_MAX,
    Distance,
    HardwareReport,
    Kind,
    Link,
    Pair,
    Part,
    Technology,
    pair,
)
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import devices, pci
from railwright_topology.sources.inventory import LINKS_OF_ONE_MAX, Inventory
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
_NUMA = re.compile(r"[0-9]{1,4}")
_INVENTORY = re.compile(r"\s*([0-9]{1,3})\s*,\s*([0-9A-Fa-f:.]+)\s*")


@dataclass(frozen=True, slots=True)
class _Row:
    """``cells`` are those of the parts, each by the name of its column."""

    line: int
    name: str
    cells: Mapping[str, str]
    numa: int | None

    @property
    def is_gpu(self) -> bool:
        return self.name.startswith("GPU")

    def error(self, rule: str) -> WiringError:
        return WiringError(SOURCE, self.line, rule)


def parse(text: str, inventory: str = "") -> HardwareReport:
    """Read a matrix. Raises WiringError where it is none."""
    if len(text) > LENGTH_MAX or len(inventory) > LENGTH_MAX:
        raise WiringError(SOURCE, 1, f"has more than {LENGTH_MAX} characters")
    omissions = Omissions(SOURCE)
    lines = [_STEERING.sub("", line).rstrip() for line in text.splitlines()]
    head, columns = _head(lines)
    rows = _rows(lines, head, columns, omissions)
    legend = {entry[1]: entry[2] for line in lines[head:] if (entry := _LEGEND.fullmatch(line))}
    addresses = _addresses(inventory, omissions)
    found = Inventory(omissions)
    ids: dict[str, str] = {}
    for row in rows:
        with omissions.part():
            part = _part(row, legend, addresses, omissions)
            found.add(part, row.error)
            ids[row.name] = part.id
    distances, links, unread = _pairs(rows, ids, omissions)
    # Of a GPU without a row no link is known.
    gpus = {name for name in columns if name.startswith("GPU")}
    complete = not unread and gpus <= {row.name for row in rows}
    return found.report(
        Provenance.SEEN, links, distances, complete=[Technology.NVLINK] if complete else ()
    )


def _pairs(
    rows: Sequence[_Row], ids: Mapping[str, str], omissions: Omissions
) -> tuple[dict[Pair, Distance], list[Link], bool]:
    """How near each two parts are, their links, and whether those of some GPUs are left out."""
    distances: dict[Pair, Distance] = {}
    links: list[Link] = []
    unread = False
    for one, other in itertools.combinations(rows, 2):
        try:
            near = _between(one, other)
        except WiringError as error:
            omissions.add(error)
            unread |= one.is_gpu and other.is_gpu
            continue
        if near is None or not ids.keys() >= {one.name, other.name}:
            continue
        ends = pair(ids[one.name], ids[other.name])
        if isinstance(near, Distance):
            distances[ends] = near
        else:
            links.append(Link(ends, Technology.NVLINK, near))
    return distances, sorted(links, key=lambda link: link.ends), unread


def _head(lines: Sequence[str]) -> tuple[int, list[str]]:
    """Where the matrix starts, and its columns."""
    # What was pasted may start with the command.
    head = next((at for at, line in enumerate(lines) if _columns(line)), None)
    if head is None:
        raise WiringError(SOURCE, 1, "the matrix starts with its columns, GPU0 and so on")
    columns = _columns(lines[head])
    if len(columns) > PARTS_MAX or len({*columns}) < len(columns):
        rule = f"each of at most {PARTS_MAX} GPUs and adapters has one column"
        raise WiringError(SOURCE, head + 1, rule)
    return head, columns


def _columns(line: str) -> list[str]:
    """What each column stands for; those of affinities follow. A row has none."""
    names = line.split()
    if "X" in names or not any(name.startswith("GPU") for name in names[:1]):
        return []
    return [*itertools.takewhile(_CALLED.fullmatch, names)]


def _rows(
    lines: Sequence[str], head: int, columns: Sequence[str], omissions: Omissions
) -> list[_Row]:
    """In the order of their columns."""
    found: dict[str, _Row] = {}
    matrix = itertools.takewhile(str.strip, lines[head + 1 :])
    for number, line in enumerate(matrix, head + 2):
        name, *cells = _split(line)
        if name not in columns or name in found:
            rule = f"{name[:80]!r} has no column of its own: the row is left out"
            omissions.note(number, rule)
        elif len(cells) < len(columns):
            rule = f"{len(cells)} of {len(columns)} columns are there: the row is left out"
            omissions.note(number, rule)
        else:
            # The second of the affinities is that to NUMA nodes; a list is not one.
            numa = [*map(int, filter(_NUMA.fullmatch, cells[len(columns) + 1 : len(columns) + 2]))]
            its = dict(zip(columns, cells, strict=False))
            found[name] = _Row(number, name, its, numa[0] if numa else None)
            if its[name] != "X":
                omissions.note(number, f"{name} and itself are X")
    for name in columns:
        if name not in found:
            omissions.note(head + 1, f"{name} has a column and no row")
    return [found[name] for name in columns if name in found]


def _split(line: str) -> list[str]:
    """The words of a row, and each of those that touch."""
    return [
        cell
        for word in line.split()
        for cell in (re.findall(_CELL, word) if _CELLS.fullmatch(word) else [word])
    ]


def _addresses(inventory: str, omissions: Omissions) -> dict[int, str]:
    """The PCI address of each GPU."""
    found: dict[int, str] = {}
    for number, line in enumerate(inventory.splitlines(), 1):
        entry = _INVENTORY.fullmatch(line)
        address = pci.address(entry[2]) if entry else ""
        if entry and address and int(entry[1]) not in found:
            found[int(entry[1])] = address
        elif line.strip():
            rule = f"{line[:80]!r}: each line has a GPU's number and its PCI address, once"
            omissions.note(number, f"--query-gpu: {rule}")
    return found


def _between(one: _Row, other: _Row) -> Distance | int | None:
    """How near two are, or how many NVLinks they have. Raises where that cannot be."""
    cell, back = other.cells[one.name], one.cells[other.name]
    if back != cell:
        rule = f"{other.name} and {one.name} are {cell[:16]!r} here, and {back[:16]!r} there"
        raise other.error(f"{rule}: it is left out")
    if cell in DISTANCES:
        return DISTANCES[cell] if one.is_gpu or other.is_gpu else None
    if nvlinks := _NVLINKS.fullmatch(cell):
        if int(nvlinks[1]) > LINKS_OF_ONE_MAX or not (one.is_gpu and other.is_gpu):
            raise other.error(f"{cell!r}: NVLinks are between GPUs")
        return int(nvlinks[1])
    if cell != _UNKNOWN:
        distances = ", ".join(DISTANCES)
        raise other.error(f"{cell[:16]!r}: expected one of {distances}, or NV and a number")
    return None


def _part(
    row: _Row, legend: Mapping[str, str], addresses: Mapping[int, str], omissions: Omissions
) -> Part:
    if row.is_gpu:
        number = int(row.name.removeprefix("GPU"))
        address = addresses.get(number, "")
        return Part(address or row.name, Kind.ACCELERATOR, address, number=number, numa=row.numa)
    if row.name.startswith("NIC") and row.name not in legend:
        omissions.note(row.line, f"{row.name} is not in the legend: its name is not known")
    name = legend.get(row.name, row.name)
    if devices.is_by_software(name):
        raise row.error(f"{name} is made by software: it is no adapter")
    return Part(name, Kind.ADAPTER, names=(name,), numa=row.numa)
