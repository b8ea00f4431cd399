"""Accounts of one cluster by several sources: matched by what they put together, conflicts told."""

from __future__ import annotations

import random

import pytest

from railwright_topology import topology_merge
from railwright_topology.source_reports import SCALE_UP, Provenance, SourceReport

NODES = tuple(f"n{number:03d}" for number in range(64))


def grouped(prefix: str, size: int) -> dict[str, str]:
    return {node: f"{prefix}{at // size}" for at, node in enumerate(NODES)}


SEEN = SourceReport(
    "cables", Provenance.SEEN, (grouped("tor", 4), grouped("leaf", 16), grouped("spine", 32))
)
TOLD = SourceReport("labels", Provenance.IMPORTED, (grouped("rack", 4), grouped("block", 32)))


def moved(source_report: SourceReport, tier: int, **nodes: str) -> SourceReport:
    tiers = [dict(each) for each in source_report.tiers]
    tiers[tier] |= nodes
    return SourceReport(source_report.source, source_report.provenance, tuple(tiers))


def test_tiers_match_by_members_not_names() -> None:
    assert topology_merge.matched(SEEN.tiers, TOLD.tiers) == {0: 0, 1: 2}
    assert topology_merge.matched(TOLD.tiers, SEEN.tiers) == {0: 0, 2: 1}


def test_agreeing_sources_have_no_conflict_and_best_counts() -> None:
    found = topology_merge.of([TOLD, SEEN])
    assert found == topology_merge.of([SEEN, TOLD])
    assert [tier.domains for tier in found.tiers] == list(SEEN.tiers)
    assert [tier.source for tier in found.tiers] == ["cables"] * 3
    assert (found.conflicts, found.unmatched) == ((), ())


def test_node_placed_elsewhere_is_a_conflict_with_both_sides() -> None:
    found = topology_merge.of([SEEN, moved(TOLD, 0, n005="rack9")])
    (conflict,) = found.conflicts
    assert conflict == topology_merge.LocationConflict(
        "n005", "cables tier 1", "labels", "rack9", "tor9", "tor1", "cables"
    )
    assert found.tiers[0].domains["n005"] == "tor1"


def test_two_nodes_that_changed_places_are_two_conflicts() -> None:
    found = topology_merge.of([SEEN, moved(TOLD, 0, n005="rack9", n036="rack1")])
    assert {conflict.node for conflict in found.conflicts} == {"n005", "n036"}


def test_all_that_is_planted_is_found_and_nothing_else() -> None:
    rng = random.Random(7)
    for _ in range(50):
        planted = {
            node: f"rack{(int(node[1:]) // 4 + rng.randrange(1, 16)) % 16}"
            for node in rng.sample(NODES[::4], 5)
        }
        found = topology_merge.of([SEEN, moved(TOLD, 0, **planted)])
        assert {conflict.node for conflict in found.conflicts} == {*planted}


def test_node_of_less_trusted_source_alone_is_filled_in() -> None:
    tiers = tuple({n: d for n, d in tier.items() if n != "n005"} for tier in SEEN.tiers)
    found = topology_merge.of([SourceReport("cables", Provenance.SEEN, tiers), TOLD])
    assert found.tiers[0].domains["n005"] == "tor1"
    assert found.tiers[0].filled == {"n005": "labels"}
    # Its rack stands under a leaf, and so does it.
    assert found.tiers[1].domains["n005"] == "leaf0"
    assert found.conflicts == ()


def test_tier_of_less_trusted_source_finds_its_place() -> None:
    near = SourceReport("lldp", Provenance.SEEN, (grouped("tor", 4),))
    found = topology_merge.of(
        [near, TOLD, SourceReport("plan", Provenance.DECLARED, (grouped("row", 16),))]
    )
    assert [tier.source for tier in found.tiers] == ["lldp", "plan", "labels"]
    assert found.tiers[2].domains == grouped("block", 32)
    assert (found.conflicts, found.unmatched) == ((), ())


def test_racks_unrelated_to_the_network_are_no_conflict() -> None:
    rng = random.Random(3)
    nodes = list(NODES)
    rng.shuffle(nodes)
    racks = {node: f"rack{at // 4}" for at, node in enumerate(nodes)}
    found = topology_merge.of([SEEN, SourceReport("labels", Provenance.IMPORTED, (racks,))])
    assert found.conflicts == ()
    assert found.unmatched == (("labels", "labels tier 1"),)


def test_a_plan_of_one_half_does_not_hide_the_other_half() -> None:
    half = tuple({n: d for n, d in tier.items() if n < "n032"} for tier in TOLD.tiers)
    found = topology_merge.of(
        [SourceReport("plan", Provenance.DECLARED, half, names=("row", "hall")), TOLD]
    )
    assert [tier.name for tier in found.tiers] == ["row", "hall"]
    assert [tier.domains for tier in found.tiers] == list(TOLD.tiers)
    assert {*found.tiers[0].filled} == {*NODES[32:]}
    assert (found.conflicts, found.unmatched) == ((), ())


