"""Machines of random shapes, told in each format that tells of the inside of a node, and read back.

``correct`` is the share of facts that were planted and read, of all that were planted or read: what
is invented counts against a source as what is missed does. sysfs is written as files and read from
there by what an agent reads it with. Of rates, who is slow has to follow besides.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from fixtures import hardware_facts, machine_files, machines
from fixtures.machines import Machine
from fixtures.rank_tables import table
from railwright_agent import kernel
from railwright_topology import fabric, hardware_inventory
from railwright_topology.hardware_inventory import HardwareInventory
from railwright_topology.parts import DeviceBenchmark, HardwareReport, HardwareReports
from railwright_topology.sources import (
    described,
    formats,
    hardware_documents,
    hwloc,
    kfd,
    nccl_topology,
    nvidia_smi,
    sysfs,
)
from railwright_topology.sources.formats import File
from railwright_topology.sources.hardware_documents import Document


def score_sources(machines_count: int) -> Iterator[tuple[str, int, float]]:
    """Each source by its name, how many nodes it told of, and its worst node."""
    planted = [machines.planted(Random(number)) for number in range(machines_count)]
    for name, (source, read) in READERS.items():
        shares = [_share(source, machine, read(machine)) for machine in planted]
        yield name, len(shares), min(shares)
    yield "hccl.json", *_rank_tables(machines_count)
    yield "benchmarks.json", *_benchmarks(machines_count)


def falsified(count: int) -> tuple[int, int, int]:
    """Conflicts that were planted into descriptions of machines, found, and invented."""
    planted = found = invented = 0
    for number in range(count):
        rng = Random(number)
        machine = machines.planted(rng)
        description = machine_files.described(machine)
        expected = {*_falsehoods(machine, description, rng)}
        text = json.dumps({"version": 1, "kinds": [description]})
        reports = [*_everything(machine), described.parse_own(text)]
        conflicts = hardware_inventory.of(reports).conflicts
        seen = {(each.part, each.fact) for each in conflicts if each.source == described.SOURCE}
        planted += len(expected)
        found += len(seen & expected)
        invented += len(conflicts) - len(seen & expected)
    return planted, found, invented


def _falsehoods(
    machine: Machine, description: dict[str, Any], rng: Random
) -> Iterator[tuple[str, str]]:
    """Make a description false in a few facts, and name those."""
    for at in rng.sample(range(len(machine.gpus)), 2):
        description["accelerators"][at]["numa"] += 1
        yield machine.gpus[at].address, "numa"
    at = rng.randrange(len(machine.cards))
    description["adapters"][at]["speed"] = "100 Gb/s"
    yield machine.cards[at].address, "bytes_per_s"
    if machine.links:
        at = rng.randrange(len(machine.links))
        description["links"][at]["count"] += 1
        ends = sorted(machine.gpus[end].address for end in [*machine.links][at])
        yield " and ".join(ends), "NVLink"


def _share(source: str, machine: Machine, reports: list[HardwareReport]) -> float:
    expected = hardware_facts.expected(machine, source)
    read = hardware_facts.read(hardware_inventory.of(reports), source)
    return len(expected & read) / len(expected | read)


def _from_files(machine: Machine) -> list[HardwareReport]:
    with tempfile.TemporaryDirectory() as folder:
        machine_files.write_sysfs(Path(folder), machine_files.sysfs(machine))
        return [sysfs.parse(kernel.sections(Path(folder)))]


def _matrix(machine: Machine) -> HardwareReport:
    inventory = machine_files.nvidia_inventory(machine)
    return nvidia_smi.parse(machine_files.nvidia_smi(machine), inventory)


def _everything(machine: Machine) -> list[HardwareReport]:
    """All sources of one machine in its agent's document, as the operator reads it of many."""
    reports = [
        *_from_files(machine),
        _matrix(machine),
        hwloc.parse(machine_files.hwloc(machine)),
        nccl_topology.parse(machine_files.nccl_topology(machine)),
    ]
    text = json.dumps({"node": json.loads(hardware_documents.written(Document(tuple(reports))))})
    (read,) = formats.read(File("", "hardware.json", text))
    assert isinstance(read, HardwareReports)
    return [*read.by_host["node"]]


