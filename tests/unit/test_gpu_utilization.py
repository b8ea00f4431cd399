"""The utilization of GPUs: what agents read and send, and its series."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from prometheus_client import CollectorRegistry

from fixtures import scraping
from railwright_agent import utilization
from railwright_agent.hardware import HardwareSources
from railwright_agent.reporting import ControllersClient, Json, ReportRefusedError
from railwright_controllers import metrics
from railwright_controllers.metrics import ControllerMetrics

SERIES = "railwright_node_gpu_utilization_ratio"


class EnoughError(Exception):
    """The test has seen what it needs."""


class OlderControllers(ControllersClient):
    """Controllers of an earlier version, which do not know the path."""

    def post(self, path: str, message: Json, deadline_s: float) -> Json:
        raise ReportRefusedError(f"404 {path}")


def amd_machine(root: Path, *percents: str) -> Path:
    """A file system in which amdgpu states that its GPUs are so busy."""
    for index, percent in enumerate(percents):
        device = root / f"sys/bus/pci/devices/0000:{index + 1:02x}:00.0"
        device.mkdir(parents=True)
        (device / "gpu_busy_percent").write_text(f"{percent}\n")
    return root


def test_amd_gpus_are_read_from_sysfs(tmp_path: Path) -> None:
    """A machine without readable GPUs is not sampled for long."""
    busy = tmp_path / "sys/bus/pci/devices/0000:01:00.0/gpu_busy_percent"
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        busy.write_text("0")

    assert utilization.measure(tmp_path, pause) == []
    assert not pauses
    amd_machine(tmp_path, "100", "250", "unknown")
    assert utilization.measure(tmp_path, pause) == [1 / utilization.SAMPLES, 1.0]
    assert len(pauses) == utilization.SAMPLES


def test_refusal_is_logged_once(tmp_path: Path) -> None:
    """Controllers of an earlier version refuse every report."""
    pauses: list[float] = []
    logged: list[str] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3 * (utilization.SAMPLES + 1):
            raise EnoughError

    sources = HardwareSources(amd_machine(tmp_path, "50"))
    controllers = OlderControllers("http://x", tmp_path / "token", sources)
    with pytest.raises(EnoughError):
        utilization.run(controllers, rng=Random(0), log=logged.append, pause=pause)
    assert logged == ["utilization report failed: 404 /v1/gpu-utilization"]


def test_series_end_without_reports() -> None:
    """Agents that cannot read their GPUs, as those of earlier versions, have no series."""
    registry, now_s = CollectorRegistry(), 0.0
    gpus = ControllerMetrics(registry, lambda: now_s).gpus
    gpus.record("n0", (0.5, 1.0))
    now_s = metrics.RECENT_S
    gpus.record("n1", (0.0,))
    assert scraping.value(registry, SERIES, node_name="n0") == 0.75
    now_s += 1
    assert scraping.value(registry, SERIES, node_name="n0") is None
    assert scraping.value(registry, SERIES, node_name="n1") == 0.0


def test_number_of_nodes_is_bounded() -> None:
    registry = CollectorRegistry()
    gpus = ControllerMetrics(registry).gpus
    for index in range(metrics.NODES_MAX + 10):
        gpus.record(f"n{index}", (1.0,))
    found = [name for name, _ in scraping.scraped(registry) if name == SERIES]
    assert len(found) == metrics.NODES_MAX


def test_nodes_that_are_gone_are_forgotten_without_a_scrape() -> None:
    registry, now_s = CollectorRegistry(), 0.0
    gpus = ControllerMetrics(registry, lambda: now_s).gpus
    for index in range(1000):
        now_s += metrics.RECENT_S / 10
        gpus.record(f"n{index}", (1.0,))
        gpus.record("stays", (1.0,))
    assert len(gpus._nodes) == 12


def test_each_scrape_of_too_many_nodes_has_the_same() -> None:
    """Whichever reported last: else all would have series, one scrape after another."""
    registry, found = CollectorRegistry(), list[set[str]]()
    gpus = ControllerMetrics(registry, lambda: 0.0).gpus
    numbers = range(metrics.NODES_MAX + 10)
    for order in (numbers, reversed(numbers)):
        for index in order:
            gpus.record(f"n{index}", (1.0,))
        scraped = scraping.scraped(registry)
        found.append({str(labels) for name, labels in scraped if name == SERIES})
    assert len(found[0]) == metrics.NODES_MAX
    assert found[0] == found[1]
