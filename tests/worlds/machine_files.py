"""A planted machine, told in each format that is read: written from the formats' public rules."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from worlds.machines import CONSOLE_MODEL, GPU_MODEL, LINK_MB_S, Card, Gpu, Machine, distance

NVSWITCH = "0000:06:00.0"
NETWORK_CLASSES = {"InfiniBand": "0207", "Ethernet": "0200"}


def model(part: Gpu | Card) -> str:
    return GPU_MODEL if isinstance(part, Gpu) else part.model


def class_code(part: Gpu | Card) -> str:
    return "0302" if isinstance(part, Gpu) else NETWORK_CLASSES[part.layer]


def nccl_topology(machine: Machine) -> str:
    """A dump of NCCL (its xml.cc and net_ib.cc): adapters are named by RDMA device, and functions
    of one card are ports of the first. Interfaces of software have no PCI device."""
    lines = ['<system version="1">']
    for numa in sorted({slot.numa for slot in machine.slots.values()}):
        lines.append(f'  <cpu host_hash="0x1" numaid="{numa}" arch="x86_64">')
        inside = [part for part in _parts(machine) if part.slot.numa == numa]
        lines += _nccl_below(machine, inside, (), 4)
        if not numa:
            net = '<net name="veth0a1b2c" dev="9" speed="10000" port="0" guid="0x9" maxconn="65536"'
            lines.append(f'    <nic>{net} gdr="0"/></nic>')
        lines.append("  </cpu>")
    return "\n".join([*lines, "</system>", ""])


def rccl_topology(machine: Machine) -> str:
    """A dump of RCCL (NCCL_TOPO_XML_VERSION 2): accelerators are linked directly by XGMI."""
    text = nccl_topology(replace(machine, switched=False))
    for said, instead in (
        ('<system version="1">', '<system version="2">'),
        ("nvlink", "xgmi"),
        ("0x030200", "0x120000"),
        ('sm="90"', 'sm="304" gcn="gfx942" arch="38911"'),
        ('vendor="0x10de" device="0x2330"', 'vendor="0x1002" device="0x74a1"'),
    ):
        text = text.replace(said, instead)
    return text


def _nccl_below(
    machine: Machine, parts: Sequence[Gpu | Card], above: tuple[int, ...], indent: int
) -> Iterator[str]:
    lead, depth = " " * indent, len(above)
    for part in (part for part in parts if part.slot.switches == above):
        if part.address.endswith(".1"):
            continue  # It is a port of the first function.
        vendor, device = model(part).split(":")
        yield (
            f'{lead}<pci busid="{part.address}" class="0x{class_code(part)}00" vendor="0x{vendor}"'
            f' device="0x{device}" link_speed="32.0 GT/s PCIe" link_width="16">'
        )
        yield from (f"{lead}  {line}" for line in _nccl_part(machine, part))
        yield f"{lead}</pci>"
    inner = sorted({part.slot.switches[: depth + 1] for part in parts if _below(part, above)})
    for switches in inner:
        address = f"0000:{switches[-1]:02x}:00.0"
        yield f'{lead}<pci busid="{address}" class="0x060400" vendor="0x1000" device="0xc030">'
        its = [part for part in parts if part.slot.switches[: depth + 1] == switches]
        yield from _nccl_below(machine, its, switches, indent + 2)
        yield f"{lead}</pci>"


def _below(part: Gpu | Card, above: tuple[int, ...]) -> bool:
    switches = part.slot.switches
    return len(switches) > len(above) and switches[: len(above)] == above


def _nccl_part(machine: Machine, part: Gpu | Card) -> Iterator[str]:
    if isinstance(part, Card):
        yield "<nic>"
        for card in machine.cards:
            if card.address[:-1] == part.address[:-1]:
                yield (
                    f'  <net name="{card.name}" dev="0" speed="{card.gigabits * 1000}"'
                    f' port="{card.function + 1}" latency="0.0" maxconn="131072" gdr="1"/>'
                )
        yield "</nic>"
        return
    yield f'<gpu dev="{part.number}" sm="90" rank="{part.number}" gdr="1">'
    its = {ends: count for ends, count in machine.links.items() if part.number in ends}
    if machine.switched and its:
        count = max(its.values())
        yield f'  <nvlink target="{NVSWITCH}" count="{count}" tclass="0x068000"/>'
    else:
        for ends, count in its.items():
            target = machine.gpus[sum(ends) - part.number].address.upper()
            yield f'  <nvlink target="{target}" count="{count}" tclass="0x030200"/>'
    yield "</gpu>"


def nvidia_smi(machine: Machine) -> str:
    """The matrix, underlined as the tool does."""
    parts = _parts(machine)
    names = [f"GPU{p.number}" if isinstance(p, Gpu) else f"NIC{at}" for at, p in _numbered(parts)]
    lines = [
        "\t\x1b[4m" + "\t".join([*names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID\x1b[0m"])
    ]
    for name, part in zip(names, parts, strict=True):
        cells = [_cell(machine, part, other) for other in parts]
        gpu = [f"{32 * part.slot.numa}-{32 * part.slot.numa + 31}", str(part.slot.numa), "\tN/A"]
        lines.append("\t".join([name, *cells, *(gpu if isinstance(part, Gpu) else [])]))
    legend = [f"  NIC{at}: {p.name}" for at, p in _numbered(parts) if isinstance(p, Card)]
    lines += ["", "Legend:", "", "  X    = Self", "", "NIC Legend:", "", *legend, ""]
    return "\n".join(lines)


def nvidia_inventory(machine: Machine) -> str:
    return "".join(f"{gpu.number}, 0000{gpu.address.upper()}\n" for gpu in machine.gpus)


def _numbered(parts: Sequence[Gpu | Card]) -> Iterator[tuple[int, Gpu | Card]]:
    counts = {Gpu: itertools.count(), Card: itertools.count()}
    return ((next(counts[type(part)]), part) for part in parts)


def _cell(machine: Machine, one: Gpu | Card, other: Gpu | Card) -> str:
    if one is other:
        return " X "
    if isinstance(one, Gpu) and isinstance(other, Gpu):
        ends = (min(one.number, other.number), max(one.number, other.number))
        if ends in machine.links:
            return f"NV{machine.links[ends]}"
    return distance(one.slot, other.slot)


def hwloc(machine: Machine, *, links: bool = True) -> str:
    """What lstopo prints: processors left out, accelerators with the objects of their library."""
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
        '<topology version="2.0">',
        '  <object type="Machine" os_index="0" nodeset="0x00000003" gp_index="1">',
    ]
    for numa in sorted({slot.numa for slot in machine.slots.values()}):
        lines.append(
            f'    <object type="Package" nodeset="0x{1 << numa:08x}" gp_index="{90 + numa}">'
        )
        lines += _hwloc_bridges(machine, numa)
        if not numa:
            lines += _hwloc_console()
        lines.append("    </object>")
    lines.append("  </object>")
    if links and machine.gpus:
        lines += _hwloc_links(machine)
    return "\n".join([*lines, "</topology>", ""])


def _hwloc_bridges(machine: Machine, numa: int) -> Iterator[str]:
    inside = [part for part in _parts(machine) if part.slot.numa == numa]
    for bridge in sorted({part.slot.bridge for part in inside}):
        yield f'      <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[{bridge:02x}-ff]">'
        for part in (part for part in inside if part.slot.bridge == bridge):
            ports = _ports(part)
            for port in ports:
                yield f'<object type="Bridge" bridge_type="1-1" pci_busid="{port}">'
            yield from _hwloc_part(part)
            yield from ("</object>" for _ in ports)
        yield "      </object>"


def _hwloc_console() -> Iterator[str]:
    """The chip of the server's console, at a root port of its own."""
    yield '      <object type="Bridge" bridge_type="0-1" bridge_pci="0000:[00-03]">'
    yield '<object type="Bridge" bridge_type="1-1" pci_busid="0000:00:1c.5">'
    yield f'<object type="PCIDev" pci_busid="0000:03:00.0" pci_type="0300 [{CONSOLE_MODEL}] [0:0]">'
    yield '<object type="OSDev" gp_index="9" name="card0" osdev_type="1"/></object></object>'
    yield "      </object>"