READERS: dict[str, tuple[str, Callable[[Machine], list[HardwareReport]]]] = {
    "NCCL topology": (
        "nccl",
        lambda machine: [nccl_topology.parse(machine_files.nccl_topology(machine))],
    ),
    "RCCL topology": (
        "rccl",
        lambda machine: [nccl_topology.parse(machine_files.rccl_topology(machine))],
    ),
    "nvidia-smi topo -m": ("nvidia-smi", lambda machine: [_matrix(machine)]),
    "hwloc XML": ("hwloc", lambda machine: [hwloc.parse(machine_files.hwloc(machine))]),
    "sysfs": ("sysfs", _from_files),
    "KFD": ("KFD", lambda machine: [kfd.parse(machine_files.kfd(machine))]),
    "description": (
        "description",
        lambda machine: [described.parse_own(machine_files.description(machine))],
    ),
    "hardware.json": ("all", _everything),
}


def _rank_tables(count: int) -> tuple[int, float]:
    """Servers of both versions; each accelerator has a port that is its rail."""
    shares: list[float] = []
    for number in range(count):
        devices = Random(number).choice([4, 8, 16])
        description = table(("1.0", "1.2")[number % 2], "server-0", "server-1", devices=devices)
        reports, hardware = formats.read(File("", "hccl.json", json.dumps(description)))
        assert isinstance(reports, HardwareReports)
        assert not isinstance(hardware, HardwareReports)
        expected = {(n, n, n) for n in range(devices)}
        for host in ("server-0", "server-1"):
            read = {*_ports(hardware_inventory.of(reports.by_host[host]))}
            shares.append(len(expected & read) / len(expected | read))
    return len(shares), min(shares)


def _benchmarks(count: int) -> tuple[int, float]:
    """Servers of eight devices that differ by 3 %, and one in each eighth server that is slow."""
    rng = Random(0)
    planted: dict[str, tuple[DeviceBenchmark, ...]] = {}
    slow: set[tuple[str, str, str]] = set()
    for number in range(count):
        node, devices = f"node-{number}", list(_devices(rng))
        if number % 8 == 0:
            at, share = rng.randrange(8), rng.uniform(0.3, 0.9)
            usual = devices[at]
            if number % 16:
                devices[at] = replace(usual, flop_per_s=int(share * usual.flop_per_s))
                slow.add((node, usual.device, "flop_per_s"))
            else:
                reached = int(share * usual.memory_bytes_per_s)
                devices[at] = replace(usual, memory_bytes_per_s=reached)
                slow.add((node, usual.device, "memory_bytes_per_s"))
        planted[node] = tuple(devices)
    documents = {
        node: json.loads(hardware_documents.written(Document(benchmarks=its)))
        for node, its in planted.items()
    }
    found = fabric.of([*planted], formats.read(File("", "benchmarks.json", json.dumps(documents))))
    seen = {(each.node, each.device, each.fact) for each in found.slow}
    shares: list[float] = []
    for node, its in planted.items():
        expected = {*its, *(each for each in slow if each[0] == node)}
        read = {*found.benchmarks[node], *(each for each in seen if each[0] == node)}
        shares.append(len(expected & read) / len(expected | read))
    return len(shares), min(shares)


def _devices(rng: Random) -> Iterator[DeviceBenchmark]:
    for bus in rng.sample(range(0x10, 0xF0), 8):
        benchmarks = (
            int(usual * rng.uniform(0.985, 1.015)) for usual in (660 * 10**12, 29 * 10**11)
        )
        yield DeviceBenchmark(f"0000:{bus:02x}:00.0", "H100", "torch", *benchmarks)


def _ports(found: HardwareInventory) -> Iterator[tuple[int | None, int | None, int]]:
    """Each adapter's accelerator, its rail, and the number in its name."""
    numbers = {part.id: part.number for part in found.accelerators}
    for part in found.adapters:
        placed = found.placed[part.id]
        name = part.names[0].removeprefix("npu").removesuffix(" port")
        yield numbers[placed.near[0]], placed.rail, int(name)
