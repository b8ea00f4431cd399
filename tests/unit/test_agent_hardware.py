"""What an agent gathers of its machine: the kernel, tools that answer or do not, files."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from random import Random

import pytest

from fixtures import hardware_facts, machine_files, machines
from railwright_agent import __main__ as agent
from railwright_agent import hardware as gathering
from railwright_agent.hardware import HardwareSources, SilentError
from railwright_topology import hardware_inventory
from railwright_topology.sources import hardware_documents

MACHINE = next(m for m in map(machines.planted, map(Random, range(99))) if m.links)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine's file system."""
    machine_files.write_sysfs(tmp_path, machine_files.sysfs(MACHINE))
    return tmp_path


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder that programs are looked for in, beside the shell's own."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def nvidia_smi(folder: Path) -> None:
    """Prints the planted machine's matrix, and its inventory where that is asked for."""
    (folder / "matrix").write_text(machine_files.nvidia_smi(MACHINE))
    (folder / "inventory").write_text(machine_files.nvidia_inventory(MACHINE))
    read = f'while IFS= read -r line; do printf "%s\\n" "$line"; done < {folder}'
    tool(folder, "nvidia-smi", f'case "$1" in topo) {read}/matrix;; *) {read}/inventory;; esac')


def test_the_kernel_and_the_tools_that_are_there_are_asked(root: Path, tools: Path) -> None:
    nvidia_smi(tools)
    (root / "topology.xml").write_text(machine_files.nccl_topology(MACHINE))
    (root / "own.yaml").write_text(machine_files.description(MACHINE))
    given = HardwareSources(root, root / "own.yaml", root / "topology.xml")
    document = gathering.gather(given)
    assert document.refused == ()
    assert [report.source for report in document.hardware_reports] == [
        "sysfs",
        "nvidia-smi",
        "NCCL topology",
        "description",
    ]
    found = hardware_inventory.of(
        hardware_documents.parse(hardware_documents.written(document)).hardware_reports
    )
    assert not found.conflicts
    assert hardware_facts.read(found, "all") == hardware_facts.expected(MACHINE, "all")


def test_failing_tool_is_reported_and_the_rest_is_read(root: Path, tools: Path) -> None:
    tool(tools, "nvidia-smi", "exec 3<>/dev/null; while :; do read -r x <&3 || :; done")
    tool(tools, "lstopo-no-graphics", "exit 3")
    (root / "topology.xml").write_text("<system/>")
    document = gathering.gather(
        HardwareSources(root, root / "none.yaml", root / "topology.xml"), deadline_s=0.2
    )
    assert [report.source for report in document.hardware_reports] == ["sysfs"]
    assert document.refused == (
        "nvidia-smi --query-gpu=index,pci.bus_id --format=csv,noheader: no answer in 0.2 s",
        "lstopo-no-graphics --of xml: ended with 3",
        "NCCL topology, line 1: no <cpu> is in it",
        f"{root / 'none.yaml'}: No such file or directory",
    )


def test_tools_are_called_without_a_folder_for_files(
    tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the disk of the node is full."""

    def fail(*given: object, **options: object) -> None:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "mkstemp", fail)
    monkeypatch.setattr(tempfile, "TemporaryFile", fail)
    tool(tools, "states", "echo yes")
    assert gathering.output(["states"], 5.0) == "yes\n"


def test_tool_that_cannot_be_killed_is_not_started_again(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits in the driver of a broken device. Once it has ended, the tool is called again."""
    started = tmp_path / "started"
    tool(tools, "stuck", f"echo >> {started}; exec /bin/sleep 60")
    monkeypatch.setattr(gathering, "KILLED_S", 0.01)
    held: list[subprocess.Popen[bytes]] = []
    with monkeypatch.context() as patch:
        patch.setattr(subprocess.Popen, "kill", lambda tool: held.append(tool))
        for why in ("no answer in 0.5 s", "an earlier one was killed and has not ended"):
            with pytest.raises(SilentError, match=f"^stuck: {why}$"):
                gathering.output(["stuck"], 0.5)
    assert len(started.read_text().splitlines()) == 1
    held[0].kill()
    held[0].wait()
    with pytest.raises(SilentError, match="no answer"):
        gathering.output(["stuck"], 0.5)
    assert len(started.read_text().splitlines()) == 2


def test_a_tree_that_a_cloud_gives_is_found_where_nccl_finds_it(root: Path, tools: Path) -> None:
    path = root / gathering.VIRTUAL_TOPOLOGY
    path.parent.mkdir(parents=True)
    path.write_text(machine_files.nccl_topology(MACHINE))
    document = gathering.gather(HardwareSources(root))
    assert [report.source for report in document.hardware_reports] == ["sysfs", "NCCL topology"]


def test_amds_accelerators_are_asked_of_their_driver(root: Path, tools: Path) -> None:
    machine_files.write_kfd(root, machine_files.kfd(MACHINE))
    document = gathering.gather(HardwareSources(root))
    assert [report.source for report in document.hardware_reports] == ["sysfs", "KFD"]


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        (b"\xff\xfe", "is no text: invalid start byte"),
        (b"x" * (gathering.BYTES_MAX + 1), f"more than {gathering.BYTES_MAX} bytes"),
    ],
)
def test_binary_or_large_kernel_file_is_remarked(
    root: Path, tools: Path, content: bytes, rule: str
) -> None:
    path = root / "topology.xml"
    path.write_bytes(content)
    document = gathering.gather(HardwareSources(root, nccl_topology=path))
    assert document.refused == (f"{path}: {rule}",)


def test_the_command_prints_one_document(
    root: Path, tools: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["agent", "hardware", "--root", os.fspath(root)])
    assert agent.main() == 0
    text = capsys.readouterr().out
    assert json.loads(text)["version"] == 1
    assert hardware_documents.parse(text) == gathering.gather(HardwareSources(root))