def test_two_halves_of_a_site_from_two_sources_are_one_view() -> None:
    def half(source_report: SourceReport, nodes: tuple[str, ...]) -> SourceReport:
        tiers = tuple({node: tier[node] for node in nodes} for tier in source_report.tiers)
        return SourceReport(source_report.source, source_report.provenance, tiers)

    found = topology_merge.of([half(TOLD, NODES[:32]), half(SEEN, NODES[32:])])
    assert [len(tier.domains) for tier in found.tiers] == [64, 64, 32]
    assert found.tiers[0].domains["n000"] == "rack0"
    assert found.tiers[0].domains["n032"] == "tor8"
    assert (found.conflicts, found.unmatched) == ((), ())


def test_unknown_domain_with_a_taken_name_is_kept_apart() -> None:
    plan = SourceReport("plan", Provenance.DECLARED, ({"a": "r1", "b": "r1"},))
    reported = SourceReport(
        "labels", Provenance.IMPORTED, ({"a": "r7", "b": "r7", "c": "r1", "d": "r1"},)
    )
    (tier,) = topology_merge.of([plan, reported]).tiers
    assert tier.domains == {"a": "r1", "b": "r1", "c": "labels r1", "d": "labels r1"}


def test_scale_up_domains_alone_are_the_tier_with_conflicts() -> None:
    one = SourceReport("clique labels", Provenance.IMPORTED, scale_up_domains=grouped("nvl", 8))
    other = SourceReport(
        "plan", Provenance.DECLARED, scale_up_domains=grouped("domain-", 8) | {"n009": "domain-0"}
    )
    found = topology_merge.of([one, other])
    assert found.tiers == (found.scale_up_domains,)
    assert found.scale_up_domains is not None
    assert (found.scale_up_domains.name, found.scale_up_domains.source) == (SCALE_UP, "plan")
    (conflict,) = found.conflicts
    assert (conflict.node, conflict.level, conflict.reported) == ("n009", SCALE_UP, "nvl1")


@pytest.mark.parametrize(
    ("size", "place"), [(2, 0), (4, 0), (8, 1), (16, 1), (32, 2), (64, 3)], ids="{}".format
)
def test_scale_up_domains_are_a_tier_as_near_as_they_can_be(size: int, place: int) -> None:
    """In racks of 4 or equal to them, in leaves of 16 or spines of 32, and around all."""
    scale_up = SourceReport("nvl", Provenance.IMPORTED, scale_up_domains=grouped("nvl", size))
    found = topology_merge.of([SEEN, scale_up])
    assert [tier.name for tier in found.tiers].index(SCALE_UP) == place
    assert found.tiers[place] == found.scale_up_domains
    assert (found.conflicts, found.unmatched) == ((), ())
    assert lying(found)


def test_scale_up_domain_across_racks_gives_way_if_few_nodes() -> None:
    stray = SourceReport(
        "nvl", Provenance.IMPORTED, scale_up_domains=grouped("nvl", 4) | {"n003": "nvl5"}
    )
    found = topology_merge.of([SEEN, stray])
    assert found.tiers[0].name == SCALE_UP
    assert "n003" not in found.tiers[0].domains
    (conflict,) = found.conflicts
    assert (
        topology_merge.describe(conflict) == "nvl has it in nvl5; it is in none of them, by cables"
    )
    assert lying(found)


def test_scale_up_domains_across_racks_are_unmatched() -> None:
    crossing = {node: f"nvl{at // 6}" for at, node in enumerate(NODES)}
    found = topology_merge.of(
        [SEEN, SourceReport("nvl", Provenance.IMPORTED, scale_up_domains=crossing)]
    )
    assert SCALE_UP not in [tier.name for tier in found.tiers]
    assert found.scale_up_domains is not None
    assert found.scale_up_domains.domains == crossing
    assert found.unmatched == (("nvl", SCALE_UP),)
    assert found.conflicts == ()


def test_no_sources_tier_is_called_what_scale_up_domains_are() -> None:
    plan = SourceReport("plan", Provenance.DECLARED, (grouped("r", 8),), names=(SCALE_UP,))
    reported = topology_merge.of(
        [plan, SourceReport("nvl", Provenance.IMPORTED, scale_up_domains=grouped("nvl", 4))]
    )
    assert [tier.name for tier in reported.tiers] == [SCALE_UP, f"{SCALE_UP} (plan)"]


