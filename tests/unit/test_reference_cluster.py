"""The cluster that predictions are held against: its plan is what its cables would be seen as."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from architecture import tree
from bench import bench_reference
from fixtures import clos, fat_tree
from railwright_topology import networks
from railwright_topology.sources import plan

PLAN = tree.ROOT / "examples/reference-cluster/plan.yaml"
HDR = 25_000_000_000


def test_its_plan_is_a_fat_tree_of_switches_with_forty_ports() -> None:
    cables = list(fat_tree.cables(ports=40, rails=8))
    network = networks.of(clos.wiring(cables, bytes_per_s=HDR))
    assert (network.hosts, network.rails, len(network.wiring.uplinks)) == (2000, 8, 16_000)
    assert len(network.wiring.switches) == 800 + 800 + 400
    assert network.oversubscription() == {1: 1.0, 2: 1.0}
    assert not network.faults
    declared = plan.parse(PLAN.read_text(encoding="utf-8"))
    assert len(declared.tiers) == len(network.source_report.tiers) == 3
    for stated, seen in zip(declared.tiers, network.source_report.tiers, strict=True):
        assert _together(stated) == _together(seen)


def test_each_figure_is_near_what_was_published_or_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bench_reference.main()
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["published"].keys() == answer["errors"].keys() <= answer.keys()
    off = {name for name, error in answer["errors"].items() if abs(error) > 0.15}
    assert off <= answer["explained"].keys()
    assert all(answer["explained"].values())


def _together(domains: Mapping[str, str]) -> set[frozenset[str]]:
    members: dict[str, set[str]] = {}
    for node, domain in domains.items():
        members.setdefault(domain, set()).add(node)
    return {frozenset(nodes) for nodes in members.values()}
