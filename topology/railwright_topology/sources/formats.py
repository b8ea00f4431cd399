"""Read the files of a site; the reader follows from the file name.

A file may be compressed (``ibnetdiscover.txt.gz``): that of a large network is larger than what
Kubernetes keeps in one object.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from railwright_topology import networks
from railwright_topology.fabric import Facts
from railwright_topology.parts import HardwareReports
from railwright_topology.source_reports import SourceReport
from railwright_topology.sources import (
    described,
    hardware_documents,
    hccl,
    ibnetdiscover,
    lldp,
    plan,
    probes,
    slurm,
    topograph,
)
from railwright_topology.wiring import Wiring, WiringError

BYTES_MAX = 32 * 1024 * 1024
"""Of one file, unpacked; that of 2,000 hosts with eight adapters each has a quarter of it."""

_Read = SourceReport | HardwareReports | Wiring

READERS: Mapping[str, Callable[[str], _Read | tuple[_Read, ...]]] = MappingProxyType(
    {
        "hccl.json": hccl.parse,
        "ibnetdiscover.txt": ibnetdiscover.parse,
        "hardware.json": hardware_documents.parse_all,
        "hardware.yaml": described.parse,
        "lldp.json": lldp.parse,
        "plan.yaml": plan.parse,
        "probes.json": probes.parse,
        "benchmarks.json": hardware_documents.parse_all,
        "topograph.json": topograph.parse_graph,
        "topograph.yaml": topograph.parse_model,
        "topology.conf": slurm.parse_conf,
        "topology.yaml": slurm.parse_yaml,
    }
)

_GZIP = ".gz"


@dataclass(frozen=True, slots=True)
class File:
    """A file as it comes, from a ConfigMap or a folder (``place``). Bytes may be compressed."""

    place: str
    name: str
    content: str | bytes

    def __str__(self) -> str:
        return f"{self.place}/{self.name}" if self.place else self.name


def is_known(name: str) -> bool:
    """Whether files of this name are read."""
    return name.removesuffix(_GZIP) in READERS


def read(file: File) -> tuple[Facts, ...]:
    """Read a file. Raises WiringError if it breaks a rule of its format, or if no format has its
    name."""
    name = file.name.removesuffix(_GZIP)
    reader = READERS.get(name)
    if reader is None:
        formats = ", ".join(sorted(READERS))
        raise WiringError(str(file), 1, f"files of this name are not read; these are: {formats}")
    # A byte order mark is no content.
    content = text(file).removeprefix("\ufeff")
    try:
        found = reader(content)
        return tuple(
            _placed(file.place, each) for each in (found if isinstance(found, tuple) else (found,))
        )
    except WiringError as refused:
        raise WiringError(str(file), refused.line, refused.rule) from refused


def text(file: File) -> str:
    """The unpacked content. Raises WiringError if that is no text, or too long."""
    content = file.content
    if isinstance(content, str):
        return content
    try:
        if file.name.endswith(_GZIP):
            with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
                content = packed.read(BYTES_MAX + 1)
        if len(content) > BYTES_MAX:
            raise WiringError(str(file), 1, f"has more than {BYTES_MAX} bytes")
        return content.decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise WiringError(str(file), 1, f"is no text: {error}") from error


def _placed(place: str, found: _Read) -> Facts:
    """A source is called by its place too: both halves of a site have files of one name."""
    if place:
        found = replace(found, source=f"{place}/{found.source}")
    if place and isinstance(found, HardwareReports):
        # What is the same before is the same after.
        reports = {
            id(reports): tuple(replace(each, source=f"{place}/{each.source}") for each in reports)
            for reports in found.by_host.values()
        }
        by_host = {host: reports[id(its)] for host, its in found.by_host.items()}
        return replace(found, by_host=by_host)
    return networks.of(found) if isinstance(found, Wiring) else found
