"""Matrices of ``nvidia-smi topo -m`` as drivers of all ages print them, and as people keep them."""

from __future__ import annotations

import pytest

from railwright_topology.parts import Distance, Technology
from railwright_topology.sources import nvidia_smi

NUMA, NEAR, FAR = Distance.NUMA, Distance.SWITCH, Distance.SYSTEM
AFFINITY = "CPU Affinity\tNUMA Affinity\tGPU NUMA ID"


def test_cells_that_touch_are_read_one_by_one() -> None:
    """A terminal that wraps a wide matrix loses blanks where its lines end."""
    report = nvidia_smi.parse(
        f"\tGPU0 GPU1 NIC0 NIC1\t{AFFINITY}\n"
        "GPU0 X NV18NODEPIX 0-31 0 N/A\nGPU1 NV18 XSYS SYS 32-63 1 N/A\n"
        "NIC0 NODESYS X PIX\nNIC1 PIX SYS PIXX\n\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"
    )
    assert not report.remarks
    assert [(part.id, part.numa) for part in report.parts] == [
        ("GPU0", 0),
        ("GPU1", 1),
        ("mlx5_0", None),
        ("mlx5_1", None),
    ]
    assert [(link.ends, link.count) for link in report.links] == [(("GPU0", "GPU1"), 18)]
    assert report.distances == {
        ("GPU0", "mlx5_0"): NUMA,
        ("GPU0", "mlx5_1"): NEAR,
        ("GPU1", "mlx5_0"): FAR,
        ("GPU1", "mlx5_1"): FAR,
    }


@pytest.mark.parametrize("name", ["mlx5_0", "mlx5_bond_0", "ibp5s0", "rocep1s0f0", "bnxt_re0"])
def test_older_drivers_call_adapters_by_their_names(name: str) -> None:
    report = nvidia_smi.parse(
        f"\tGPU0\tGPU1\t{name}\t{AFFINITY}\nGPU0\t X \tPHB\tPIX\t0-5\t0\n"
        f"GPU1\tPHB\t X \tSYS\t6-11\t1\n{name}\tPIX\tSYS\t X \n"
    )
    assert [part.id for part in report.parts] == ["GPU0", "GPU1", name]
    assert report.distances["GPU0", name] == NEAR
    assert [part.numa for part in report.parts] == [0, 1, None]
    assert not report.remarks


@pytest.mark.parametrize(
    ("cells", "complete"), [("SYS", True), ("N/A", True), ("GNS", False), ("NV0", False)]
)
def test_unreadable_matrix_reports_no_missing_link(cells: str, complete: bool) -> None:
    """``topo -p2p`` prints a matrix of other words: of links it says nothing."""
    report = nvidia_smi.parse(f"\tGPU0\tGPU1\nGPU0\t X \t{cells}\nGPU1\t{cells}\t X \n")
    assert report.complete == ({Technology.NVLINK} if complete else set())
    assert len(report.remarks) == (not complete)


def test_missing_row_reports_no_missing_link() -> None:
    assert not nvidia_smi.parse("\tGPU0\tGPU1\nGPU0\t X \tSYS\n").complete
