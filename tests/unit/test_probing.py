"""Probing: planted networks are found again, and what is wrong with them is said."""

from __future__ import annotations

import math
import time

import pytest

from fixtures.planted_network import PlantedNetwork, adjusted_rand_index, planted, survey, truths
from railwright_topology.probing import findings
from railwright_topology.probing.readings import Reading, Readings
from railwright_topology.probing.survey import Survey


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("aabb", "xxyy", 1.0),
        ("aabb", "aaaa", 0.0),
        ("abcd", "abcd", 1.0),
        ("aaaa", "bbbb", 1.0),
        ("aabb", "xyxy", -0.5),
        ("aabbcc", "aabbbc", 4 / 9),
    ],
)
def test_the_adjusted_rand_index_on_known_cases(one: str, other: str, expected: float) -> None:
    found = adjusted_rand_index(*(dict(zip("abcdef", each, strict=False)) for each in (one, other)))
    assert found == pytest.approx(expected)


def test_rand_index_counts_missing_node_as_own_group() -> None:
    assert adjusted_rand_index({"a": 1, "b": 1, "c": 2}, {"a": 1, "b": 1}) == 1.0


@pytest.mark.parametrize(
    ("nodes", "branching", "part"),
    [
        (32, (), 0.10),
        (32, (4,), 0.20),
        (32, (2, 3), 0.20),
        (32, (2, 2, 2), 0.20),
        (64, (8,), 0.20),
        (64, (3, 3), 0.12),
        (256, (4, 4), 0.04),
    ],
)
def test_a_planted_network_is_found_again_from_few_pairs(
    nodes: int, branching: tuple[int, ...], part: float
) -> None:
    network = planted(nodes, branching, seed=nodes)
    found = findings.of(survey(network, seed=1))
    assert found.strange == ()
    assert found.pairs <= part * math.comb(nodes, 2)
    _expect_tiers(network, found)


@pytest.mark.parametrize(
    ("nodes", "branching", "seed", "noise", "evenness"),
    [
        (24, (2,), 0, 0.2, 0.1),
        (8, (2, 3), 0, 0.15, 0.5),
        (32, (2, 2, 2), 699956143, 0.2, 0.3),
        (41, (3,), 3377663838, 0.15, 0.1),
        (30, (3, 2), 698156691, 0.2, 0.6),
        (36, (4,), 3789263618, 0.15, 0.3),
    ],
)
def test_what_was_missed_once_is_found(
    nodes: int, branching: tuple[int, ...], seed: int, noise: float, evenness: float
) -> None:
    network = planted(nodes, branching, seed=seed, noise=noise, evenness=evenness)
    found = findings.of(survey(network, seed=seed))
    _expect_tiers(network, found)


@pytest.mark.parametrize("seed", range(4))
def test_pairs_of_one_tier_that_differ_make_no_tier(seed: int) -> None:
    network = planted(48, (3, 2), seed=seed, noise=0.05)
    network.spread = 0.08
    found = findings.of(survey(network)).tiers
    assert len(found) == 3
    for truth, tier in zip(truths(network), found, strict=True):
        assert adjusted_rand_index(truth, tier) >= 0.9


