"""What a site's files hold: each is known by its name.

A file may be compressed (``ibnetdiscover.txt.gz``): that of a large network is larger than what
Kubernetes keeps in one object.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from railwright_topology import networks
from railwright_topology.fabric import Told
from railwright_topology.networks import Network
from railwright_topology.parts import Look, Looks
from railwright_topology.sources import (
    described,
    hccl,
    ibnetdiscover,
    insides,
    lldp,
    plan,
    probes,
    slurm,
    topograph,
)
from railwright_topology.wiring import WiringError

BYTES_MAX = 32 * 1024 * 1024
"""Of one file, unpacked; that of 2,000 hosts with eight adapters each has a quarter of it."""

READERS: Mapping[str, Callable[[str], tuple[Told, ...]]] = MappingProxyType(
    {
        "hccl.json": hccl.parse,
        "ibnetdiscover.txt": lambda text: (networks.of(ibnetdiscover.parse(text)),),
        "inside.json": lambda text: (insides.parse_all(text),),
        "inside.yaml": lambda text: (described.parse(text),),
        "lldp.json": lambda text: (networks.of(lldp.parse(text)),),
        "plan.yaml": lambda text: (plan.parse(text),),
        "probes.json": lambda text: (probes.parse(text),),
        "rates.json": lambda text: (insides.parse_all(text),),
        "topograph.json": lambda text: (topograph.parse_graph(text),),
        "topograph.yaml": lambda text: (topograph.parse_model(text),),
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


def read(file: File) -> tuple[Told, ...]:
    """What a file says. Raises WiringError where it breaks a rule of its format, or no format goes
    by its name."""
    reader = READERS.get(file.name.removesuffix(_GZIP))
    if reader is None:
        known = ", ".join(sorted(READERS))
        raise WiringError(str(file), 1, f"files of this name are not read; these are: {known}")
    # A mark of the byte order is not what a file says.
    text = _text(file).removeprefix("\ufeff")
    try:
        told = reader(text)
    except WiringError as refused:
        raise WiringError(str(file), refused.line, refused.rule) from refused
    return tuple(_called(file.place, each) for each in told) if file.place else told


def _text(file: File) -> str:
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


def _called(place: str, told: Told) -> Told:
    """A source is called by its place too: both halves of a site have files of one name."""
    if isinstance(told, Network):
        return replace(
            told,
            wiring=replace(told.wiring, source=f"{place}/{told.wiring.source}"),
            account=replace(told.account, source=f"{place}/{told.account.source}"),
        )
    if isinstance(told, Looks):
        placed = dict(_placed(place, told))
        return replace(told, source=f"{place}/{told.source}", by_host=placed)
    return replace(told, source=f"{place}/{told.source}")


def _placed(place: str, told: Looks) -> Iterator[tuple[str, tuple[Look, ...]]]:
    """What is the same before is the same after."""
    placed: dict[int, tuple[Look, ...]] = {}
    for host, looks in told.by_host.items():
        if id(looks) not in placed:
            placed[id(looks)] = tuple(
                replace(look, source=f"{place}/{look.source}") for look in looks
            )
        yield host, placed[id(looks)]
