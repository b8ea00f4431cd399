"""What ``nvidia-smi topo -m`` prints, and which PCI address each of its GPUs has.

            GPU0    GPU1    NIC0    NIC1    CPU Affinity    NUMA Affinity   GPU NUMA ID
    GPU0     X      NV18    PIX     SYS     0-55,112-167    0               N/A
    GPU1    NV18     X      SYS     PIX     56-111,168-223  1               N/A
    NIC0    PIX     SYS      X      SYS
    NIC1    SYS     PIX     SYS      X

    NIC Legend:

      NIC0: mlx5_0
      NIC1: mlx5_1

Each two are named twice, and have to agree. Where two GPUs have NVLinks, how near they are on PCIe
is not shown. The driver counts its GPUs as it likes: addresses come from
``nvidia-smi --query-gpu=index,pci.bus_id --format=csv,noheader``, if that is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from railwright_topology.accounts import Basis
from railwright_topology.parts import PARTS_MAX, Distance, Kind, Link, Look, Part, Technology, pair
from railwright_topology.sources import links, pci
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
_CALLED = re.compile(r"(GPU|NIC)([0-9]{1,3})|mlx[0-9]+_[0-9]+")
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
    """Read a whole matrix. Raises WiringError where it is none, or contradicts itself."""
    if len(text) > LENGTH_MAX or len(inventory) > LENGTH_MAX:
        raise WiringError(SOURCE, 1, f"has more than {LENGTH_MAX} characters")
    lines = [_STEERING.sub("", line).rstrip() for line in text.splitlines()]
    head = next((at for at, line in enumerate(lines) if line.strip()), None)
    columns = _columns(lines[head]) if head is not None else []
    if head is None or not columns:
        raise WiringError(SOURCE, 1, "the matrix starts with its columns, GPU0 and so on")
    if len(columns) > PARTS_MAX or len({*columns}) < len(columns):
        rule = f"each of at most {PARTS_MAX} GPUs and adapters has one column"
        raise WiringError(SOURCE, head + 1, rule)
    rows = _rows(lines, head, columns)
    legend = dict(_legend(lines[head + len(rows) :]))
    addresses = _addresses(inventory)
    distances, found = _pairs(rows, columns)
    parts = tuple(_part(row, legend, addresses) for row in rows)
    ids = {row.name: part.id for row, part in zip(rows, parts, strict=True)}
    if len({*ids.values()}) < len(ids):
        raise WiringError(SOURCE, head + 1, "two adapters have one name, or two GPUs one address")
    return Look(
        SOURCE,
        Basis.SEEN,
        tuple(sorted(parts, key=lambda part: part.id)),
        tuple(
            sorted(
                (replace(link, ends=pair(ids[link.ends[0]], ids[link.ends[1]])) for link in found),
                key=lambda link: link.ends,
            )
        ),
        {pair(ids[one], ids[other]): near for (one, other), near in distances.items()},
        frozenset({Technology.NVLINK}),
    )


def _columns(line: str) -> list[str]:
    """What each column stands for; those of affinities follow."""
    names = line.split()
    for at, name in enumerate(names):
        if not _CALLED.fullmatch(name):
            return names[:at]
    return names


def _rows(lines: Sequence[str], head: int, columns: Sequence[str]) -> list[_Row]:
    found: list[_Row] = []
    for number, line in enumerate(lines[head + 1 :], head + 2):
        if not line.strip():
            break
        name, *cells = line.split()
        if len(found) == len(columns) or name != columns[len(found)]:
            expected = columns[len(found)] if len(found) < len(columns) else "the end"
            raise WiringError(SOURCE, number, f"{name[:80]!r} stands where {expected} is due")
        if len(cells) < len(columns):
            rule = f"{len(cells)} of {len(columns)} columns are there"
            raise WiringError(SOURCE, number, rule)
        found.append(_Row(number, name, cells[: len(columns)], _numa(cells[len(columns) :])))
    if len(found) < len(columns):
        raise WiringError(SOURCE, head + 1, f"{columns[len(found)]} has a column and no row")
    return found


def _numa(affinities: Sequence[str]) -> int | None:
    """The second of the affinities is that to NUMA nodes; a list is not one."""
    said = affinities[1] if len(affinities) > 1 else ""
    return int(said) if _AFFINITY.fullmatch(said) and said.isdigit() else None


def _legend(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if entry := _LEGEND.fullmatch(line):
            yield entry[1], entry[2]


def _addresses(inventory: str) -> dict[int, str]:
    """The PCI address of each GPU."""
    found: dict[int, str] = {}
    for number, line in enumerate(inventory.splitlines(), 1):
        if not line.strip():
            continue
        entry = _INVENTORY.fullmatch(line)
        address = pci.address(entry[2]) if entry else ""
        if entry is None or not address or int(entry[1]) in found:
            rule = f"{line[:80]!r}: each line has a GPU's number and its PCI address, once"
            raise WiringError(f"{SOURCE} --query-gpu", number, rule)
        found[int(entry[1])] = address
    return found


def _pairs(
    rows: Sequence[_Row], columns: Sequence[str]
) -> tuple[dict[tuple[str, str], Distance], list[Link]]:
    """How near each two are, and what links them."""
    distances: dict[tuple[str, str], Distance] = {}
    found: list[Link] = []
    for at, row in enumerate(rows):
        if row.cells[at] != "X":
            raise WiringError(SOURCE, row.line, f"{row.name} and itself are X")
        for other, cell in zip(columns[:at], row.cells[:at], strict=True):
            back = rows[columns.index(other)].cells[at]
            if back != cell:
                rule = f"{row.name} and {other} are {cell[:16]!r} here, and {back[:16]!r} there"
                raise WiringError(SOURCE, row.line, rule)
            ends = pair(row.name, other)
            if cell == _UNKNOWN or (cell in DISTANCES and row.name[:3] != "GPU" != other[:3]):
                continue
            if cell in DISTANCES:
                distances[ends] = DISTANCES[cell]
            elif nvlinks := _NVLINKS.fullmatch(cell):
                if int(nvlinks[1]) > links.COUNT_MAX or "NIC" in row.name + other:
                    raise WiringError(SOURCE, row.line, f"{cell!r}: NVLinks are between GPUs")
                found.append(Link(ends, Technology.NVLINK, int(nvlinks[1])))
            else:
                known = ", ".join(DISTANCES)
                rule = f"{cell[:16]!r}: one of these stands here, or NV and a number: {known}"
                raise WiringError(SOURCE, row.line, rule)
    return distances, found


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