def test_half_of_a_rack_is_not_the_rack() -> None:
    seen = SourceReport("cables", Provenance.SEEN, (grouped("tor", 8),))
    split = grouped("rack", 8) | {node: "rack1b" for node in NODES[12:16]}
    found = topology_merge.of([seen, SourceReport("labels", Provenance.IMPORTED, (split,))])
    assert [conflict.node for conflict in found.conflicts] == list(NODES[12:16])
    assert {(each.reported, each.theirs, each.held) for each in found.conflicts} == {
        ("rack1b", "", "tor1")
    }


def test_two_racks_reported_as_one_blame_the_smaller_part() -> None:
    seen = SourceReport("cables", Provenance.SEEN, (grouped("tor", 8),))
    merged = grouped("rack", 8) | {node: "rack1" for node in NODES[16:24]}
    found = topology_merge.of([seen, SourceReport("labels", Provenance.IMPORTED, (merged,))])
    assert [conflict.node for conflict in found.conflicts] == list(NODES[16:24])


def lying(found: topology_merge.MergedTopology) -> bool:
    """Whether every domain lies in one of the next tier."""
    return all(
        len({outer.domains.get(node) for node in inner.domains if inner.domains[node] == one}) == 1
        for inner, outer in zip(found.tiers, found.tiers[1:], strict=False)
        for one in inner.domains.values()
    )


def test_block_that_cuts_a_rack_gives_way_and_is_reported() -> None:
    racks = SourceReport("cables", Provenance.SEEN, (grouped("tor", 8),))
    blocks = grouped("block", 32) | {"n003": "block1"}
    found = topology_merge.of(
        [racks, SourceReport("labels", Provenance.IMPORTED, (blocks,), names=("block",))]
    )
    (conflict,) = found.conflicts
    assert topology_merge.describe(conflict) == "labels has it in block1; block0 counts, by cables"
    assert found.tiers[1].domains["n003"] == "block0"
    assert lying(found)


def test_rack_across_blocks_gives_way_to_more_trusted_blocks() -> None:
    blocks = SourceReport("cables", Provenance.SEEN, (grouped("spine", 32),))
    racks = grouped("rack", 8) | {"n003": "rack5"}
    found = topology_merge.of(
        [blocks, SourceReport("labels", Provenance.IMPORTED, (racks,), names=("rack",))]
    )
    (conflict,) = found.conflicts
    assert (
        topology_merge.describe(conflict)
        == "labels has it in rack5; it is in none of them, by cables"
    )
    assert "n003" not in found.tiers[0].domains
    assert lying(found)


def test_a_node_of_a_rack_without_a_block_is_in_that_of_its_rack() -> None:
    blocks = {node: block for node, block in grouped("block", 32).items() if node not in NODES[::8]}
    labels = SourceReport("labels", Provenance.IMPORTED, (blocks,), names=("block",))
    found = topology_merge.of(
        [SourceReport("cables", Provenance.SEEN, (grouped("tor", 8),)), labels]
    )
    assert found.tiers[1].domains == grouped("block", 32)
    assert found.conflicts == ()
    assert lying(found)


def test_most_trusted_nodes_are_not_outvoted_by_filled_in_ones() -> None:
    rack = dict.fromkeys(NODES[30:40], "r3")
    seen = {node: "r3" for node in NODES[30:33]} | dict.fromkeys(NODES[:8], "r0")
    halls = {node: "B" for node in NODES[30:33]} | dict.fromkeys(NODES[:8], "A")
    labels = SourceReport(
        "labels",
        Provenance.IMPORTED,
        (rack | dict.fromkeys(NODES[:8], "r0"), dict.fromkeys((*NODES[33:40], *NODES[:8]), "A")),
    )
    found = topology_merge.of([SourceReport("ibnet", Provenance.SEEN, (seen, halls)), labels])
    assert {found.tiers[1].domains[node] for node in NODES[30:40]} == {"B"}
    assert {conflict.node for conflict in found.conflicts} == {*NODES[33:40]}
    assert {(each.source, each.held) for each in found.conflicts} == {("labels", "B")}


def test_a_label_that_filled_a_seen_tier_is_still_a_label() -> None:
    seen = SourceReport("ibnet", Provenance.SEEN, ({node: "r0" for node in NODES[:9]},))
    plan = SourceReport(
        "plan", Provenance.DECLARED, ({}, dict.fromkeys(NODES[:9], "A") | {NODES[9]: "B"})
    )
    plan = SourceReport("plan", Provenance.DECLARED, plan.tiers[1:], names=("hall",))
    labels = SourceReport("labels", Provenance.IMPORTED, (dict.fromkeys(NODES[:10], "rack"),))
    found = topology_merge.of([seen, plan, labels])
    (conflict,) = found.conflicts
    assert (conflict.source, conflict.reported, conflict.held) == ("labels", "rack", "")
    assert found.tiers[1].domains[NODES[9]] == "B"