def _hwloc_part(part: Gpu | Card) -> Iterator[str]:
    busid, number = part.address, _object(part)
    yield (
        f'<object type="PCIDev" gp_index="{number}" pci_busid="{busid}"'
        f' pci_type="{class_code(part)} [{model(part)}] [0000:0000] a1" pci_link_speed="3.938462">'
    )
    if isinstance(part, Gpu):
        name = f"nvml{part.number}"
        yield f'<object type="OSDev" gp_index="{number + 500}" name="{name}" osdev_type="1"/>'
    else:
        for at, (name, type_) in enumerate([(part.interface, 2), (part.name, 3)], 1):
            index = number + 500 * at
            yield f'<object type="OSDev" gp_index="{index}" name="{name}" osdev_type="{type_}"/>'
    yield "</object>"


def _hwloc_links(machine: Machine) -> Iterator[str]:
    objects = [f"OSDev:{_object(gpu) + 500}" for gpu in machine.gpus]
    count = len(objects)
    values = [
        1_000_000
        if one == other
        else machine.links.get((min(one, other), max(one, other)), 0) * LINK_MB_S
        for one, other in itertools.product(range(count), repeat=2)
    ]
    yield f'  <distances2hetero nbobjs="{count}" kind="25" name="NVLinkBandwidth">'
    yield f'    <indexes length="0">{" ".join(objects)} </indexes>'
    for first in range(0, len(values), 10):
        row = " ".join(map(str, values[first : first + 10]))
        yield f'    <u64values length="{len(row) + 1}">{row} </u64values>'
    yield "  </distances2hetero>"


