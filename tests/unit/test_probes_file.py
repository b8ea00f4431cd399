"""What a survey found, as a file: written, read again, refused, and held against other sources."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fixtures.planted_network import planted, survey, truths
from fixtures.remarks import remarks
from railwright_topology import fabric
from railwright_topology.fabric import Fabric
from railwright_topology.interconnect import UNKNOWN
from railwright_topology.probing import findings
from railwright_topology.source_reports import Provenance, SourceReport
from railwright_topology.sources import formats, labels, probes
from railwright_topology.sources.formats import File

BLOCK, RACK = labels.OWN_LEVELS
RACKS = {"near a": ["a", "b"], "near c": ["c", "d"], "near e": ["e", "f"]}
BLOCKS = {"near a": ["a", "b", "c", "d"], "near e": ["e", "f"]}


def written(*tiers: dict[str, Any], **more: Any) -> str:
    return json.dumps({"version": 1, "tiers": [{"domains": tier} for tier in tiers], **more})


def leaving(rooms: dict[str, Any]) -> str:
    return json.dumps(
        {"version": 1, "tiers": [{"domains": {"near a": ["a"]}, "leaving": rooms}]},
    )


def held(labelled: dict[str, str]) -> Fabric:
    """The six nodes by their probes and by labels of racks."""
    reported = labels.source_reports({node: {RACK: rack} for node, rack in labelled.items()})
    return fabric.of("abcdef", [probes.parse(written(RACKS, BLOCKS)), *reported])


def test_survey_findings_read_back_unchanged() -> None:
    network = planted(48, (2, 3), seed=3)
    network.dead = frozenset({"node-5"})
    found = findings.of(survey(network))
    text = probes.written(found, {})
    (source_report,) = formats.read(File("", "probes.json", text))
    assert isinstance(source_report, SourceReport)
    assert source_report.provenance == Provenance.MEASURED
    assert source_report.strange == found.strange == ("node-5: no probe of it succeeded",)
    assert source_report.tiers == tuple(
        {node: f"near {first}" for node, first in tier.items()} for tier in found.tiers
    )
    reported = json.loads(text)
    assert reported["pairs"] == found.pairs
    assert [tier["pairs"] for tier in reported["tiers"]] == [each.pairs for each in found.figures]


def test_when_each_node_was_measured_is_read_again() -> None:
    network = planted(12, (2,), seed=3)
    found = findings.of(survey(network))
    times = {"node-1": 1_800_000_000, "node-2": 1_800_000_060, "node-3": 1_800_000_000}
    text = probes.written(found, times)
    assert json.loads(text)["measured"] == {
        "2027-01-15T08:00:00Z": ["node-1", "node-3"],
        "2027-01-15T08:01:00Z": ["node-2"],
    }
    assert probes.parse(text).times == times


def test_measured_uplinks_are_read_again_without_cables() -> None:
    text = json.loads(written(RACKS, BLOCKS))
    text["tiers"][0]["leaving"] = {"near a": 0.5, "near c": 1.5}
    source_report = probes.parse(json.dumps(text))
    assert source_report.leaving == ({"near a": 0.5, "near c": 1.5}, {})
    blocks, racks = fabric.of("abcdef", [source_report]).links
    assert (blocks.leaving, blocks.oversubscription) == ({}, 2.0)
    assert (racks.leaving, racks.oversubscription) == ({"near a": 0.5, "near c": 1.5}, 2.0)


def test_uplink_with_almost_no_bandwidth_can_be_read_again() -> None:
    found = findings.of(survey(planted(12, (3,), seed=4)))
    first = next(iter(found.tiers[0].values()))
    found = replace(found, leaving=({first: 0.0002}, *({} for _ in found.tiers[1:])))
    assert probes.parse(probes.written(found, {})).leaving[0] == {f"near {first}": 0.001}


def test_survey_without_findings_reports_no_nodes() -> None:
    network = planted(4, (), seed=0)
    network.dead = frozenset(network.paths)
    source_report = probes.parse(probes.written(findings.of(survey(network)), {}))
    assert source_report.nodes == frozenset()
    assert len(source_report.strange) == 4


def test_probes_set_tiers_without_other_sources() -> None:
    network = planted(48, (2, 3), seed=3)
    source_report = probes.parse(probes.written(findings.of(survey(network)), {}))
    found = fabric.of(network.paths, [source_report])
    assert found.levels == ("probes tier 3", "probes tier 2", "probes tier 1")
    for level, truth in enumerate(reversed(truths(network))):
        pairs = {(truth[node], place[level]) for node, place in found.places.items()}
        assert len(pairs) == len({*truth.values()})


def test_labels_confirmed_by_probes_keep_their_names() -> None:
    found = held({"a": "r1", "b": "r1", "c": "r2", "d": "r2", "e": "r3", "f": "r3"})
    assert found.levels == ("probes tier 2", RACK)
    assert [found.places[node][-1] for node in "abcdef"] == ["r1", "r1", "r2", "r2", "r3", "r3"]
    assert found.merged_topology.conflicts == ()


def test_false_label_is_a_conflict_with_both_sides() -> None:
    found = held({"a": "r1", "b": "r1", "c": "r2", "d": "r3", "e": "r3", "f": "r3"})
    assert found.places["d"][-1] == "r3"
    assert [
        (each.node, each.source, each.reported, each.theirs, each.held, each.by)
        for each in found.merged_topology.conflicts
        if each.level == RACK
    ] == [("d", "probes", "near c", "r2", "r3", "railwright labels")]


def test_unlabelled_node_gets_domain_from_its_probes() -> None:
    found = held({"a": "r1", "b": "r1", "c": "r2", "e": "r3", "f": "r3"})
    assert found.places["d"][-1] == "r2"
    assert found.merged_topology.tiers[0].filled == {"d": "probes"}
    assert found.merged_topology.conflicts == ()


def test_a_node_that_was_not_placed_is_unknown() -> None:
    text = written({"near a": ["a", "b"]}, {"near a": ["a", "b", "c"]})
    assert fabric.of("abc", [probes.parse(text)]).places["c"] == ("near a", UNKNOWN)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("[]", "a mapping of a survey stands here"),
        (written(measured={"2026-1-1": []}), "'2026-1-1' is no time such as 2026-11-22T20:00:00Z"),
        (written(measured={"2026-01-01T00:00:00Z": "a"}), "a list of nodes stands here"),
        ("{}", "version is not there"),
        (json.dumps({"version": 2, "tiers": []}), "version '2' is read as 1"),
        (written(RACKS, figures=1), "'figures' is no field of a survey"),
        (written(*[RACKS] * 7), "is past 6 tiers"),
        (json.dumps({"version": 1, "tiers": [{"pairs": 3}]}), "domains is not there"),
        (written({"near a": ["a"], "near b": ["a"]}), "node 'a' is in both"),
        (written({"near a": "a"}), "a list of nodes stands here"),
        (leaving({"near b": 1}), "'near b' is no domain of this tier"),
        (leaving({"near a": 0}), "'0': expected how many nodes can leave at once"),
        (leaving({"near a": "nan"}), "'nan': expected how many nodes"),
        (written({"near a": ["a", "c"]}, {"x": ["a"], "y": ["c"]}), "lies in 'x' and 'y'"),
    ],
)
def test_survey_omission_has_its_rule(text: str, rule: str) -> None:
    assert rule in remarks(lambda: probes.parse(text))
