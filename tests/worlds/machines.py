"""Machines that are planted, and what is true of their insides; told in each format elsewhere.

A machine's slots say where a part is: under which NUMA node, host bridge and switches. All that is
asked of a source follows from that here by rules of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

GPU_MODEL, RAIL_MODEL, STORAGE_MODEL, CONSOLE_MODEL = (
    "10de:2330",
    "15b3:1021",
    "15b3:101d",
    "1a03:2000",
)
NVSWITCH_LINKS = 18
LINK_MB_S = 25_000


@dataclass(frozen=True, slots=True)
class Slot:
    """``switches`` are numbers of PCIe switches, the outermost first."""

    numa: int
    bridge: int
    switches: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Gpu:
    number: int
    address: str
    slot: Slot


@dataclass(frozen=True, slots=True)
class Card:
    """A network adapter; ``rail`` is None for those of the front-end network. Two of one PCI slot
    are the ports of one card."""

    name: str
    interface: str
    address: str
    slot: Slot
    gigabits: int
    layer: str
    model: str
    rail: int | None = None

    @property
    def function(self) -> int:
        """Which one of its card."""
        return int(self.address[-1])


@dataclass(frozen=True, slots=True)
class Machine:
    """``links`` are NVLinks (or XGMI) by two GPUs' numbers; ``switched`` as by NVSwitches."""

    gpus: tuple[Gpu, ...]
    cards: tuple[Card, ...]
    links: dict[tuple[int, int], int] = field(default_factory=dict)
    switched: bool = False

    @property
    def slots(self) -> dict[str, Slot]:
        return {gpu.address: gpu.slot for gpu in self.gpus} | {
            card.address: card.slot for card in self.cards
        }

    @property
    def distances(self) -> dict[tuple[str, str], str]:
        """How near accelerators are to each other and to adapters, by their addresses in order, as
        nvidia-smi calls it."""
        slots, gpus = self.slots, {gpu.address for gpu in self.gpus}
        return {
            (one, other): distance(slots[one], slots[other])
            for one, other in itertools.combinations(sorted(slots), 2)
            if gpus & {one, other}
        }


def distance(one: Slot, other: Slot) -> str:
    if one.switches and other.switches and one.switches[0] == other.switches[0]:
        return "PIX" if one.switches == other.switches else "PXB"
    if one.bridge == other.bridge:
        return "PHB"
    return "NODE" if one.numa == other.numa else "SYS"


def planted(random: Random) -> Machine:
    """Of any common shape: one to four host bridges a NUMA node, switches or none, rails for each
    or for two accelerators, links by switches, from each to the next, or none."""
    numas, bridges = random.choice([1, 2]), random.choice([1, 2, 4])
    gpus_each, cards_each = random.choice([(1, 1), (2, 2), (2, 1), (1, 2)])
    nested = random.random() < 0.25
    places: list[Slot] = []
    for at in range(numas * bridges):
        inner = (at, 16 + at) if nested else (at,)
        places.append(Slot(at // bridges, at, inner))
    slots = [place for place in places for _ in range(gpus_each)]
    if len(slots) < 2:
        slots *= 2
    addresses = _addresses(random)
    gpus = tuple(Gpu(n, next(addresses), slot) for n, slot in enumerate(slots))
    cards = _cards(places, cards_each, addresses, random)
    return Machine(gpus, cards, *_links(len(gpus), random))


def _addresses(random: Random) -> Iterator[str]:
    buses = random.sample(range(0x40, 0xF0), 64)
    return (f"0000:{bus:02x}:00.0" for bus in buses)


def _cards(
    places: list[Slot], each: int, addresses: Iterator[str], random: Random
) -> tuple[Card, ...]:
    """Rails, and fewer others: slower ones, of another layer, or the same farther away."""
    layer, speed = random.choice([("InfiniBand", 400), ("Ethernet", 200), ("InfiniBand", 200)])
    slots = [place for place in places for _ in range(each)]
    others = random.choice(["slower", "other", "farther"])
    away = [Slot(place.numa, 50 + place.numa) for place in (places[0], places[-1])]
    count = min(2, len(slots) - 1)
    order = random.sample(range(len(slots) + count), len(slots) + count)
    # Of some machines both are functions of one card.
    if dual := order[0] % 2 == 0:
        away = [away[0], away[0]]
        order[len(slots) :] = sorted(order[len(slots) :])
    bus = ""
    names = sorted(order[: len(slots)])
    cards = [
        Card(
            f"mlx5_{number}",
            f"ens{number}f0",
            next(addresses),
            slot,
            speed,
            layer,
            RAIL_MODEL,
            rail,
        )
        for rail, (number, slot) in enumerate(zip(names, slots, strict=True))
    ]
    for number, slot in zip(order[len(slots) :], away, strict=False):
        slow = others == "slower"
        bus = bus.replace(":00.0", ":00.1") if bus and dual else next(addresses)
        cards.append(
            Card(
                f"mlx5_{number}",
                f"ens{number}f0",
                bus,
                slot,
                25 if slow else speed,
                layer if slow or others == "farther" else "Ethernet",
                STORAGE_MODEL if slow else RAIL_MODEL,
            )
        )
    return tuple(cards)


def _links(count: int, random: Random) -> tuple[dict[tuple[int, int], int], bool]:
    shape = random.choice(["switches", "ring", "none"])
    if shape == "none" or count < 3:
        return {}, False
    if shape == "switches":
        return dict.fromkeys(itertools.combinations(range(count), 2), NVSWITCH_LINKS), True
    ring = ((at, (at + 1) % count) for at in range(count))
    return {(min(two), max(two)): random.choice([2, 4]) for two in ring}, False
