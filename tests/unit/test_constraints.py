"""Topology constraints of jobs, in small snapshots."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fixtures import cluster, job, node, outcome, world
from railwright_scheduler.model.snapshot import TopologyConstraints
from railwright_scheduler.model.workload import (
    Framework,
    Parallelism,
    Recipe,
    Transformer,
    Workload,
)
from railwright_scheduler.policy.decide import decide
from railwright_topology.links import Links
from railwright_topology.source_reports import SCALE_UP

RACKS = """
    node  block  rack  gpu
    n0    b0     r0    8
    n1    b0     r0    8
    n2    b0     r1    8
    n3    b0     r1    8
    n4    b0     r1    8
    n5    b1     r2    8
    n6    b1     r2    8
    n7    b1     r3    8
    n8    b1     r3    8
    n9    b1     r3    8
"""


def placed(asked: str, nodes: int, *, racks: str = RACKS) -> str:
    table = f"{racks}\n job nodes gpu constraints\n a {nodes} 8 {asked}"
    return outcome(decide(world(table)))


@pytest.mark.parametrize(
    ("asked", "nodes", "where"),
    [
        ("required=rack", 3, "n2 n3 n4"),
        ("required=nearest", 3, "n2 n3 n4"),
        ("required=block", 4, "n0 n2 n3 n4"),
        ("required=second", 5, "n0 n1 n2 n3 n4"),
        ("preferred=rack", 3, "n2 n3 n4"),
        ("preferred=rack", 4, "n0 n2 n3 n4"),
        ("preferred=block", 6, "n2 n3 n4 n7 n8 n9"),
        ("segment=2@rack", 4, "n0 n1 n2 n3"),
        ("segment=3@rack", 6, "n2 n3 n4 n7 n8 n9"),
        ("segment=4@second", 8, "n0 n2 n3 n4 n5 n7 n8 n9"),
        ("segment=2@rack+4@block", 8, "n0 n1 n2 n3 n5 n6 n7 n8"),
        ("spread=1@rack", 3, "n0 n2 n5"),
        ("spread=1@rack+1@block", 2, "n0 n5"),
        ("spread=1@rack,required=block", 2, "n0 n2"),
        ("spread=1@second", 2, "n0 n5"),
        ("spread=2@rack,segment=4@block", 8, "n0 n1 n2 n3 n5 n6 n7 n8"),
    ],
)
def test_gang_meets_its_constraints(asked: str, nodes: int, where: str) -> None:
    assert placed(asked, nodes).partition(", ")[0] == f"a starts on {where}"


@pytest.mark.parametrize(
    ("asked", "nodes", "why"),
    [
        (
            "required=rack",
            4,
            "needs 4 nodes with 8 nvidia.com/gpu each, all in one domain of rack; at most 3 such "
            "nodes together: replicas <= 3",
        ),
        (
            "spread=1@nearest",
            5,
            "needs 5 nodes with 8 nvidia.com/gpu each, at most 1 in any domain of nearest; at most "
            "4 such nodes together: replicas <= 4",
        ),
        (
            "segment=3@rack",
            9,
            "needs 9 nodes with 8 nvidia.com/gpu each, each 3 in one domain of rack; at most "
            "6 such nodes together: replicas <= 6",
        ),
    ],
)
def test_impossible_constraint_states_the_largest_possible_gang(
    asked: str, nodes: int, why: str
) -> None:
    assert placed(asked, nodes) == f"a waits, NeverFits: {why}"


def test_unmet_constraint_states_the_nodes_that_meet_it() -> None:
    racks = RACKS.replace("n2    b0     r1    8", "n2    b0     r1    0/8")
    assert placed("required=rack", 3, racks=racks).endswith("starts on n7 n8 n9, spans (1, 1)")
    busy = racks.replace("n9    b1     r3    8", "n9    b1     r3    0/8")
    assert placed("required=rack", 3, racks=busy) == (
        "a waits, NotEnoughNodes: needs 3 nodes with 8 nvidia.com/gpu each, all in one domain of "
        "rack; at most 2 available together, 3 if all were free; best rack b0/r0 has 2; 2 busy"
    )


def test_missing_tier_is_reported_with_existing_tiers() -> None:
    assert placed("required=pod", 2) == (
        "a waits, TierNotFound: no tier 'pod': the network's levels are block, rack, the coarsest "
        "first; nearest, second, third are the finest that nodes share and those around it"
    )
    assert placed("spread=1@third", 2).startswith("a waits, TierNotFound: no tier 'third'")
    flat = "node gpu\n n0 8\n n1 8"
    assert placed("required=nearest", 2, racks=flat) == (
        "a waits, TierNotFound: no tier 'nearest': of this network no levels are known"
    )


def test_where_every_node_is_a_domain_of_its_own() -> None:
    hosts = "node rack host gpu\n n0 r0 h0 8\n n1 r0 h1 8\n n2 r1 h2 8"
    assert placed("required=nearest", 2, racks=hosts).startswith("a starts on n0 n1,")
    assert placed("spread=1@host", 3, racks=hosts).startswith("a starts on n0 n1 n2,")
    assert placed("required=host", 1, racks=hosts).startswith("a starts on n2,")
    assert "at most 1 such nodes together" in placed("required=host", 2, racks=hosts)
    assert "at most 0 such nodes together" in placed("segment=2@host", 2, racks=hosts)


def test_job_behind_a_reservation_is_reported_as_such() -> None:
    table = f"{RACKS}\n job nodes gpu constraints\n a 11 8 - \n b 5 8 required=block"
    found = outcome(decide(world(table.replace("n0    b0     r0    8", "n0  b0  r0  0/8"))))
    assert "a waits, NeverFits" in found
    table = f"{RACKS}\n job nodes gpu constraints\n a 10 8 - \n b 5 8 required=block"
    found = outcome(decide(world(table.replace("n0    b0     r0    8", "n0  b0  r0  0/8"))))
    assert "b waits, BlockedByReservation: needs 5 nodes and 5 are available" in found


SCALE_UP_DOMAINS = """
    node  block  rack  scale-up-domain  gpu
    n0    b0     r0    i0      8
    n1    b0     r0    i0      8
    n2    b0     r0    i1      8
    n3    b0     r0    i1      8
    n4    b0     r0    i1      8
    n5    b0     r1    -       8
    n6    b0     r1    -       8
    n7    b0     r1    -       8
    n8    b0     r1    -       8
    n9    b1     r2    i2      8
    nA    b1     r2    i2      8
    nB    b1     r2    i3      8
    nC    b1     r2    i3      8
