"""Any planted network: its tiers are found from few pairs, whatever errs, and false labels too."""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Sequence
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fixtures.examples import examples
from fixtures.planted_network import (
    PlantedNetwork,
    adjusted_rand_index,
    planted,
    survey,
    truths,
)
from railwright_topology import fabric
from railwright_topology.probing import findings
from railwright_topology.probing.readings import SAMPLES_MAX, Reading
from railwright_topology.probing.survey import FEW_NODES, PAIRS, SLOW_PART, Survey
from railwright_topology.sources import labels, probes

BRANCHINGS = st.sampled_from([(), (2,), (3,), (4,), (2, 2), (2, 3), (3, 2), (2, 2, 2)])
SEEDS = st.integers(0, 2**32)
NOISES = st.sampled_from([0.1, 0.15, 0.2])
EVENNESS = st.sampled_from([0.1, 0.3, 1.0])


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(16, 64), BRANCHINGS, SEEDS, NOISES, EVENNESS)
@example(16, (2, 2, 2), 268_435_455, 0.1, 0.1)
def test_the_tiers_are_found_from_few_pairs(
    nodes: int, branching: Sequence[int], seed: int, noise: float, evenness: float
) -> None:
    few = nodes < FEW_NODES
    noise = min(noise, 0.15) if few else noise
    network = planted(nodes, branching, seed=seed, noise=noise, evenness=evenness)
    network.spread = 0.0 if few else 0.05
    found = findings.of(survey(network, seed=seed))
    assert found.pairs <= max(PAIRS, 0.2 * math.comb(nodes, 2))
    placed = found.tiers[-1] if found.tiers else {}
    named = {sentence.partition(" ")[0] for sentence in found.strange}
    assert {*network.paths} - {*placed} <= named
    if _has_hidden_tier(network):
        return
    assert len(found.tiers) == len(truths(network))
    for truth, tier in zip(truths(network), found.tiers, strict=True):
        assert adjusted_rand_index(truth, tier) >= 0.95


def _has_hidden_tier(network: PlantedNetwork) -> bool:
    """Whether all pairs that meet at some tier have one of a few nodes that are each alone in their
    domain. Measurements do not distinguish these nodes from slow ones."""
    for inner, outer in itertools.pairwise(truths(network)):
        sizes = [collections.Counter(grouping.values()) for grouping in (inner, outer)]
        alone = {node for node in inner if sizes[0][inner[node]] == 1 < sizes[1][outer[node]]}
        others = inner.keys() - alone
        meets = {(inner[node], outer[node]) for node in others}
        is_hidden = len(meets) == len({domain for _, domain in meets})
        if is_hidden and 0 < len(alone) <= max(1, len(inner) // SLOW_PART):
            return True
    return False


@settings(max_examples=examples(15), deadline=None)
@given(st.integers(2, 48), BRANCHINGS, SEEDS)
def test_other_names_give_the_same_grouping(
    nodes: int, branching: Sequence[int], seed: int
) -> None:
    one, other = (planted(nodes, branching, seed=seed) for _ in range(2))
    called = {node: f"host-{at * 7919 % 1009}" for at, node in enumerate(other.paths)}
    other.paths = {called[node]: path for node, path in other.paths.items()}
    tiers = findings.of(survey(one)).tiers
    renamed = findings.of(survey(other)).tiers
    assert [{called[node]: called[domain] for node, domain in tier.items()} for tier in tiers] == [
        *map(dict, renamed)
    ]


@settings(max_examples=examples(25), deadline=None)
@given(
    st.integers(2, 40),
    BRANCHINGS,
    SEEDS,
    st.integers(0, 120),
    st.integers(1, 8),
    st.sampled_from([0.0, 0.1, 0.6, 1.0]),
)
def test_rounds_are_disjoint_and_the_budget_is_kept(
    nodes: int, branching: Sequence[int], seed: int, most: int, at_once: int, failures: float
) -> None:
    network = planted(nodes, branching, seed=seed, failures=failures)
    found = Survey(tuple(network.paths), seed=seed, at_once=at_once, pairs_max=most)
    while pairs := found.next_round():
        assert len(pairs) <= at_once
        assert len({node for pair in pairs for node in pair}) == 2 * len(pairs)
        found.record({pair: network.probe(pair) for pair in pairs})
    assert found.pairs == len(network.probes) <= most
    assert max(network.probes.values(), default=0) <= SAMPLES_MAX + 2
    findings.of(found)


@settings(max_examples=examples(10), deadline=None)
@given(st.integers(2, 64), SEEDS)
def test_survey_without_answers_ends_without_findings(nodes: int, seed: int) -> None:
    names = tuple(f"node-{node}" for node in range(nodes))
    found = Survey(names, seed=seed)
    while pairs := found.next_round():
        found.record(dict.fromkeys(pairs, Reading()))
    reported = findings.of(found)
    assert all(not tier for tier in reported.tiers)
    assert all(figures.pairs == 0 for figures in reported.figures)
    assert len(reported.strange) == nodes


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(32, 64), SEEDS, st.integers(0, 3))
def test_false_labels_are_the_only_conflicts(nodes: int, seed: int, wrong: int) -> None:
    network = planted(nodes, (2, 2), seed=seed, noise=0.1)
    racks = truths(network)[0]
    random = Random(seed)
    stated = dict(racks)
    for node in random.sample(sorted(racks), wrong):
        stated[node] = random.choice(sorted({*racks.values()} - {racks[node]}))
    reported = labels.source_reports(
        {node: {labels.OWN_LEVELS[-1]: rack} for node, rack in stated.items()}
    )
    source_report = probes.parse(probes.written(findings.of(survey(network, seed=seed)), {}))
    found = fabric.of(network.paths, [source_report, *reported]).merged_topology
    (level,) = (tier for tier in found.tiers if tier.name == labels.OWN_LEVELS[-1])
    assert {each.node for each in found.conflicts if each.level == level.name} == {
        node for node, rack in racks.items() if stated[node] != rack
    }
    assert level.domains == {node: rack for node, rack in stated.items()}