def _object(part: Gpu | Card) -> int:
    return int(part.address[5:7], 16) + 2000 * int(part.address[-1])


def sysfs(machine: Machine) -> dict[str, dict[str, dict[str, str]]]:
    """As the agent reads it, with the chip of a console beside."""
    console = {
        "path": "devices/pci0000:00/0000:00:1c.5/0000:03:00.0",
        **_ids("0300", CONSOLE_MODEL),
    }
    pci = {"0000:03:00.0": console}
    infiniband: dict[str, dict[str, str]] = {}
    net = {}
    for part in _parts(machine):
        path = _path(part)
        pci[part.address] = {
            "path": path,
            "numa_node": str(part.slot.numa),
            "max_link_speed": "32.0 GT/s PCIe",
            "max_link_width": "16",
            **_ids(class_code(part), model(part)),
        }
        for port in _ports(part):
            pci[port] = {
                "path": path[: path.index(port) + len(port)],
                "max_link_speed": "32.0 GT/s PCIe",
                "max_link_width": "16",
                **_ids("0604", "1000:c030"),
            }
        if isinstance(part, Card):
            infiniband[part.name] = {
                "path": path,
                "ports/1/rate": f"{part.gigabits} Gb/sec (4X NDR)",
                "ports/1/state": "4: ACTIVE",
                "ports/1/link_layer": part.layer,
            }
            net[part.interface] = {
                "path": path,
                "speed": str(part.gigabits * 1000),
                "type": "32" if part.layer == "InfiniBand" else "1",
                "operstate": "up",
            }
    cpu = {"hypervisor": "no"}
    return {"pci": pci, "infiniband": infiniband, "net": net, "machine": {"cpu": cpu}}


def _ids(class_code: str, ids: str) -> dict[str, str]:
    vendor, device = ids.split(":")
    return {"class": f"0x{class_code}00", "vendor": f"0x{vendor}", "device": f"0x{device}"}


def _path(part: Gpu | Card) -> str:
    bridge = f"pci0000:{part.slot.bridge:02x}"
    return "/".join(["devices", bridge, *_ports(part), part.address])


