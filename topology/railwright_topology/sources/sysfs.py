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
from dataclasses import dataclass, replace

from railwright_topology.parts import NAMES_MAX, HardwareReport, Kind, Layer, Part
from railwright_topology.port_assignment import natural
from railwright_topology.source_reports import Provenance
from railwright_topology.sources import devices, hostlist, pci
from railwright_topology.sources.inventory import Inventory
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.pci import Way
from railwright_topology.wiring import WiringError

SOURCE = "sysfs"

Files = Mapping[str, str]
Sections = Mapping[str, Mapping[str, Files]]

LAYERS: Mapping[str, Layer] = {"InfiniBand": Layer.INFINIBAND, "Ethernet": Layer.ETHERNET}
HARDWARE_TYPES: Mapping[str, Layer] = {"1": Layer.ETHERNET, "32": Layer.INFINIBAND}
"""ARPHRD_ETHER and ARPHRD_INFINIBAND of Linux's if_arp.h."""

_STATES: Mapping[str, bool] = {"up": True, "down": False}
_ACTIVE = "4: ACTIVE"
_NUMBER = re.compile(r"-?[0-9]{1,10}")
_NO_SPEED = 4294967295
"""What the kernel does not know of a cable's speed is all ones."""
_HEXADECIMAL = re.compile(r"0x([0-9a-f]{4}|[0-9a-f]{6})")
_RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9])?) Gb/sec")
_REPRESENTOR = re.compile(r"(c[0-9]+)?pf[0-9]+(vf|sf)[0-9]+")
"""The end of a virtual function that an adapter keeps on its host."""
_PORT_FILE = re.compile(r"ports/([0-9]{1,3})/")


@dataclass(frozen=True, slots=True)
class _Port:
    """A port of an RDMA device, or an interface where there is none."""

    layer: Layer | None = None
    up: bool | None = None
    bytes_per_s: int = 0


@dataclass(frozen=True, slots=True)
class _Device:
    """The files of a device, ``place`` what remarks call it."""

    place: str
    files: Files
    omissions: Omissions

    def text(self, name: str) -> str:
        return self.files.get(name, "")

    def number(self, name: str, default: int) -> int:
        """A file with a number; the default where it is not there or holds something else."""
        text = self.text(name)
        if text and not _NUMBER.fullmatch(text):
            self.omissions.note(0, f"{self.place}/{name}: {text[:80]!r} is no whole number")
            return default
        return int(text or default)

    def hexadecimal(self, name: str) -> str:
        """Digits of a file such as 0x10de; empty where it is not there or holds something else."""
        text = self.text(name)
        found = _HEXADECIMAL.fullmatch(text)
        if text and not found:
            rule = f"{text[:80]!r} is no number such as 0x10de"
            self.omissions.note(0, f"{self.place}/{name}: {rule}")
        return found[1] if found else ""

    @property
    def numa(self) -> int | None:
        numa = self.number("numa_node", -1)
        return numa if numa >= 0 else None

    @property
    def path(self) -> list[str]:
        """The host bridge, the bridges and the device itself, as far as these are shown."""
        return [
            step
            for step in self.text("path").split("/")
            if step.startswith("pci") or pci.is_address(step)
        ]

    def is_on(self, address: str) -> bool:
        """Whether this is the nearest PCI device on its path."""
        steps = reversed(self.text("path").split("/"))
        return next(filter(pci.is_address, steps), "") == address


def parse(sections: Sections) -> HardwareReport:
    """Read what was read. A file that holds what the kernel never writes is left out, and a device
    without a class too."""
    omissions = Omissions(SOURCE)
    inventory = Inventory(omissions)
    slots = {
        address: _Device(address, files, omissions)
        for address, files in sections.get("pci", {}).items()
    }
    bridged = False
    for device in (slots[address] for address in sorted(slots)):
        with omissions.part():
            part = _part(device, slots)
            if part is None:
                continue
            way, bridges = _way(device)
            bridged |= bool(bridges)
            accelerates = part.kind == Kind.ACCELERATOR
            for port in [part] if accelerates else _ports(part, sections, omissions):
                inventory.add(port, _error, way)
    hypervisor = sections.get("machine", {}).get("cpu", {}).get("hypervisor")
    return inventory.report(
        Provenance.SEEN,
        virtual=None if hypervisor is None else hypervisor == "yes",
        hides_tree=not bridged if inventory.parts else None,
    )


def _error(rule: str) -> WiringError:
    return WiringError(SOURCE, 0, rule)