"""
PODS = """
    node  scale-up-domain  rack  gpu
    n0    p0      r0    8
    n1    p0      r0    8
    n2    p0      r1    8
    n3    p0      r1    8
    n4    p1      r2    8
    n5    p1      r2    8
    n6    p1      r3    8
    n7    -       r4    8
    n8    -       r4    8
    n9    -       r5    8
    nA    -       r5    8
    nB    -       r6    8
"""


@pytest.mark.parametrize(
    ("asked", "nodes", "where"),
    [
        ("required=scale-up-domain", 3, "n2 n3 n4"),
        ("required=nearest", 4, "n5 n6 n7 n8"),
        ("required=nearest,segment=2@scale-up-domain", 4, "n9 nA nB nC"),
        ("required=second", 7, "n2 n3 n4 n5 n6 n7 n8"),
        ("preferred=scale-up-domain", 3, "n2 n3 n4"),
        ("preferred=scale-up-domain", 4, "n5 n6 n7 n8"),
        ("segment=2@scale-up-domain", 8, "n0 n1 n2 n3 n9 nA nB nC"),
        ("spread=1@scale-up-domain", 4, "n0 n2 n9 nB"),
        ("spread=1@scale-up-domain,required=rack", 2, "n9 nB"),
        ("-", 3, "n2 n3 n4"),
    ],
)
def test_scale_up_domains_inside_racks_are_a_tier(asked: str, nodes: int, where: str) -> None:
    assert placed(asked, nodes, racks=SCALE_UP_DOMAINS).partition(", ")[0] == f"a starts on {where}"


@pytest.mark.parametrize(
    ("asked", "nodes", "where"),
    [
        ("required=scale-up-domain", 3, "n4 n5 n6"),
        ("required=scale-up-domain", 4, "n0 n1 n2 n3"),
        ("required=nearest", 2, "n7 n8"),
        ("preferred=scale-up-domain", 5, "n7 n8 n9 nA nB"),
        ("preferred=scale-up-domain", 4, "n0 n1 n2 n3"),
        ("segment=3@scale-up-domain", 6, "n0 n2 n3 n4 n5 n6"),
        ("spread=2@scale-up-domain", 4, "n0 n1 n4 n5"),
    ],
)
def test_scale_up_domains_around_racks_are_a_tier(asked: str, nodes: int, where: str) -> None:
    assert placed(asked, nodes, racks=PODS).partition(", ")[0] == f"a starts on {where}"


def test_nodes_without_scale_up_domain_do_not_count_for_one() -> None:
    assert placed("required=scale-up-domain", 4, racks=SCALE_UP_DOMAINS).endswith(
        "all in one domain of scale-up-domain; at most 3 such nodes together: replicas <= 3"
    )
    assert "at most 8 such nodes together" in placed(
        "segment=2@scale-up-domain", 10, racks=SCALE_UP_DOMAINS
    )
    assert "at most 4 such nodes together" in placed(
        "spread=1@scale-up-domain", 5, racks=SCALE_UP_DOMAINS
    )
    assert placed(
        "required=nearest", 1, racks="node scale-up-domain gpu\n n0 i0 8\n n1 i0 8"
    ).startswith("a waits, TierNotFound: no tier 'nearest'")


def test_heavy_senders_share_scale_up_domains_by_default() -> None:
    """Stages first, so that replicas of a stage are apart in the network's order."""
    nodes = tuple(node(f"n{at:02d}", "r0", f"i{at // 4}") for at in range(16))
    model = Transformer(80, 8192, 64, 8, 128, 28_672, 128_256, gated=True)
    recipe = Recipe(8192, 1, 256, framework=Framework.MEGATRON_PIPELINE_FIRST)
    workload = Workload(model, Parallelism(tensor=8, pipeline=4, data=4), recipe)
    asked = job("a", replicas=16, ranks_per_pod=8, workload=workload)
    (found,) = decide(cluster(*nodes, jobs=(asked,), levels=("rack", SCALE_UP))).admitted
    assert found.score is not None
    assert [each.level for each in found.score.crossing] == ["rack", SCALE_UP]
    crossing = found.score.crossing[-1]
    assert 0 < crossing.placed < crossing.network_order / 2


