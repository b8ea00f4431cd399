"""Huawei's table of ranks for collectives on Ascend (``hccl.json``), versions 1.0 and 1.2.

    {"status": "completed", "version": "1.2", "server_count": "1",
     "server_list": [{"server_id": "node-1", "device": [
        {"device_id": "0", "device_ip": "10.20.0.1", "super_device_id": "0", "rank_id": "0"}, …]}],
     "super_pod_list": [{"super_pod_id": "0", "server_list": [{"server_id": "node-1"}]}]}

Each accelerator with a ``device_ip`` has an Ethernet port of its own. Accelerators of a super pod
reach each other by HCCS, also beyond their server: a super pod is a scale-up domain. Version 1.0
has no HCCS links, and neither version has speeds.

vLLM's table has a list of devices for each of its two tasks in the place of ``server_list``, and
calls the number of its processes ``server_count``:

    {"status": "completed", "version": "1.0", "server_count": "2", "decode_device_list": [],
     "prefill_device_list": [{"server_id": "node-1", "device_id": "0", "device_ip": "10.20.0.1",
        "super_pod_id": "0", "super_device_id": "0"}, …]}
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from railwright_topology.parts import (
    PARTS_MAX,
    Distance,
    HardwareReport,
    HardwareReports,
    Kind,
    Layer,
    Link,
    Part,
    Technology,
    pair,
)
from railwright_topology.source_reports import Provenance, SourceReport
from railwright_topology.sources import documents, trees
from railwright_topology.sources.documents import Fields, Value
from railwright_topology.sources.inventory import Inventory
from railwright_topology.sources.omissions import Omissions
from railwright_topology.sources.trees import TreeNode

SOURCE = "HCCL rank table"
VERSIONS = ("1.0", "1.2")
COMPLETED = "completed"
BY_TASK = ("prefill_device_list", "decode_device_list")

_DEVICES_MAX = PARTS_MAX // 2
_NUMBER_MAX = 1 << 20


@dataclass(slots=True)
class _Server:
    """``numbers`` of its devices, and of those with a port; ``in_pod`` says whether all of them
    can be in a super pod."""

    numbers: list[int]
    ports: list[int]
    in_pod: bool = True


def parse(text: str) -> tuple[HardwareReports, SourceReport]:
    """Read a table. Raises WiringError where it is none, or not complete yet."""
    omissions = Omissions(SOURCE)
    table = documents.read_versioned(text, omissions, "a table of ranks", versions=VERSIONS)
    if (status := table["status"].text("a status")) != COMPLETED:
        raise table["status"].error(f"the table is {status[:80]!r}, not {COMPLETED}")
    if "server_list" not in table and any(name in table for name in BY_TASK):
        servers, pods = _by_task(table)
    else:
        servers, pods = _by_server(table)
    for name in sorted(pods.keys() - servers.keys()):
        rule = f"{name!r} is on a super pod, and not in server_list"
        omissions.add(table["super_pod_list"].error(rule))
        del pods[name]
    if not servers:
        raise omissions.refuse("no server is in it")
    reports = {name: (_report(server, name in pods),) for name, server in servers.items()}
    domains = SourceReport(SOURCE, Provenance.IMPORTED, (), pods, omissions.sentences)
    return HardwareReports(SOURCE, reports), domains


def _by_server(table: Fields) -> tuple[dict[str, _Server], dict[str, str]]:
    """The servers that are listed, and the super pod of each."""
    servers: dict[str, _Server] = {}

    def add(value: Value) -> None:
        record = value.fields("a server")
        name = record["server_id"].name("a server's id")
        if name in servers:
            raise value.error(f"{name[:80]!r}: a server has an id of its own")
        servers[name] = _server(record["device"].each("devices"))

    table["server_list"].some("servers", add)
    if (count := table.get("server_count", _number, len(servers))) != len(servers):
        rule = f"{count} servers are declared, and {len(servers)} read"
        table.omissions.add(table["server_count"].error(rule))
    pods = table.some("super_pod_list", _pod, "super pods")
    return servers, trees.members(pods, table.omissions)


def _by_task(table: Fields) -> tuple[dict[str, _Server], dict[str, str]]:
    """The servers of all devices, and the super pod of each."""
    devices: dict[str, list[Value]] = {}
    pods: dict[str, tuple[int, list[str]]] = {}

    def add(value: Value) -> None:
        record = value.fields("a device")
        name = record["server_id"].name("a server's id")
        devices.setdefault(name, []).append(value)
        if "super_pod_id" in record and record["super_pod_id"].content:
            pod = record["super_pod_id"].text("a super pod's id")
            pods.setdefault(pod, (value.line, []))[1].append(name)

    for key in BY_TASK:
        table.some(key, add, "devices")
    switches = (TreeNode(line, pod, nodes=nodes) for pod, (line, nodes) in pods.items())
    servers = {name: _server(its) for name, its in devices.items()}
    return servers, trees.members(switches, table.omissions)


def _pod(value: Value) -> TreeNode:
    record = value.fields("a super pod")
    name = record["super_pod_id"].text("a super pod's id")
    return TreeNode(value.line, name, nodes=record["server_list"].some("servers", _server_id))


def _server_id(value: Value) -> str:
    return value.fields("a server")["server_id"].text("a server's id")


def _server(devices: Iterable[Value]) -> _Server:
    found = _Server([], [])
    for device in devices:
        with device.omissions.part():
            record = device.fields("a device")
            number = _number(record["device_id"])
            if number in found.numbers or len(found.numbers) == _DEVICES_MAX:
                rule = f"device_id {number}: each of at most {_DEVICES_MAX} devices has its own"
                raise device.error(rule)
            found.numbers.append(number)
            found.in_pod &= "super_device_id" in record
            if "device_ip" in record and record["device_ip"].content:
                _check_address(record["device_ip"])
                found.ports.append(number)
    return found


def _report(server: _Server, on_pod: bool) -> HardwareReport:
    linked = on_pod and server.in_pod
    inventory = Inventory(Omissions(SOURCE))
    names = {number: f"npu{number}" for number in server.numbers}
    ports = {number: f"npu{number} port" for number in server.ports}
    for number, name in names.items():
        inventory.parts[name] = Part(name, Kind.ACCELERATOR, number=number)
    for name in ports.values():
        inventory.parts[name] = Part(name, Kind.ADAPTER, names=(name,), layer=Layer.ETHERNET)
    ends = itertools.combinations(sorted(names.values()) if linked else (), 2)
    return inventory.report(
        Provenance.IMPORTED,
        (Link(each, Technology.HCCS, switched=True) for each in ends),
        # A port is on the chip.
        {pair(port, names[number]): Distance.SWITCH for number, port in ports.items()},
        complete=[Technology.HCCS] if linked else (),
    )


def _number(value: Value) -> int:
    return value.number(_NUMBER_MAX)


def _check_address(value: Value) -> None:
    text = value.text("an address")
    try:
        ip_address(text)
    except ValueError:
        raise value.unexpected("an IP address") from None
