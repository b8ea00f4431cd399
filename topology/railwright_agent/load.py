"""Find the busy devices of this machine, which are not benchmarked, as that would slow a training.

Drivers report their load. Querying a device itself would take some of its memory.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from railwright_agent import hardware, kernel
from railwright_topology.sources import pci

IDLE_SHARE = 0.05
"""Share of its time, or of its memory, that an idle device may have in use. A training takes memory
before it computes."""
IDLE_LOAD = 0.2
"""Processes that run or wait, for each processor, over a minute."""

_GPUS = "--query-gpu=pci.bus_id,utilization.gpu,memory.used,memory.total"
_PROCESSES = "--query-compute-apps=gpu_bus_id"


def accelerators(root: Path) -> dict[str, bool]:
    """Whether each accelerator is busy, by PCI address, without devices of unknown drivers. Raises
    SilentError if an installed tool fails."""
    found = dict(_amd(root))
    if shutil.which("nvidia-smi"):
        found |= _nvidia()
    return found


def processors() -> bool:
    """Whether the load average is above that of system services."""
    load, _, _ = os.getloadavg()
    return load > IDLE_LOAD * (os.cpu_count() or 1)


def _nvidia() -> dict[str, bool]:
    gpus = _query(_GPUS)
    found = {pci.address(address): _works(cells) for address, *cells in gpus}
    return found | {pci.address(address): True for address, *_ in _query(_PROCESSES)}


def _query(query: str) -> list[list[str]]:
    command = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    printed = hardware.output(command, hardware.TOOL_S)
    return [[cell.strip() for cell in line.split(",")] for line in printed.splitlines() if line]


def _works(cells: list[str]) -> bool:
    """Whether a device is busy; one without values, such as a GPU split by MIG, may be."""
    if len(cells) != 3 or not all(each.isascii() and each.isdigit() for each in cells):
        return True
    percent, used, total = map(int, cells)
    return percent > 100 * IDLE_SHARE or used > IDLE_SHARE * total


def _amd(root: Path) -> Iterator[tuple[str, bool]]:
    files = ("gpu_busy_percent", "mem_info_vram_used", "mem_info_vram_total")
    for address, content in kernel.devices(root, files):
        if "gpu_busy_percent" in content:
            yield address, _works([content.get(file, "") for file in files])