def test_a_source_of_other_machines_makes_no_tiers() -> None:
    strangers = SourceReport("lldp", Provenance.SEEN, ({}, {}))
    assert topology_merge.of([strangers, TOLD]).tiers == topology_merge.of([TOLD]).tiers


def test_few_common_nodes_match_nearest_tiers() -> None:
    far = {f"m{at}": at for at in range(60)}
    reported = (
        {
            **{node: f"rack{at // 4}" for node, at in far.items()},
            "n000": "rack99",
            "n001": "rack99",
        },
        {**{node: f"block{at // 20}" for node, at in far.items()}, "n000": "b9", "n001": "b9"},
    )
    found = topology_merge.of([SEEN, SourceReport("labels", Provenance.IMPORTED, reported)])
    assert found.tiers[0].domains["m0"] == "rack0"
    assert found.tiers[1].domains["m0"] == "block0"
    assert len(found.tiers) == 3


def test_nodes_of_one_source_stay_together_despite_its_errors() -> None:
    reported = grouped("rack", 4) | {"n004": "rack0"} | dict.fromkeys(("x1", "x2"), "odd")
    reported |= {"n008": "odd", "n012": "odd"}
    found = topology_merge.of([SEEN, SourceReport("labels", Provenance.IMPORTED, (reported,))])
    near = found.tiers[0].domains
    assert near["x1"] == near["x2"]
    assert {conflict.node for conflict in found.conflicts} == {"n004", "n008", "n012"}


def test_two_tiers_of_one_name_are_distinct() -> None:
    one = SourceReport("a/plan", Provenance.DECLARED, (grouped("r", 4),), names=("rack",))
    other = SourceReport("b/plan", Provenance.DECLARED, (grouped("h", 16),), names=("rack",))
    assert [tier.name for tier in topology_merge.of([one, other]).tiers] == [
        "rack",
        "rack (b/plan)",
    ]


def test_of_two_networks_the_larger_one_counts() -> None:
    storage = SourceReport("a", Provenance.SEEN, (grouped("s", 16),), capacity=1)
    compute = SourceReport("z", Provenance.SEEN, (grouped("c", 4), grouped("d", 8)), capacity=8)
    assert [tier.source for tier in topology_merge.of([storage, compute]).tiers] == ["z", "z", "a"]


def test_more_tiers_than_anybody_needs_are_left_unmatched() -> None:
    tiers = tuple(grouped(f"t{size}-", size) for size in (1, 2, 4, 8, 16, 32, 64))
    more = tuple(grouped(f"u{size}-", size) for size in (3, 6, 12, 24))
    more += (dict.fromkeys(NODES, "all"), dict.fromkeys(NODES, "everything"))
    found = topology_merge.of(
        [
            SourceReport("a", Provenance.DECLARED, tiers),
            SourceReport("b", Provenance.IMPORTED, more),
        ]
    )
    assert [tier.source for tier in found.tiers] == ["a"] * 7 + ["b"]
    assert {name for _, name in found.unmatched} >= {"b tier 1", "b tier 2", "b tier 3"}


@pytest.mark.parametrize(
    ("one", "other", "likeness"),
    [
        ({"a": "x", "b": "x", "c": "y"}, {"a": "1", "b": "1", "c": "2"}, 1.0),
        # One node of each three has changed sides.
        (
            dict(zip("abcdef", "xxxyyy", strict=True)),
            dict(zip("abcdef", "112122", strict=True)),
            4 / 6,
        ),
        # Halves are not the whole, though most of the whole is in one of them.
        (dict(zip("abcde", "xxxyy", strict=True)), dict.fromkeys("abcde", "1"), 0.0),
        ({"a": "x"}, {"b": "x"}, 0.0),
        ({"a": "x", "b": "x"}, {"a": "y", "b": "y"}, 1.0),
    ],
)
def test_the_likeness_of_known_groupings(
    one: dict[str, str], other: dict[str, str], likeness: float
) -> None:
    assert topology_merge.similarity(one, other) == pytest.approx(likeness)
    assert topology_merge.similarity(other, one) == pytest.approx(likeness)


def test_source_order_of_tiers_holds_if_few_nodes_differ() -> None:
    racks, blocks = {"a": "b1/r1", "b": "b2/r1"}, {"a": "b1", "b": "b2", "c": "b2"}
    found = topology_merge.of(
        [SourceReport("labels", Provenance.IMPORTED, (racks, blocks), names=("rack", "block"))]
    )
    assert [tier.name for tier in found.tiers] == ["rack", "block"]


def test_no_account_is_no_tier() -> None:
    assert topology_merge.of([]) == topology_merge.MergedTopology((), None, (), ())
