"""The hardware of one node as one source reports it: accelerators, network adapters, links.

None, 0 and empty text mean unknown. An ``id`` is a part's name within one report: its PCI address
if known, which is unique and the same in all sources.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from railwright_topology.source_reports import Provenance

PARTS_MAX = 256
"""Accelerators and adapters of one node; the largest there are have some 50."""
NAMES_MAX = 16
"""Of one adapter; its RDMA device and an interface or two are the rule."""
LINKS_MAX = 4096
"""Pairs of one node's accelerators that are linked; all pairs of 64 are half of it."""

CPU = "cpu"
"""The device that stands for all processors of a node."""


class Kind(enum.StrEnum):
    """What a part is for."""

    ACCELERATOR = "accelerator"
    ADAPTER = "adapter"


class Layer(enum.StrEnum):
    """Link layer of an adapter."""

    INFINIBAND = "InfiniBand"
    ETHERNET = "Ethernet"
    OTHER = "other"
    """Neither, such as the fabrics that clouds make themselves."""


class Technology(enum.StrEnum):
    """How two accelerators are linked beside PCIe."""

    NVLINK = "NVLink"
    XGMI = "XGMI"
    HCCS = "HCCS"
    OTHER = "other"


class Distance(enum.IntEnum):
    """What lies between two parts of a node on PCIe, the nearest first."""

    SWITCH = 1
    """One PCIe switch at most."""
    SWITCHES = 2
    """Several PCIe switches, and not the processor."""
    BRIDGE = 3
    """One host bridge of the processor."""
    NUMA = 4
    """Several host bridges of one NUMA node."""
    SYSTEM = 5
    """What lies between NUMA nodes."""


class AdapterRole(enum.StrEnum):
    """Purpose of an adapter."""

    RAIL = "rail"
    """The accelerators' own traffic."""
    FRONT_END = "front-end"
    """Storage, and traffic of processors."""
    UNDECIDED = "undecided"


Pair = tuple[str, str]
"""Two parts by their ids, the smaller first."""


def pair(one: str, other: str) -> Pair:
    """The two in their order."""
    return (one, other) if one < other else (other, one)


@dataclass(frozen=True, slots=True)
class Part:
    """``number`` is an accelerator's place among those of the node, as its maker's tools count.
    ``names`` are an adapter's, that of its RDMA device before those of its interfaces. ``model`` is
    the PCI vendor and device (``10de:2330``), ``pcie_bytes_per_s`` what its slot carries one way.

    Of adapters: ``bytes_per_s`` on the cable, one way, as the adapter names its speed, and ``up``,
    whether the cable works. ``rail`` and ``role`` are set if the source declares them; otherwise
    ``rails`` derives them.
    """

    id: str
    kind: Kind
    pci: str = ""
    number: int | None = None
    names: tuple[str, ...] = ()
    model: str = ""
    numa: int | None = None
    pcie_bytes_per_s: int = 0
    bytes_per_s: int = 0
    layer: Layer | None = None
    up: bool | None = None
    rail: int | None = None
    role: AdapterRole | None = None

    @property
    def name(self) -> str:
        """The first of its names, or its id."""
        return self.names[0] if self.names else self.id


@dataclass(frozen=True, slots=True)
class Link:
    """The links of two accelerators: ``count`` links with ``bytes_per_s`` in sum, one way.
    ``switched``: they go through a switch, which all of its accelerators share."""

    ends: Pair
    technology: Technology
    count: int = 0
    bytes_per_s: int = 0
    switched: bool | None = None


@dataclass(frozen=True, slots=True)
class HardwareReport:
    """The report of one source on one node. ``distances`` are those of accelerators to each other
    and to adapters. ``complete`` are the technologies of which the report has every link between
    its accelerators, so that a link that it lacks does not exist.

    ``virtual``: the node is a virtual machine. ``hides_tree``: its parts are directly at the root
    of PCI, so that their distances are unknown. ``remarks`` are sentences on what cannot be used.
    """

    source: str
    provenance: Provenance
    parts: tuple[Part, ...] = ()
    links: tuple[Link, ...] = ()
    distances: Mapping[Pair, Distance] = field(default_factory=dict)
    complete: frozenset[Technology] = frozenset()
    virtual: bool | None = None
    hides_tree: bool | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceBenchmark:
    """The measured speed of one device; 0 is unknown.

    ``device`` is its PCI address, CPU, or the tool's name for it if that gives no address
    (``xpu:0``), and ``by`` the tool that measured it: results of different tools are not
    comparable. ``flop_per_s`` are those of products of matrices, in bf16 on accelerators and in f32
    on processors, and ``memory_bytes_per_s`` those that a large copy reads and writes.
    """

    device: str
    model: str
    by: str
    flop_per_s: int = 0
    memory_bytes_per_s: int = 0


Benchmarks = tuple[DeviceBenchmark, ...]
"""The benchmarks of one node's devices."""


@dataclass(frozen=True, slots=True)
class HardwareReports:
    """The hardware reports and benchmarks of one source, by its host names. ``remarks`` are
    sentences on what was left out."""

    source: str
    by_host: Mapping[str, tuple[HardwareReport, ...]] = field(default_factory=dict)
    benchmarks: Mapping[str, Benchmarks] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def nodes(self) -> frozenset[str]:
        """All its hosts."""
        return frozenset(self.by_host) | frozenset(self.benchmarks)