def test_twice_the_nodes_cost_about_twice_the_pairs() -> None:
    pairs = [
        survey(planted(nodes, (3, 3), seed=5), at_once=nodes // 8).pairs for nodes in (96, 192, 384)
    ]
    assert pairs[1] < 2.5 * pairs[0]
    assert pairs[2] < 2.5 * pairs[1]


def test_the_figures_are_those_of_the_tiers() -> None:
    network = planted(48, (2, 3), seed=3, noise=0.1)
    found = findings.of(survey(network))
    latencies_s = network.latencies_s
    for tier, figures in enumerate(found.figures):
        assert figures.latency_s == pytest.approx(latencies_s[tier], rel=0.2)
        assert figures.bytes_per_s == pytest.approx(network.bandwidths[tier], rel=0.2)
        assert (figures.gap is None) if tier == 0 else (figures.gap or 0) > 3


def test_tiers_by_latency_alone_and_bandwidth_alone_are_found() -> None:
    network = planted(48, (2, 3), seed=4)
    network.latencies_s, network.bandwidths = [5e-5, 1.5e-4, 1.5e-4], [1e9, 1e9, 3e8]
    found = findings.of(survey(network)).tiers
    assert [adjusted_rand_index(*both) for both in zip(truths(network), found, strict=True)] == [
        1
    ] * 3


@pytest.mark.parametrize("asleep", [1.5, 2.0, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_unrelated_latency_hides_no_bandwidth_tier(seed: int, asleep: float) -> None:
    network = planted(36, (2, 3), seed=seed, noise=0.05)
    network.latencies_s, network.asleep = [5e-5] * 3, asleep
    _expect_tiers(network, findings.of(survey(network, seed=seed)))


@pytest.mark.parametrize(
    ("nodes", "branching", "seed"), [(32, (3,), 2), (40, (3, 2), 391), (27, (2, 2, 2), 3203344612)]
)
def test_latency_alone_suffices(nodes: int, branching: tuple[int, ...], seed: int) -> None:
    network = planted(nodes, branching, seed=seed)
    found = Survey(tuple(network.paths))
    while pairs := found.next_round():
        found.record({pair: Reading(network.probe(pair).latency_s) for pair in pairs})
    _expect_tiers(network, findings.of(found))
    assert {figures.bytes_per_s for figures in findings.of(found).figures} == {None}


@pytest.mark.parametrize(("more_s", "most"), [(0.0, 2e7), (3e-3, math.inf), (0.0, 2e8)])
def test_slow_node_is_remarked_and_makes_no_tier(more_s: float, most: float) -> None:
    network = planted(40, (2, 2), seed=6)
    network.slow = {"node-7": (more_s, most)}
    found = findings.of(survey(network, seed=3))
    _expect_tiers(network, found)
    assert [line.split(" reaches")[0] for line in found.strange] == ["node-7"]


def test_node_measured_with_a_slow_one_is_not_slow() -> None:
    network = planted(39, (3, 2), seed=1, noise=0.1)
    rack = [node for node in network.paths if network.tier("node-0", node) == 0]
    network.slow = {rack[0]: (0.0, 2e8), rack[1]: (0.0, 2e8)}
    found = findings.of(survey(network))
    assert {line.split(" reaches")[0] for line in found.strange} == {*rack[:2]}


def test_node_slow_in_both_is_remarked_and_left_out() -> None:
    network = planted(48, (2, 2), seed=11)
    network.slow = {"node-5": (3e-3, 2e7)}
    found = findings.of(survey(network))
    assert len(found.tiers) == 3
    for truth, tier in zip(truths(network), found.tiers, strict=True):
        reported = {node: domain for node, domain in truth.items() if node != "node-5"}
        assert "node-5" not in tier
        assert adjusted_rand_index(reported, tier) >= 0.95
    assert {line.split(" reaches")[0] for line in found.strange} == {"node-5"}


def test_unanswering_node_is_left_out_and_remarked() -> None:
    network = planted(32, (3,), seed=9)
    network.dead = frozenset({"node-3"})
    found = findings.of(survey(network))
    assert "node-3" not in found.tiers[0]
    assert found.strange == ("node-3: no probe of it succeeded",)
    truth = {node: rack for node, rack in truths(network)[0].items() if node != "node-3"}
    assert adjusted_rand_index(truth, found.tiers[0]) >= 0.95


@pytest.mark.parametrize("nodes", [0, 1, 2])
def test_so_few_nodes_are_in_one_domain_at_most(nodes: int) -> None:
    found = findings.of(survey(planted(nodes, (), seed=0)))
    assert len({*found.tiers[0].values()} if nodes else ()) == min(nodes, 1)


def test_insufficient_probe_budget_holds_and_is_remarked() -> None:
    network = planted(64, (3, 3), seed=1)
    found = findings.of(survey(network, pairs_max=80))
    assert found.pairs == 80
    assert any("could not be placed" in line for line in found.strange)


def test_more_looks_make_no_pair_nearer_but_for_hiccups() -> None:
    readings = Readings(2)
    for latency_s in (3e-4, 1e-4, 9e-5, 2e-4, 8e-4, 1.1e-4):
        readings.add((0, 1), Reading(latency_s))
    assert math.exp(readings.farness()[0, 0]) == pytest.approx(1e-4)


def test_2048_nodes_are_found_within_some_seconds() -> None:
    network = planted(2048, (4, 4, 4), seed=3)
    started_s = time.process_time()
    found = findings.of(survey(network, at_once=256))
    assert time.process_time() - started_s < 30
    assert found.pairs <= 8 * 2048
    _expect_tiers(network, found)


def _expect_tiers(network: PlantedNetwork, found: findings.Findings) -> None:
    assert len(found.tiers) == len(truths(network)) == len(found.figures)
    for truth, tier in zip(truths(network), found.tiers, strict=True):
        assert adjusted_rand_index(truth, tier) >= 0.95