def test_network_without_scale_up_domains_is_reported() -> None:
    assert placed("required=scale-up-domain", 2) == (
        "a waits, TierNotFound: no tier 'scale-up-domain': no scale-up domains are known that "
        "nest with the network's levels; the Fabric's status lists the known ones"
    )


def test_rack_with_most_free_nodes_is_reported() -> None:
    busy = SCALE_UP_DOMAINS.replace("nB    b1     r2    i3      8", "nB    b1     r2    i3    0/8")
    table = f"{busy}\n job nodes gpu constraints\n a 12 8 - \n b 13 8 -"
    found = outcome(decide(world(table))).splitlines()
    assert found[1].endswith("0/13 nodes available; 13 busy")
    assert "; best rack b0/r0 has 5; " in placed("-", 13, racks=busy)


RAILS = """
    node  rack  gpu   rails
    n0    r0    8     4
    n1    r0    8     4!2
    n2    r0    8     4
    n3    r1    8     4
    n4    r1    8     4!0,2
    n5    r1    8     2
    n6    r1    8     2
    n7    r1    8     -
"""


@pytest.mark.parametrize(
    ("asked", "nodes", "where"),
    [
        ("-", 5, "n3 n4 n5 n6 n7"),
        ("rails=aligned", 2, "n5 n6"),
        ("rails=aligned", 3, "n0 n2 n3"),
        ("rails=aligned,spread=1@rack", 2, "n0 n3"),
        ("rails=aligned,required=rack", 2, "n5 n6"),
    ],
)
def test_aligned_rails_are_had_on_nodes_with_as_many_of_them(
    asked: str, nodes: int, where: str
) -> None:
    assert placed(asked, nodes, racks=RAILS).partition(", ")[0] == f"a starts on {where}"


def test_nearest_of_several_aligned_sets_is_taken() -> None:
    """Of several rail assignments, the one with nodes in the fewest domains is taken."""
    racks = """
        node  rack  gpu   rails
        n0    r0    8     2
        n1    r1    8     2
        n2    r2    8     4
        n3    r2    8     4
    """
    assert placed("rails=aligned", 2, racks=racks).partition(", ")[0] == "a starts on n2 n3"


def test_unaligned_rails_are_named_with_count_of_nodes() -> None:
    """The reason lists the rails and the number of nodes without them."""
    assert placed("rails=aligned", 4, racks=RAILS) == (
        "a waits, NeverFits: needs 4 nodes with 8 nvidia.com/gpu each, all rails aligned; at most "
        "3 such nodes together: replicas <= 3; miscabled: rail 0 on 1 node, rail 2 on 2 nodes; "
        "rails of 1 node are not known"
    )
    busy = RAILS.replace("n3    r1    8 ", "n3    r1    0/8 ")
    assert placed("rails=aligned", 3, racks=busy) == (
        "a waits, NotEnoughNodes: needs 3 nodes with 8 nvidia.com/gpu each, all rails aligned; at "
        "most 2 available together, 3 if all were free; best rack r1 has 2; miscabled: "
        "rail 0 on 1 node, rail 2 on 2 nodes; rails of 1 node are not known; 1 busy"
    )


