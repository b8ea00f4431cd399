"""Huawei's table of ranks for collectives on Ascend (``hccl.json``), versions 1.0 and 1.2.

    {"status": "completed", "version": "1.2", "server_count": "1",
     "server_list": [{"server_id": "node-1", "device": [
        {"device_id": "0", "device_ip": "10.20.0.1", "super_device_id": "0", "rank_id": "0"}, …]}],
     "super_pod_list": [{"super_pod_id": "0", "server_list": [{"server_id": "node-1"}]}]}

Each accelerator has a port of its own, on Ethernet, where it has a ``device_ip``. Those of a super
pod reach each other by HCCS, also beyond their server: super pods are islands. Version 1.0 says
nothing of HCCS, and neither says how fast anything is.

vLLM's table has a list of devices for each of its two tasks in the place of ``server_list``, and
calls the number of its processes ``server_count``:

    {"status": "completed", "version": "1.0", "server_count": "2", "decode_device_list": [],
     "prefill_device_list": [{"server_id": "node-1", "device_id": "0", "device_ip": "10.20.0.1",
        "super_pod_id": "0", "super_device_id": "0"}, …]}
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address

from railwright_topology.accounts import Account, Basis
from railwright_topology.parts import (
    PARTS_MAX,
    Distance,
    Kind,
    Layer,
    Link,
    Look,
    Looks,
    Part,
    Technology,
    pair,
)
from railwright_topology.sources import documents, trees
from railwright_topology.sources.documents import Value
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.trees import Switch

SOURCE = "HCCL rank table"
VERSIONS = ("1.0", "1.2")
COMPLETED = "completed"
BY_TASK = ("prefill_device_list", "decode_device_list")

_NUMBER_MAX = 1 << 20


@dataclass(slots=True)
class _Server:
    devices: list[Part] = field(default_factory=list)
    ports: list[Part] = field(default_factory=list)
    on_pod: bool = True


def parse(text: str) -> tuple[Looks, Account]:
    """Read a table. Raises WiringError where it is none, or not complete yet."""
    omissions = Omissions(SOURCE)
    table = documents.read(SOURCE, text, omissions)
    fields = table.entries("a table of ranks")
    version = _field(table, fields, "version").text("a version")
    if version not in VERSIONS:
        omissions.note(
            fields["version"].line, f"version {version[:16]!r} is read as {VERSIONS[-1]}"
        )
    status = _field(table, fields, "status").text("a status")
    if status != COMPLETED:
        raise fields["status"].error(f"the table is {status[:80]!r}, and not {COMPLETED} yet")
    pods: dict[str, str] = {}
    if "server_list" not in fields and any(name in fields for name in BY_TASK):
        listed = itertools.chain.from_iterable(
            fields[name].each("devices") for name in BY_TASK if name in fields
        )
        servers, described = _by_task(listed, omissions)
        pods = trees.members(described, omissions)
    else:
        servers = _listed(_field(table, fields, "server_list"), omissions)
        with omissions.part():
            if (said := fields.get("server_count")) and _number(said) != len(servers):
                raise said.error(f"{_number(said)} servers are said, and {len(servers)} read")
        with omissions.part():
            if "super_pod_list" in fields:
                pods = trees.members(_pods(fields["super_pod_list"], omissions), omissions)
    for name in sorted(pods.keys() - servers.keys()):
        rule = f"{name!r} is on a super pod, and not in server_list"
        omissions.note(fields["super_pod_list"].line, rule)
        del pods[name]
    if not servers:
        raise omissions.refuse("no server is in it")
    looks = {name: (_look(server, on_pod=name in pods),) for name, server in servers.items()}
    account = Account(SOURCE, Basis.TOLD, islands=pods, strange=omissions.sentences)
    return Looks(SOURCE, looks), account


def _listed(value: Value, omissions: Omissions) -> dict[str, _Server]:
    servers: dict[str, _Server] = {}
    for server in value.each("servers"):
        with omissions.part():
            its = server.entries("a server")
            name = _name(server, its)
            if name in servers:
                raise server.error(f"{name[:80]!r}: a server has an id of its own")
            servers[name] = _server(_field(server, its, "device").each("devices"), omissions)
    return servers


def _by_task(
    devices: Iterable[Value], omissions: Omissions
) -> tuple[dict[str, _Server], list[Switch]]:
    """The servers of these devices, and their super pods."""
    by_server: dict[str, list[Value]] = {}
    pods: dict[str, tuple[int, list[str]]] = {}
    for device in devices:
        with omissions.part():
            its = device.entries("a device")
            name = _name(device, its)
            by_server.setdefault(name, []).append(device)
            if (said := its.get("super_pod_id")) and said.content:
                pod = said.text("a super pod's id")
                pods.setdefault(pod, (device.line, []))[1].append(name)
    servers = {name: _server(its, omissions) for name, its in by_server.items()}
    return servers, [Switch(line, pod, nodes=nodes) for pod, (line, nodes) in pods.items()]


def _server(devices: Iterable[Value], omissions: Omissions) -> _Server:
    found = _Server()
    taken: set[int] = set()
    for device in devices:
        with omissions.part():
            its = device.entries("a device")
            number = _number(_field(device, its, "device_id"))
            if number in taken or len(taken) == PARTS_MAX // 2:
                rule = f"device_id {number}: each of at most {PARTS_MAX // 2} devices has its own"
                raise device.error(rule)
            taken.add(number)
            found.devices.append(Part(f"npu{number}", Kind.ACCELERATOR, number=number))
            found.on_pod &= "super_device_id" in its
            if "device_ip" in its and its["device_ip"].content:
                _address(its["device_ip"])
                name = f"npu{number} port"
                layer = Layer.ETHERNET
                found.ports.append(Part(name, Kind.ADAPTER, names=(name,), layer=layer))
    return found


def _look(server: _Server, *, on_pod: bool) -> Look:
    hccs = on_pod and server.on_pod
    devices = sorted(part.id for part in server.devices)
    return Look(
        SOURCE,
        Basis.TOLD,
        (*server.devices, *server.ports),
        tuple(
            Link(ends, Technology.HCCS, switched=True)
            for ends in itertools.combinations(devices if hccs else (), 2)
        ),
        {
            # A port is on the chip.
            pair(port.id, port.id.removesuffix(" port")): Distance.SWITCH
            for port in server.ports
        },
        frozenset({Technology.HCCS} if hccs else ()),
    )


def _pods(value: Value, omissions: Omissions) -> Iterator[Switch]:
    for pod in value.each("super pods"):
        with omissions.part():
            fields = pod.entries("a super pod")
            name = _field(pod, fields, "super_pod_id").text("a super pod's id")
            servers: list[str] = []
            for server in _field(pod, fields, "server_list").each("servers"):
                with omissions.part():
                    its = server.entries("a server")
                    servers.append(_field(server, its, "server_id").text("a server's id"))
            yield Switch(pod.line, name, nodes=servers)


def _field(value: Value, fields: Mapping[str, Value], name: str) -> Value:
    if name not in fields:
        raise value.error(f"{name} is not there")
    return fields[name]


def _name(value: Value, fields: Mapping[str, Value]) -> str:
    name = _field(value, fields, "server_id").text("a server's id")
    if not 0 < len(name) <= 253 or not name.isprintable():
        raise value.error(f"{name[:80]!r}: a server's id has up to 253 printable characters")
    return name


def _number(value: Value) -> int:
    said = value.text("a number")
    if not said.isascii() or not said.isdigit() or len(said) > 7 or int(said) > _NUMBER_MAX:
        raise value.error(f"{said[:80]!r}: a number up to {_NUMBER_MAX} stands here")
    return int(said)


def _address(value: Value) -> None:
    said = value.text("an address")
    try:
        ip_address(said)
    except ValueError:
        raise value.error(f"{said[:80]!r}: an IP address stands here") from None
