"""Read the hardware of this machine from sysfs, unparsed: by section, name and file.

Files that are not there, or that a driver refuses to read (the speed of an interface that is down),
are left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

BYTES_MAX = 4096
"""The kernel writes no more into one file of sysfs."""
NAMES_MAX = 4096
"""Entries of one folder that are read; hosts with all virtual functions have some 1,000."""

_PCI = ("class", "vendor", "device", "numa_node", "max_link_speed", "max_link_width")
_PORT = ("rate", "state", "link_layer")
_INTERFACE = ("speed", "type", "operstate", "dev_port", "phys_port_name")

Files = dict[str, str]


def sections(root: Path) -> dict[str, dict[str, Files]]:
    """What ``sources.sysfs`` reads, of the machine whose file system starts at ``root``."""
    sys = root / "sys"
    return {
        "pci": dict(_pci(sys)),
        "infiniband": dict(_rdma(sys)),
        "net": dict(_interfaces(sys)),
        "machine": {"cpu": _cpu(root)},
    }


def accelerators(root: Path) -> dict[str, Files]:
    """What ``sources.kfd`` reads; nothing where AMD's driver is not there."""
    nodes = root / "sys/class/kfd/kfd/topology/nodes"
    return {
        node.name: _read(
            node,
            ["gpu_id", "properties"]
            + [f"io_links/{link.name}/properties" for link in _entries(node / "io_links")],
        )
        for node in _entries(nodes)
        if node.name.isdigit()
    }


def devices(root: Path, names: Iterable[str]) -> Iterator[tuple[str, Files]]:
    """Each device on PCI by its address, with these of its files."""
    for device in _entries(root / "sys/bus/pci/devices"):
        yield device.name, _read(device, names)


def processor(root: Path) -> str:
    """Model name of the processor; empty if it has none, as on Arm."""
    for line in _text(root / "proc/cpuinfo", 1 << 16).splitlines():
        what, _, content = line.partition(":")
        if what.strip() == "model name":
            return content.strip()
    return ""


def _pci(sys: Path) -> Iterator[tuple[str, Files]]:
    for device in _entries(sys / "bus/pci/devices"):
        files = _read(device, _PCI)
        if (device / "physfn").exists():
            files["physfn"] = ""
        yield device.name, {"path": _way(sys, device), **files}


def _rdma(sys: Path) -> Iterator[tuple[str, Files]]:
    for device in _entries(sys / "class/infiniband"):
        ports = [port.name for port in _entries(device / "ports")]
        files = _read(device, [f"ports/{port}/{file}" for port in ports for file in _PORT])
        yield device.name, {"path": _way(sys, device / "device"), **files}


def _interfaces(sys: Path) -> Iterator[tuple[str, Files]]:
    """Those with a device below them; bridges and tunnels have none."""
    for interface in _entries(sys / "class/net"):
        if (interface / "device").exists():
            files = _read(interface, _INTERFACE)
            yield interface.name, {"path": _way(sys, interface / "device"), **files}


def _cpu(root: Path) -> Files:
    """Whether the processor is virtual, by its flags on x86."""
    flags = next(
        (line for line in _text(root / "proc/cpuinfo", 1 << 16).splitlines() if "flags" in line), ""
    )
    return {"hypervisor": "yes" if "hypervisor" in flags.split() else "no"} if flags else {}


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())[:NAMES_MAX]
    except OSError:
        return []


def _read(folder: Path, names: Iterable[str]) -> Files:
    return {name: content for name in names if (content := _text(folder / name, BYTES_MAX).strip())}


def _text(path: Path, most: int) -> str:
    try:
        with path.open("rb") as file:
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""


def _way(sys: Path, link: Path) -> str:
    """Where a link leads, seen from sysfs."""
    return os.path.relpath(os.path.realpath(link), os.path.realpath(sys))
