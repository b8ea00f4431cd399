"""This machine's own inside, as the real kernel and the real lstopo show it.

What there is differs from machine to machine; that both show the same of it does not.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from railwright_agent import kernel
from railwright_testbed import requirements
from railwright_topology import hardware_inventory
from railwright_topology.parts import HardwareReport
from railwright_topology.sources import hardware_documents, hwloc, sysfs

PCI = Path("/sys/bus/pci/devices")


@pytest.fixture(scope="module")
def printed() -> str:
    requirements.install(requirements.HARDWARE_TOOLS)
    command = ["lstopo-no-graphics", "--of", "xml"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


@pytest.fixture(scope="module")
def report(printed: str) -> HardwareReport:
    return hwloc.parse(printed)


def network_devices() -> set[str]:
    """The addresses of this machine's network controllers, by the kernel's own folders."""
    return {
        device.name
        for device in PCI.iterdir()
        if (device / "class").read_text().startswith("0x02") and not (device / "physfn").exists()
    }


def test_both_see_the_network_devices_that_are_there(report: HardwareReport) -> None:
    own = sysfs.parse(kernel.sections(Path("/")))
    adapters = {part.pci for part in own.parts if part.kind == "adapter"}
    assert adapters == network_devices()
    assert {part.pci for part in report.parts if part.kind == "adapter"} == adapters


def test_both_sources_agree_on_all_shared_facts(report: HardwareReport) -> None:
    own = sysfs.parse(kernel.sections(Path("/")))
    assert own.hides_tree == report.hides_tree
    found = hardware_inventory.of([own, report])
    assert not found.conflicts
    assert {*own.parts} or not network_devices()


def test_virtual_machine_is_found_by_its_processor() -> None:
    flags = Path("/proc/cpuinfo").read_text()
    own = sysfs.parse(kernel.sections(Path("/")))
    assert own.virtual == ("hypervisor" in flags if "flags\t" in flags else None)


def test_the_agents_command_prints_what_can_be_read_again(printed: str) -> None:
    command = [sys.executable, "-m", "railwright_agent", "hardware"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    document = hardware_documents.parse(answer.stdout)
    assert document.refused == ()
    sources = {report.source for report in document.hardware_reports}
    assert sources <= {"sysfs", "hwloc", "nvidia-smi", "KFD"}
    if network_devices():
        assert {"sysfs", "hwloc"} <= sources
