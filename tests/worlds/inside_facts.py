"""What is true of a planted machine, and what was read of it, in the same words: for comparing.

A fact is a tuple: what it is about, its name, its value. What a format cannot tell is left out of
what is expected of it, by the facts' names; how near two are that have a link is shown by no matrix
of nvidia-smi.
"""

from __future__ import annotations

from collections.abc import Iterator

from railwright_topology.inside import Inside
from worlds.machine_files import model
from worlds.machines import LINK_MB_S, Card, Gpu, Machine

Fact = tuple[object, ...]

WORDS = {"SWITCH": "PIX", "SWITCHES": "PXB", "BRIDGE": "PHB", "NUMA": "NODE", "SYSTEM": "SYS"}

TELLS = {
    "nccl": {"number", "model", "numa", "gigabits", "links", "coarse", "role", "name"},
    "rccl": {"number", "numa", "gigabits", "links", "coarse", "role", "name"},
    "nvidia-smi": {"number", "numa_gpu", "links", "near", "role", "name"},
    "hwloc": {"number", "model", "numa", "link_bytes", "near", "role", "name"},
    "sysfs": {"model", "numa", "gigabits", "layer", "near", "role", "name"},
    "KFD": {"link_bytes"},
    "description": {"number", "model", "numa", "gigabits", "layer", "links", "role", "name"},
    "all": {"number", "model", "numa", "gigabits", "layer", "links", "near", "role", "name"},
}
"""The names of the facts that each source tells."""


def expected(machine: Machine, source: str) -> set[Fact]:
    """Every fact that is true of it and that this source tells."""
    tells = TELLS[source]
    return {fact for fact in _true(machine, source) if fact[1] in tells or fact[1] == "kind"}


def _true(machine: Machine, source: str) -> Iterator[Fact]:
    for gpu in machine.gpus:
        yield gpu.address, "kind", "accelerator"
        yield gpu.address, "number", gpu.number
        yield gpu.address, "numa_gpu", gpu.slot.numa
    called = {card.address: _called(card, source) for card in machine.cards}
    for card in machine.cards if source != "KFD" else ():
        at = called[card.address]
        yield at, "kind", "adapter"
        yield at, "name", card.name
        yield at, "gigabits", card.gigabits
        yield at, "layer", card.layer
        yield at, "role", ("front-end", None) if card.rail is None else ("rail", card.rail)
    parts: list[Gpu | Card] = [*machine.gpus, *machine.cards]
    for part in parts:
        at = called.get(part.address, part.address)
        yield at, "numa", part.slot.numa
        yield at, "model", model(part)
    by_number = {gpu.number: gpu.address for gpu in machine.gpus}
    linked = {frozenset(by_number[end] for end in ends): n for ends, n in machine.links.items()}
    for ends, count in linked.items():
        yield ends, "links", count
        yield ends, "link_bytes", count * LINK_MB_S * 1_000_000
    for both, word in machine.distances.items():
        if source != "nvidia-smi" or frozenset(both) not in linked:
            ends = frozenset(called.get(end, end) for end in both)
            yield ends, "near", word
            yield ends, "coarse", "NODE" if word == "PHB" else word


def _called(card: Card, source: str) -> str:
    """NCCL has no address for the further functions of a card, and nvidia-smi for no adapter."""
    named = source == "nvidia-smi" or (source in ("nccl", "rccl") and card.function)
    return card.name if named else card.address


def read(inside: Inside, source: str) -> set[Fact]:
    """Every fact that was read, of those that this source tells."""
    tells = TELLS[source]
    return {fact for fact in _read(inside) if fact[1] in tells or fact[1] == "kind"}


def _read(inside: Inside) -> Iterator[Fact]:
    for part in inside.parts:
        yield part.id, "kind", part.kind.value
        yield part.id, "numa", part.numa
        yield part.id, "model", part.model
    for part in inside.accelerators:
        yield part.id, "number", part.number
        yield part.id, "numa_gpu", part.numa
    for part in inside.adapters:
        placed = inside.placed[part.id]
        yield part.id, "name", part.names[0]
        yield part.id, "gigabits", part.bytes_per_s * 8 // 10**9
        yield part.id, "layer", part.layer.value if part.layer else None
        yield part.id, "role", (placed.role.value, placed.rail)
    for link in inside.links:
        yield frozenset(link.ends), "links", link.count
        yield frozenset(link.ends), "link_bytes", link.bytes_per_s
    for both, distance in inside.distances.items():
        yield frozenset(both), "near", WORDS[distance.name]
        yield frozenset(both), "coarse", WORDS[distance.name]
