"""Read the hardware of this machine: from its kernel, from installed tools, and from files.

What cannot be read is listed in the report, and keeps nothing else from being read. A tool that
does not answer in time is left behind: it may wait for a broken device's driver for ever, and not
even be killed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from railwright_agent import kernel
from railwright_topology.parts import HardwareReport
from railwright_topology.sources import hwloc, kfd, nccl_topology, nvidia_smi, sysfs
from railwright_topology.sources.hardware_documents import Document
from railwright_topology.wiring import WiringError

TOOL_S = 20.0
"""A healthy tool needs a second or three."""
KILLED_S = 1.0
BYTES_MAX = 8 * 1024 * 1024

_left: dict[str, subprocess.Popen[bytes]] = {}
"""Tools that did not answer, by their commands. While one cannot be killed, none is started beside
it: each would stay too."""

VIRTUAL_TOPOLOGY = "var/run/nvidia-topologyd/virtualTopology.xml"
"""NCCL's file of a PCI tree that a virtual machine hides."""


class SilentError(Exception):
    """A tool or a file that could not be read, as a sentence."""


@dataclass(frozen=True, slots=True)
class HardwareSources:
    """Files about this node that its site gives, if any, and where its file system starts."""

    root: Path
    description: Path | None = None
    nccl_topology: Path | None = None


def gather(sources: HardwareSources, *, deadline_s: float = TOOL_S) -> Document:
    """Gather all hardware reports that can be read now."""
    hardware_reports: list[HardwareReport] = []
    refused: list[str] = []
    for read in _readers(sources, deadline_s):
        try:
            report = read()
        except (WiringError, SilentError) as error:
            refused.append(str(error))
            continue
        # A tool of another maker's devices finds nothing.
        if report.parts or report.remarks:
            hardware_reports.append(report)
    return Document(tuple(hardware_reports), tuple(refused))


def _readers(sources: HardwareSources, deadline_s: float) -> Iterator[Callable[[], HardwareReport]]:
    yield lambda: sysfs.parse(kernel.sections(sources.root))
    if accelerators := kernel.accelerators(sources.root):
        yield lambda: kfd.parse(accelerators)
    if shutil.which("nvidia-smi"):
        yield lambda: _nvidia_smi(deadline_s)
    if shutil.which("lstopo-no-graphics"):
        tool = ["lstopo-no-graphics", "--of", "xml"]
        yield lambda: hwloc.parse(output(tool, deadline_s))
    topology = sources.nccl_topology or sources.root / VIRTUAL_TOPOLOGY
    if sources.nccl_topology or topology.exists():
        yield lambda: nccl_topology.parse(_file(topology))
    if (declared := sources.description) is not None:
        yield lambda: _described(declared)


def _described(path: Path) -> HardwareReport:
    # Only descriptions need YAML, which is not loaded on every node.
    from railwright_topology.sources import described

    return described.parse_own(_file(path))


def _nvidia_smi(deadline_s: float) -> HardwareReport:
    inventory = ["nvidia-smi", "--query-gpu=index,pci.bus_id", "--format=csv,noheader"]
    addresses = output(inventory, deadline_s)
    return nvidia_smi.parse(output(["nvidia-smi", "topo", "-m"], deadline_s), addresses)


def output(command: Sequence[str], deadline_s: float) -> str:
    """What a tool prints. Raises SilentError where it fails, or not in time."""
    called = " ".join(command)
    if (left := _left.get(called)) is not None and left.poll() is None:
        raise SilentError(f"{called}: an earlier one was killed and has not ended")
    # In memory, as the disk of a node may be full.
    with os.fdopen(os.memfd_create("output"), "w+b") as out:
        try:
            tool = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            raise SilentError(f"{called}: {error}") from error
        try:
            status = tool.wait(deadline_s)
        except subprocess.TimeoutExpired as error:
            tool.kill()
            _left[called] = tool
            with contextlib.suppress(subprocess.TimeoutExpired):
                tool.wait(KILLED_S)
            raise SilentError(f"{called}: no answer in {deadline_s:g} s") from error
        if status:
            raise SilentError(f"{called}: ended with {status}")
        out.seek(0)
        return _decoded(called, out.read(BYTES_MAX + 1))


def _file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return _decoded(str(path), file.read(BYTES_MAX + 1))
    except OSError as error:
        raise SilentError(f"{path}: {error.strerror}") from error


def _decoded(called: str, content: bytes) -> str:
    if len(content) > BYTES_MAX:
        raise SilentError(f"{called}: more than {BYTES_MAX} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise SilentError(f"{called}: is no text: {error.reason}") from error
