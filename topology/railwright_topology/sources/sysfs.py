"""What the Linux kernel shows of a node's PCI, RDMA devices and network interfaces.

What was read is given as it was read: by section, name and file, with ``path`` for where a link
leads (``devices/pci0000:15/0000:15:01.0/…``):

    {"pci": {"0000:17:00.0": {"path": …, "class": "0x030200", "vendor": …, "numa_node": "0", …}},
     "infiniband": {"mlx5_0": {"path": …, "ports/1/rate": "400 Gb/sec (4X NDR)", …}},
     "net": {"eth0": {"path": …, "speed": "25000", "type": "1", "operstate": "up"}},
     "machine": {"cpu": {"hypervisor": "no"}}}

Interfaces without a PCI network device below them (bridges, tunnels, USB) are no adapters, and the
virtual functions of an adapter are it once more; a virtual machine that is lent one sees no more of
it than that. Whose cable is down has no speed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from railwright_topology.accounts import Basis
from railwright_topology.parts import NAMES_MAX, PARTS_MAX, Kind, Layer, Look, Part
from railwright_topology.plugs import natural
from railwright_topology.sources import devices, pci
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.pci import Way
from railwright_topology.wiring import WiringError

SOURCE = "sysfs"

Files = Mapping[str, str]
Sections = Mapping[str, Mapping[str, Files]]

LAYERS: Mapping[str, Layer] = {"InfiniBand": Layer.INFINIBAND, "Ethernet": Layer.ETHERNET}
HARDWARE_TYPES: Mapping[str, Layer] = {"1": Layer.ETHERNET, "32": Layer.INFINIBAND}
"""ARPHRD_ETHER and ARPHRD_INFINIBAND of Linux's if_arp.h."""

_ACTIVE = "4: ACTIVE"
_RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9])?) Gb/sec")
_REPRESENTOR = re.compile(r"(c[0-9]+)?pf[0-9]+(vf|sf)[0-9]+")
"""The end of a virtual function that an adapter keeps on its host."""
_PORT_FILE = re.compile(r"ports/([0-9]{1,3})/")


@dataclass(frozen=True, slots=True)
class _Port:
    """A port of an RDMA device, or an interface where there is none."""

    layer: Layer | None
    up: bool | None
    bytes_per_s: int


def parse(sections: Sections) -> Look:
    """Read what was read. A file that holds what the kernel never writes is left out, and a device
    without a class too."""
    omissions = Omissions(SOURCE)
    shown = sections.get("pci", {})
    parts: dict[str, Part] = {}
    ways: dict[str, Way] = {}
    bridged = False
    for address, files in sorted(shown.items()):
        with omissions.part():
            part = _part(address, files, shown, omissions)
            if part is None:
                continue
            way, bridges = _way(address, files, omissions)
            bridged |= bool(bridges)
            its = [part] if part.kind == Kind.ACCELERATOR else [*_ports(part, sections, omissions)]
            parts |= {port.id: port for port in its}
            ways |= {port.id: way for port in its}
    if len(parts) > PARTS_MAX:
        raise WiringError(SOURCE, 1, f"has more than {PARTS_MAX} accelerators and adapters")
    hidden = bool(parts) and not bridged
    hypervisor = sections.get("machine", {}).get("cpu", {}).get("hypervisor")
    return Look(
        SOURCE,
        Basis.SEEN,
        tuple(parts[id_] for id_ in sorted(parts)),
        distances={} if hidden else pci.distances(parts.values(), ways),
        virtual=None if hypervisor is None else hypervisor == "yes",
        hides_tree=hidden if parts else None,
        remarks=omissions.sentences,
    )


def _part(
    address: str, files: Files, shown: Mapping[str, Files], omissions: Omissions
) -> Part | None:
    if pci.address(address) != address:
        raise WiringError(SOURCE, 0, f"bus/pci/devices/{address[:80]!r} is no PCI address")
    class_code, vendor, device = (
        _hexadecimal(address, files, name, omissions) for name in ("class", "vendor", "device")
    )
    kind = devices.kind(class_code, vendor, device)
    if kind is None or "physfn" in files:
        return None
    numa = _number(address, files, "numa_node", -1, omissions)
    return Part(
        address,
        kind,
        address,
        model=f"{vendor}:{device}" if vendor and device else "",
        numa=numa if numa >= 0 else None,
        pcie_bytes_per_s=_slot(address, files, shown, omissions),
    )


def _way(address: str, files: Files, omissions: Omissions) -> tuple[Way, tuple[str, ...]]:
    """And the bridges above it: what has an address before it does on its path."""
    steps = files.get("path", "").split("/")
    bridge = next((step for step in reversed(steps) if step.startswith("pci")), "")
    inner = steps[steps.index(bridge) + 1 :] if bridge else steps
    bridges = tuple(step for step in inner if pci.address(step) == step and step != address)
    numa = _number(address, files, "numa_node", -1, omissions)
    return Way(numa if numa >= 0 else None, bridge, bridges[:-1]), bridges


