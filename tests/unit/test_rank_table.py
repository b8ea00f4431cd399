"""Huawei's table of ranks: accelerators, their ports, and super pods, by server."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from fixtures.rank_tables import Table, table
from fixtures.remarks import remarks
from railwright_topology import fabric, hardware_inventory
from railwright_topology.parts import AdapterRole, HardwareReports, Technology
from railwright_topology.source_reports import SourceReport
from railwright_topology.sources import formats
from railwright_topology.sources.formats import File


def read(stated: Table) -> tuple[HardwareReports, SourceReport]:
    hardware_reports, source_report = formats.read(File("", "hccl.json", json.dumps(stated)))
    assert isinstance(hardware_reports, HardwareReports)
    assert isinstance(source_report, SourceReport)
    return hardware_reports, source_report


def test_each_accelerator_has_a_rail_of_its_own() -> None:
    hardware_reports, source_report = read(table("1.0", "10.1.0.1", "10.1.0.2"))
    found = hardware_inventory.of(hardware_reports.by_host["10.1.0.2"])
    assert [part.number for part in found.accelerators] == [*range(8)]
    assert [found.placed[part.id].rail for part in found.adapters] == [*range(8)]
    assert len(found.of_role(AdapterRole.RAIL)) == 8
    assert found.placed["npu3 port"].near == ("npu3",)
    assert not found.links
    assert "how accelerators are linked beside PCIe" in found.unknown
    assert not source_report.scale_up_domains


def test_super_pod_is_a_scale_up_domain_linking_all_devices() -> None:
    hardware_reports, source_report = read(table("1.2", "a", "b"))
    found = hardware_inventory.of(hardware_reports.by_host["a"])
    assert {link.technology for link in found.links} == {Technology.HCCS}
    assert len(found.links) == 28
    assert source_report.scale_up_domains == {"a": "0", "b": "0"}
    whole = fabric.of("ab", [hardware_reports, source_report])
    assert whole.merged_topology.scale_up_domains is not None
    assert [*whole.inventories] == ["a", "b"]


def test_an_accelerator_without_an_address_has_no_port() -> None:
    stated = table("1.0", "a")
    stated["server_list"][0]["device"][2]["device_ip"] = ""
    hardware_reports, _ = read(stated)
    found = hardware_inventory.of(hardware_reports.by_host["a"])
    assert len(found.accelerators) == 8
    assert [part.id for part in found.adapters] == [f"npu{n} port" for n in range(8) if n != 2]


def by_task(stated: Table) -> Table:
    """The same as vLLM's generator has it: half of the devices prefill, the others decode."""
    pods = {
        server["server_id"]: pod["super_pod_id"]
        for pod in stated.pop("super_pod_list", [])
        for server in pod["server_list"]
    }
    devices: list[Table] = []
    for server in stated.pop("server_list"):
        name = server["server_id"]
        own = {"server_id": name} | ({"super_pod_id": pods[name]} if name in pods else {})
        devices += (own | device for device in server["device"])
    half = len(devices) // 2 + 1
    lists = {"prefill_device_list": devices[:half], "decode_device_list": devices[half:]}
    return stated | lists | {"server_count": str(len(devices))}


@pytest.mark.parametrize("version", ["1.0", "1.2"])
def test_rank_table_with_task_lists_parses_the_same(version: str) -> None:
    hardware_reports, source_report = read(by_task(table(version, "a", "b")))
    assert (hardware_reports, source_report) == read(table(version, "a", "b"))
    assert not source_report.strange


def test_table_by_task_leaves_out_what_cannot_be() -> None:
    stated = by_task(table("1.2", "a", "b"))
    stated["prefill_device_list"][0]["super_pod_id"] = "1"
    stated["prefill_device_list"][1]["device_id"] = "0"
    del stated["decode_device_list"][0]["server_id"]
    hardware_reports, source_report = read(stated)
    assert len(hardware_inventory.of(hardware_reports.by_host["a"]).accelerators) == 7
    assert source_report.scale_up_domains == {"b": "0"}
    reported = " ".join(source_report.strange)
    for rule in (
        "node 'a' is in both '1' and '0'",
        "device_id 0: each of at most",
        "server_id is not there",
    ):
        assert rule in reported


def edited(edit: Callable[[Table], object], version: str = "1.2") -> str:
    stated = table(version, "a", "b")
    edit(stated)
    return remarks(lambda: read(stated))


@pytest.mark.parametrize(
    ("edit", "rule"),
    [
        (lambda t: t.update(version="0.9"), "version '0.9' is read as 1.2"),
        (lambda t: t.update(status="initializing"), "the table is 'initializing'"),
        (lambda t: t.pop("server_list"), "server_list is not there"),
        (lambda t: t.update(server_count="3"), "3 servers are declared, and 2 read"),
        (lambda t: t["server_list"][1].update(server_id="a"), "a server has an id of its own"),
        (lambda t: t["server_list"][0].pop("device"), "device is not there"),
        (
            lambda t: t["server_list"][0]["device"][1].update(device_id="0"),
            "device_id 0: each of at most 128 devices has its own",
        ),
        (
            lambda t: t["server_list"][0]["device"][1].update(device_id="x"),
            "'x': expected a number up to 1048576",
        ),
        (
            lambda t: t["server_list"][0]["device"][1].update(device_ip="10.0"),
            "'10.0': expected an IP address",
        ),
        (
            lambda t: t["super_pod_list"][0]["server_list"].append({"server_id": "c"}),
            "'c' is on a super pod, and not in server_list",
        ),
        (
            lambda t: t["super_pod_list"].append(
                {"super_pod_id": "1", "server_list": [{"server_id": "a"}]}
            ),
            "node 'a' is in both '0' and '1'",
        ),
    ],
)
def test_table_omission_has_its_rule(edit: Callable[[Table], object], rule: str) -> None:
    assert rule in edited(edit)
