"""The kind of a node's devices, and its machine in the cost model: found, published, decided by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fixtures import job, observing, reporting
from fixtures.observing import Watched
from railwright_controllers.discovery import AGENTS
from railwright_controllers.report import node_healths as reports
from railwright_conversion.machines import PRODUCT
from railwright_operator.machines import Machines
from railwright_scheduler.model.snapshot import Node, Snapshot
from railwright_scheduler.model.workload import Parallelism, Recipe, Transformer, Workload
from railwright_scheduler.policy.decide import decide
from railwright_topology import fabric
from railwright_topology.interconnect import Interconnect
from railwright_topology.parts import HardwareReport, HardwareReports, Kind, Part
from railwright_topology.source_reports import Provenance
from railwright_watch import node_healths
from railwright_watch.node_healths import HealthRecord

GPT = Transformer(24, 4096, 32, 32, 128, 4 * 4096, 51_200)
WORKLOAD = Workload(GPT, Parallelism(tensor=8, data=2), Recipe(2048, 1, 64))


def published(*models: str) -> dict[str, Any]:
    """The NodeHealth of a node whose agent reports accelerators of these models."""
    parts = tuple(
        Part(f"0000:{at:02x}:00.0", Kind.ACCELERATOR, f"0000:{at:02x}:00.0", model=model)
        for at, model in enumerate(models)
    )
    report = HardwareReport("sysfs", Provenance.SEEN, parts)
    found = fabric.of(["n0"], [HardwareReports(AGENTS, {"n0": (report,)})])
    return reports.contents(found)["n0"]


def nodes(spec: dict[str, Any], **labels: str) -> tuple[Node, ...]:
    """Two nodes with these labels and NodeHealths, as a cycle has them."""
    seen, names = Watched(), ("n0", "n1")
    for name in names:
        seen.nodes[f"uid-{name}"] = replace(observing.node_record(name), labels=labels)
    healths = {name: health(name, spec) for name in names}
    return Machines(seen.nodes, seen.pods).build_nodes(Interconnect(), healths)


def health(name: str, spec: dict[str, Any]) -> HealthRecord:
    owner = {"kind": "Node", "name": name, "uid": f"uid-{name}"}
    metadata = {"ownerReferences": [owner]}
    return node_healths.answered(reporting.raw_object(name, metadata=metadata, spec=spec))


@pytest.mark.parametrize(
    ("model", "machine"),
    [
        ("1002:74a1", "MI300X Platform"),
        ("10de:20b2", "DGX A100"),
        ("10de:2330", "DGX H100"),
        ("10de:2324", "HGX H800"),
    ],
)
def test_inventory_without_labels_gives_a_predicted_step(model: str, machine: str) -> None:
    found = nodes(published(*[model] * 8))
    assert [each.machine for each in found] == [machine] * 2
    asked = job("a", replicas=2, ranks_per_pod=8, workload=WORKLOAD)
    (admitted,) = decide(Snapshot((), found, ("default",), (asked,))).admitted
    assert admitted.score is not None
    assert admitted.score.predicted is not None
    assert admitted.score.predicted.placed_us > 0


@pytest.mark.parametrize(
    "models", [(), ("10de:2330", "1002:74a1"), ("10de:2330", ""), ("8086:0bd5",)]
)
def test_other_or_mixed_accelerators_have_no_published_kind(models: tuple[str, ...]) -> None:
    assert "device" not in published(*models)


def test_published_kind_precedes_the_label() -> None:
    labels = {PRODUCT: "NVIDIA-H100-80GB-HBM3"}
    label, both = nodes({}, **labels)[0], nodes(published("1002:74a1"), **labels)[0]
    assert (label.device, label.machine) == ("NVIDIA-H100-80GB-HBM3", "DGX H100")
    assert (both.device, both.machine) == ("AMD-Instinct-MI300X", "MI300X Platform")


def test_label_of_partitions_is_no_whole_device() -> None:
    """They are of the same model, and a prediction would be of whole devices."""
    label = "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"
    found = nodes(published("10de:2330"), **{PRODUCT: label})[0]
    assert (found.device, found.machine) == (label, "")


@pytest.mark.parametrize("device", ["of-a-later-version", ["NVIDIA-H800"], None])
def test_unknown_published_kind_leaves_that_of_the_label(device: object) -> None:
    found = nodes({"device": device}, **{PRODUCT: "NVIDIA-H800"})
    assert [each.machine for each in found] == ["HGX H800"] * 2


def test_change_of_the_published_kind_wakes_a_cycle() -> None:
    of_kind = health("n0", {"device": "NVIDIA-H800"})
    assert node_healths.is_decisive(None, of_kind)
    assert not node_healths.is_decisive(of_kind, health("n0", {"device": "NVIDIA-H800"}))
