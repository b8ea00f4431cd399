"""What one source shows of the inside of one node: accelerators, network adapters, what links them.

None, 0 and empty text are what a source does not know. An ``id`` is a part's name inside one such
look: its PCI address where that is known, as no two parts share it and all sources agree on it.
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
"""The device that the processors of a node are together."""


class Kind(enum.StrEnum):
    """What a part is for."""

    ACCELERATOR = "accelerator"
    ADAPTER = "adapter"


class Layer(enum.StrEnum):
    """What an adapter speaks on its cable."""

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


class Role(enum.StrEnum):
    """What an adapter is there for."""

    RAIL = "rail"
    """The accelerators' own traffic."""
    FRONT_END = "front-end"
    """Storage, and what processors send."""
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
    whether the cable works. ``rail`` and ``role`` are there where somebody says so; what follows
    from the rest is found out in ``rails``.
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
    role: Role | None = None

    @property
    def name(self) -> str:
        """The first of its names, or its id."""
        return self.names[0] if self.names else self.id


@dataclass(frozen=True, slots=True)
class Link:
    """What links two accelerators: ``count`` links that carry ``bytes_per_s`` in sum, one way.
    ``switched`` says that they go by way of a switch, so that all who are on it share it."""

    ends: Pair
    technology: Technology
    count: int = 0
    bytes_per_s: int = 0
    switched: bool | None = None


@dataclass(frozen=True, slots=True)
class HardwareReport:
    """One source of one node. ``distances`` are those of accelerators to each other and to
    adapters; two adapters of one card are near in a way of their own. ``complete`` are the
    technologies of which it shows every link between the accelerators that it knows, so that no
    link is a statement too.

    ``virtual`` says that the node is a virtual machine, and ``hides_tree`` that its parts stand
    directly at the root of PCI, where nothing can be plugged in: who is near whom is kept from it.
    ``remarks`` are what it shows and nobody can use, each told as a sentence.
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
    """How fast one device was measured to be; 0 is not known.

    ``device`` is its PCI address, CPU, or what its tool calls it where that says no address
    (``xpu:0``), and ``by`` the tool that measured it: what two tools reach on one device can not be
    compared. ``flop_per_s`` are those of products of matrices, in bf16 on accelerators and in f32
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
    """What one file shows of the insides of nodes, and what was measured there, by the names that
    it has for them. ``remarks`` are what was left out of it, each as a sentence."""

    source: str
    by_host: Mapping[str, tuple[HardwareReport, ...]] = field(default_factory=dict)
    benchmarks: Mapping[str, Benchmarks] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    @property
    def nodes(self) -> frozenset[str]:
        """All nodes that it knows of."""
        return frozenset(self.by_host) | frozenset(self.benchmarks)