def test_where_no_rails_are_known_none_are_aligned() -> None:
    assert placed("rails=aligned", 2).endswith(
        "at most 0 such nodes together; rails of 10 nodes are not known"
    )


def test_wait_for_aligned_rails_keeps_no_other_nodes_idle() -> None:
    busy = RAILS.replace("n3    r1    8 ", "n3    r1    0/8 ")
    table = f"{busy}\n job nodes gpu constraints\n a 3 8 rails=aligned \n b 5 8 - \n c 1 8 -"
    found = outcome(decide(world(table))).splitlines()
    assert found[0] == "b starts on n1 n4 n5 n6 n7, spans (2,)"
    assert found[2].startswith("c waits, BlockedByReservation: needs 1 node and 2 are available")


def test_uneven_segments_are_an_internal_error_of_that_job() -> None:
    """The API server refuses them, so this is no user's mistake."""
    assert "has 3 replicas, expected a multiple of its segments of 2" in placed("segment=2@rack", 3)
    assert "waits, InternalError" in placed("segment=2@rack", 3)


def test_segment_of_one_node_restricts_nothing() -> None:
    asked = "required=nearest,preferred=nearest,segment=1@nearest,spread=1@nearest"
    assert placed(asked, 1) == "a starts on n0, spans (1, 1)"


def test_a_job_that_waits_for_one_rack_keeps_no_other_idle() -> None:
    """The rack with the most room now is kept for it."""
    racks = RACKS.replace("n2    b0     r1    8", "n2    b0     r1    0/8")
    racks = racks.replace("n9    b1     r3    8", "n9    b1     r3    0/8")
    racks = racks.replace("n8    b1     r3    8", "n8    b1     r3    0/8")
    table = f"{racks}\n job nodes gpu constraints\n a 3 8 required=rack \n b 5 8 - \n c 1 8 -"
    found = outcome(decide(world(table))).splitlines()
    assert found[0] == "b starts on n0 n1 n5 n6 n7, spans (2, 3)"
    assert found[1].startswith("a waits, NotEnoughNodes")
    assert (
        "c waits, BlockedByReservation: needs 1 node and 2 are available, but team/a is ahead"
        in (found[2])
    )


def test_nodes_of_no_known_rack_are_not_taken_to_be_apart() -> None:
    racks = "node rack gpu\n n0 - 8\n n1 - 8\n n2 r0 8\n n3 r0 8\n n4 r1 8"
    assert placed("spread=1@rack", 2, racks=racks).startswith("a starts on n2 n4,")
    assert "at most 2 such nodes together" in placed("spread=1@rack", 3, racks=racks)
    alone = "node rack gpu\n n0 - 8\n n1 r0 8\n n2 r1 8"
    assert "at most 2 such nodes together" in placed("spread=1@rack", 3, racks=alone)
    unknown = "node block rack gpu\n n0 a - 8"
    for asked in ("spread=4@rack", "spread=4@rack,required=rack"):
        assert "at most 0 such nodes together" in placed(asked, 1, racks=unknown)


def test_satisfiable_preference_is_kept_over_shorter_step() -> None:
    """Block A has racks of nine and seven; whole rings of eight would need another block."""
    nodes = tuple(
        node(f"{block}{rack}-{at}", block, rack, machine="DGX A100")
        for block, rack, count in (("A", "0", 9), ("A", "1", 7), ("B", "2", 8), ("C", "3", 8))
        for at in range(count)
    )
    model = Transformer(24, 4096, 32, 32, 128, 4 * 4096, 51_200)
    workload = Workload(model, Parallelism(tensor=8, pipeline=2, data=8), Recipe(2048, 1, 64))
    asked = job(
        "a",
        replicas=16,
        ranks_per_pod=8,
        workload=workload,
        constraints=TopologyConstraints(preferred="block"),
    )
    snapshot = replace(
        cluster(*nodes, jobs=(asked,), levels=("block", "rack")), links=(Links(), Links(8.0))
    )
    (found,) = decide(snapshot).admitted
    assert found.spans == (1, 2)


def test_one_node_of_no_scale_up_domain_is_a_rack() -> None:
    """Each node is alone in its rack, inside a scale-up domain: a job of one node may start."""
    nodes = (node("n0", "no scale-up domain", "r0"), node("n1", "no scale-up domain", "r1"))
    for count in (1, 2):
        asked = job("a", replicas=count, constraints=TopologyConstraints(required="rack"))
        found = decide(cluster(*nodes, jobs=(asked,), levels=(SCALE_UP, "rack")))
        assert len(found.admitted) == (count == 1)