def _ports(part: Gpu | Card) -> list[str]:
    """The bridges above it: the root port, and both ports of each switch."""
    slot, own = part.slot, int(part.address[5:7], 16)
    if not slot.switches:
        return [f"0000:{slot.bridge:02x}:{own % 32:02x}.1"]
    found = [f"0000:{slot.bridge:02x}:01.0"]
    for depth, switch in enumerate(slot.switches):
        last = depth + 1 == len(slot.switches)
        below = own if last else slot.switches[depth + 1]
        found += [
            f"0000:{switch:02x}:00.0",
            f"0000:{switch:02x}:{below % 31 + 1:02x}.{below // 31 % 8}",
        ]
    return found


def kfd(machine: Machine) -> dict[str, dict[str, str]]:
    """The accelerators as AMD's driver shows them; two processors come first."""
    nodes = {
        str(at): {"gpu_id": "0", "properties": "cpu_cores_count 64\nsimd_count 0\n"}
        for at in (0, 1)
    }
    for gpu in machine.gpus:
        own = gpu.number + 2
        place = _object(gpu) << 8
        files = {
            "gpu_id": str(40000 + own),
            "properties": f"simd_count 1216\nlocation_id {place}\ndomain 0\nvendor_id 4098\n",
            "io_links/0/properties": f"type 2\nnode_from {own}\nnode_to 0\nmax_bandwidth 63015\n",
        }
        for at, (ends, count) in enumerate(sorted(machine.links.items()), 1):
            if gpu.number in ends:
                other = sum(ends) - gpu.number + 2
                said = f"type 11\nnode_from {own}\nnode_to {other}\nweight 15\n"
                said += f"max_bandwidth {count * LINK_MB_S}\n"
                files[f"io_links/{at}/properties"] = said
        nodes[str(own)] = files
    return nodes


def description(machine: Machine) -> str:
    """As a site declares it; JSON is YAML too."""
    return json.dumps({"version": 1, "kinds": [described(machine)]})


def described(machine: Machine) -> dict[str, Any]:
    accelerators = [
        {"pci": g.address, "numa": g.slot.numa, "model": GPU_MODEL} for g in machine.gpus
    ]
    links = [
        {"technology": "NVLink", "among": list(ends), "count": count}
        for ends, count in machine.links.items()
    ]
    adapters = [
        {
            "name": card.name,
            "pci": card.address,
            "numa": card.slot.numa,
            "model": card.model,
            "speed": f"{card.gigabits} Gb/s",
            "layer": card.layer,
            "beside": [g.number for g in machine.gpus if distance(g.slot, card.slot) == "PIX"],
            **({"role": "front-end"} if card.rail is None else {"role": "rail", "rail": card.rail}),
        }
        for card in machine.cards
    ]
    return {"accelerators": accelerators, "links": links, "adapters": adapters}


def _parts(machine: Machine) -> list[Gpu | Card]:
    return [*machine.gpus, *machine.cards]


def write_sysfs(root: Path, sections: dict[str, dict[str, dict[str, str]]]) -> None:
    """The same as files and links, below a folder that stands for a machine's own."""
    sys = root / "sys"
    for kind, folder in (
        ("pci", "bus/pci/devices"),
        ("infiniband", "class/infiniband"),
        ("net", "class/net"),
    ):
        (sys / folder).mkdir(parents=True, exist_ok=True)
        for name, files in sections[kind].items():
            device = sys / files["path"]
            own = device if kind == "pci" else device / kind / name
            for file, said in files.items():
                if file != "path":
                    (own / file).parent.mkdir(parents=True, exist_ok=True)
                    (own / file).write_text(f"{said}\n")
            if kind != "pci":
                own.mkdir(parents=True, exist_ok=True)
                (own / "device").symlink_to(device)
            (sys / folder / name).symlink_to(own)
    virtual = sections["machine"]["cpu"]["hypervisor"] == "yes"
    (root / "proc").mkdir()
    flags = "fpu vme hypervisor tsc" if virtual else "fpu vme tsc"
    (root / "proc/cpuinfo").write_text(f"flags\t\t: {flags}\n")


def write_kfd(root: Path, nodes: dict[str, dict[str, str]]) -> None:
    for node, files in nodes.items():
        for file, said in files.items():
            path = root / "sys/class/kfd/kfd/topology/nodes" / node / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(said)