def _part(device: _Device, slots: Mapping[str, _Device]) -> Part | None:
    if not pci.is_address(device.place):
        raise _error(f"bus/pci/devices/{device.place[:80]!r} is no PCI address")
    ids = [device.hexadecimal(name) for name in ("class", "vendor", "device")]
    kind = devices.kind(*ids)
    if kind is None or "physfn" in device.files:
        return None
    # The slower one of a part and the port above it counts.
    _, bridges = _way(device)
    speeds = [
        pci.bytes_per_s(each.text("max_link_speed"), each.number("max_link_width", 0))
        for each in (device, *(slots[bridge] for bridge in bridges[-1:] if bridge in slots))
    ]
    part = devices.describe(kind, device.place, ids, device.numa)
    return replace(part, pcie_bytes_per_s=min(filter(None, speeds), default=0), layer=None)


def _way(device: _Device) -> tuple[Way, list[str]]:
    """And the bridges above it: what has an address before it does on its path."""
    path = device.path
    last = max((at for at, step in enumerate(path) if step.startswith("pci")), default=-1)
    bridge = path[last] if last >= 0 else ""
    bridges = [step for step in path[last + 1 :] if step != device.place]
    return Way(device.numa, bridge, tuple(bridges[:-1])), bridges


def _ports(part: Part, sections: Sections, omissions: Omissions) -> Iterator[Part]:
    """The adapter, once for each port of its RDMA device."""
    interfaces = _of_function(part.pci, "net", sections, omissions)
    rdma = _of_function(part.pci, "infiniband", sections, omissions)
    first = next(iter(rdma), "")
    files = rdma[first].files if rdma else {}
    numbers = sorted({int(found[1]) for file in files if (found := _PORT_FILE.match(file))})
    if not numbers:
        yield _with(part, interfaces, _of_interfaces(interfaces.values()))
    for at, number in enumerate(numbers):
        suffix = f"/{number}" if at else ""
        its = {
            name: interface
            for name, interface in interfaces.items()
            if len(numbers) == 1 or interface.number("dev_port", 0) == number - 1
        }
        port = _of_rdma(rdma[first], number)
        if not port.bytes_per_s and port.up is not False:
            port = replace(port, bytes_per_s=_of_interfaces(its.values()).bytes_per_s)
        yield _with(replace(part, id=f"{part.id}{suffix}"), [f"{first}{suffix}", *its], port)


def _with(part: Part, names: Iterable[str], port: _Port) -> Part:
    return replace(
        part,
        names=tuple(names)[:NAMES_MAX],
        bytes_per_s=port.bytes_per_s,
        layer=port.layer,
        up=port.up,
    )


def _of_function(
    address: str, section: str, sections: Sections, omissions: Omissions
) -> dict[str, _Device]:
    """Those whose nearest PCI device is this one, as people count."""
    found: dict[str, _Device] = {}
    for name, files in sections.get(section, {}).items():
        device = _Device(f"{section}/{name}", files, omissions)
        if not hostlist.is_name(name):
            omissions.note(0, f"{name[:80]!r} is no name of a device")
        elif device.is_on(address) and not _REPRESENTOR.fullmatch(device.text("phys_port_name")):
            found[name] = device
    return {name: found[name] for name in sorted(found, key=natural)}


def _of_rdma(device: _Device, number: int) -> _Port:
    state, text_rate, layer = (
        device.text(f"ports/{number}/{file}") for file in ("state", "rate", "link_layer")
    )
    up = state.startswith(_ACTIVE) if state else None
    found = _RATE.match(text_rate)
    if text_rate and found is None:
        device.omissions.note(0, f"{device.place}: {text_rate[:80]!r} is no rate")
    speed = round(float(found[1]) * 1e9 / 8) if found and up is not False else 0
    return _Port(LAYERS.get(layer, Layer.OTHER) if layer else None, up, speed)


def _of_interfaces(interfaces: Iterable[_Device]) -> _Port:
    """Of the first that says anything; those of one adapter are one cable."""
    found = _Port()
    for device in interfaces:
        up = _STATES.get(device.text("operstate"))
        megabits = device.number("speed", -1)
        layer = HARDWARE_TYPES.get(device.text("type"))
        is_known = megabits > 0 and megabits != _NO_SPEED and up is not False
        speed = megabits * 1_000_000 // 8 if is_known else 0
        found = _Port(found.layer or layer, found.up or up, found.bytes_per_s or speed)
    return found