def _slot(address: str, files: Files, shown: Mapping[str, Files], omissions: Omissions) -> int:
    """The slower one of a part and the port above it."""
    _, bridges = _way(address, files, omissions)
    both = [files, *(shown.get(port, {}) for port in bridges[-1:])]
    speeds = [
        pci.bytes_per_s(
            each.get("max_link_speed", ""), _number(address, each, "max_link_width", 0, omissions)
        )
        for each in both
    ]
    return min(filter(None, speeds), default=0)


def _ports(part: Part, sections: Sections, omissions: Omissions) -> Iterator[Part]:
    """The adapter, once for each port of its RDMA device."""
    interfaces = dict(_of_function(part.pci, sections.get("net", {}), omissions))
    rdma = dict(_of_function(part.pci, sections.get("infiniband", {}), omissions))
    first = min(rdma, key=natural, default="")
    numbers = sorted({int(n[1]) for file in rdma.get(first, {}) if (n := _PORT_FILE.match(file))})
    if not numbers:
        yield _with(part, sorted(interfaces, key=natural), _of_interface(interfaces, omissions))
    for at, number in enumerate(numbers):
        called = first if not at else f"{first}/{number}"
        its = [
            name
            for name in sorted(interfaces, key=natural)
            if len(numbers) == 1
            or _number(name, interfaces[name], "dev_port", 0, omissions) == number - 1
        ]
        port = _of_rdma(first, number, rdma[first], omissions)
        if not port.bytes_per_s and port.up is not False:
            same = _of_interface({name: interfaces[name] for name in its}, omissions)
            port = _Port(port.layer, port.up, same.bytes_per_s)
        id_ = part.id if not at else f"{part.id}/{number}"
        yield _with(part, [called, *its], port, id_=id_)


def _with(part: Part, names: Iterable[str], port: _Port, *, id_: str = "") -> Part:
    return Part(
        id_ or part.id,
        part.kind,
        part.pci,
        names=tuple(names)[:NAMES_MAX],
        model=part.model,
        numa=part.numa,
        pcie_bytes_per_s=part.pcie_bytes_per_s,
        bytes_per_s=port.bytes_per_s,
        layer=port.layer,
        up=port.up,
    )


def _of_function(
    address: str, named: Mapping[str, Files], omissions: Omissions
) -> Iterator[tuple[str, Files]]:
    """Those whose nearest PCI device is this one."""
    for name, files in named.items():
        if len(name) > 253 or not name.isprintable():
            omissions.note(0, f"{name[:80]!r} is no name of a device")
            continue
        if _REPRESENTOR.fullmatch(files.get("phys_port_name", "")):
            continue
        steps = (step for step in reversed(files.get("path", "").split("/")))
        if next((step for step in steps if pci.address(step) == step != ""), "") == address:
            yield name, files


def _of_rdma(name: str, number: int, files: Files, omissions: Omissions) -> _Port:
    state = files.get(f"ports/{number}/state", "")
    up = state.startswith(_ACTIVE) if state else None
    said = files.get(f"ports/{number}/rate", "")
    rate = _RATE.match(said)
    if said and rate is None:
        omissions.note(0, f"infiniband/{name}: {said[:80]!r} is no rate")
    layer = files.get(f"ports/{number}/link_layer", "")
    speed = round(float(rate[1]) * 1e9 / 8) if rate and up is not False else 0
    return _Port(LAYERS.get(layer, Layer.OTHER) if layer else None, up, speed)


def _of_interface(interfaces: Mapping[str, Files], omissions: Omissions) -> _Port:
    """Of the first that says anything; those of one adapter are one cable."""
    found = _Port(None, None, 0)
    for name, files in sorted(interfaces.items(), key=lambda each: natural(each[0])):
        up = {"up": True, "down": False}.get(files.get("operstate", ""))
        megabits = _number(f"net/{name}", files, "speed", -1, omissions)
        layer = HARDWARE_TYPES.get(files.get("type", ""))
        speed = megabits * 1_000_000 // 8 if megabits > 0 and up is not False else 0
        found = _Port(found.layer or layer, found.up or up, found.bytes_per_s or speed)
    return found


def _hexadecimal(address: str, files: Files, name: str, omissions: Omissions) -> str:
    said = files.get(name, "")
    digits = said.removeprefix("0x")
    if said and (len(digits) not in (4, 6) or not all(c in "0123456789abcdef" for c in digits)):
        omissions.note(0, f"{address}/{name}: {said[:80]!r} is no number such as 0x10de")
        return ""
    return digits


def _number(address: str, files: Files, name: str, default: int, omissions: Omissions) -> int:
    said = files.get(name, "")
    digits = said.removeprefix("-")
    if not said:
        return default
    if not digits.isascii() or not digits.isdigit() or len(digits) > 10:
        omissions.note(0, f"{address}/{name}: {said[:80]!r} is no whole number")
        return default
    # What the kernel does not know of a cable's speed is all ones.
    return default if said == "4294967295" else int(said)
