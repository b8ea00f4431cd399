"""Algorithms of collectives on cases that can be worked out by hand, and the fastest of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright_scheduler.cost import collectives
from railwright_scheduler.cost.collectives import Group
from railwright_scheduler.cost.hardware import (
    COLLECTIVE_S,
    DGX_A100,
    DGX_H100,
    HGX_H800,
    INFINIBAND_HDR,
    MI300X_PLATFORM,
    NETWORK_STEP_S,
    NVLINK_STEP_S,
    ROCE,
    Algorithm,
    Machine,
    hops,
)

MIB, GIB = 1 << 20, 1 << 30


def group(machine: Machine, nodes: int, per_node: int, *algorithms: Algorithm) -> Group:
    return Group(replace(machine, algorithms=algorithms), nodes, per_node)


def bus_bandwidth(size: int, here: Group) -> float:
    """As nccl-tests counts it."""
    return 2 * (here.ranks - 1) / here.ranks * size / collectives.all_reduce_s(size, here)


def test_a_tree_goes_up_and_down_with_chains_in_its_nodes() -> None:
    # 16 nodes are 4 deep; each node has 7 more ranks.
    expected = COLLECTIVE_S + 2 * (7 * 4e-6 + 4 * 14e-6) + 2 * MIB / (0.92 * 8 * 24e9)
    found = collectives.all_reduce_s(MIB, group(DGX_A100, 16, 8, Algorithm.TREE))
    assert found == pytest.approx(expected)


def test_few_bytes_go_along_trees_and_many_around_rings() -> None:
    rings, both = group(DGX_A100, 64, 8), group(DGX_A100, 64, 8, Algorithm.TREE)
    assert collectives.all_reduce_s(MIB, both) < 0.1 * collectives.all_reduce_s(MIB, rings)
    assert collectives.all_reduce_s(64 * GIB, both) == collectives.all_reduce_s(64 * GIB, rings)


def test_two_level_adapters_carry_only_inter_node_bytes() -> None:
    """With a two-level algorithm an adapter carries only the bytes of its own rank to other
    nodes."""
    inside_s = 2 * (COLLECTIVE_S + NVLINK_STEP_S + GIB / 2 / 232e9)
    across_s = COLLECTIVE_S + 2 * NETWORK_STEP_S + GIB / 2 / 24e9
    found = collectives.all_reduce_s(GIB, group(DGX_A100, 2, 2, Algorithm.TWO_LEVEL))
    assert found == pytest.approx(inside_s + across_s)
    assert found < collectives.all_reduce_s(GIB, group(DGX_A100, 2, 2, Algorithm.TREE))


@pytest.mark.parametrize(("machine", "expected"), [(DGX_H100, 480e9), (HGX_H800, 480e9 * 4 / 9)])
def test_switches_of_a_node_add_up_where_they_can(machine: Machine, expected: float) -> None:
    all_eight = group(machine, 1, 8, Algorithm.NVLS)
    assert bus_bandwidth(16 * GIB, all_eight) == pytest.approx(expected, rel=0.01)
    # Of two, each sends half as much again instead of no more than its bytes.
    two = group(machine, 1, 2, Algorithm.NVLS)
    assert collectives.all_reduce_s(GIB, two) == collectives.all_reduce_s(GIB, group(machine, 1, 2))


def test_switches_of_a100_add_nothing_up() -> None:
    rings = collectives.all_reduce_s(GIB, group(DGX_A100, 1, 8))
    assert collectives.all_reduce_s(GIB, group(DGX_A100, 1, 8, Algorithm.NVLS)) == rings


@pytest.mark.parametrize("machine", [DGX_A100, DGX_H100])
def test_adapter_sends_half_with_in_network_reduction(machine: Machine) -> None:
    """A switch that reduces halves the bytes of an all-reduce."""
    ring_s = collectives.all_reduce_s(GIB, group(machine, 96, 1))
    there = machine.behind(INFINIBAND_HDR, 1, sharp=True)
    switched_s = collectives.all_reduce_s(GIB, group(there, 96, 1, Algorithm.SHARP))
    assert ring_s / switched_s == pytest.approx(2, rel=0.05)


def test_sharp_on_dgx_h100_is_as_fast_as_was_published() -> None:
    # stas00/ml-engineering, network/README.md: 480 GB/s with SHARP, 370 to 380 without.
    there = DGX_H100.behind(INFINIBAND_HDR, 1, sharp=True)
    assert bus_bandwidth(16 * GIB, Group(there, 16, 8)) == pytest.approx(480e9, rel=0.15)
    assert bus_bandwidth(16 * GIB, Group(DGX_H100, 16, 8)) == pytest.approx(375e9, rel=0.03)


def test_without_pxn_each_rank_of_another_node_takes_a_message() -> None:
    with_pxn, without = group(DGX_A100, 64, 8, Algorithm.PXN), group(DGX_A100, 64, 8)
    more_s = collectives.all_to_all_s(GIB, without) - collectives.all_to_all_s(GIB, with_pxn)
    assert more_s == pytest.approx(63 * 7 * NETWORK_STEP_S)


def test_message_latency_adds_adapters_and_switches() -> None:
    """The latency is that of both adapters and of each switch on the path."""
    assert [hops(tiers) for tiers in (1, 2, 3)] == [1, 3, 5]
    assert INFINIBAND_HDR.latency_s(5) == pytest.approx(0.6e-6 + 5 * 0.13e-6)


def test_more_tiers_make_steps_longer() -> None:
    there = DGX_A100.behind(INFINIBAND_HDR, 3, sharp=False)
    assert there.network.step_s == pytest.approx(NETWORK_STEP_S + 4 * 0.13e-6)
    assert DGX_A100.behind(INFINIBAND_HDR, 1, sharp=False) == DGX_A100


def test_switches_that_cannot_add_up_do_not() -> None:
    assert DGX_A100.behind(ROCE, 2, sharp=True).sharp_s is None


def test_ranks_of_a_mesh_have_the_links_between_them() -> None:
    """Published for two and for all eight devices of this node: 47.7 and 312.9 GB/s."""
    two, eight = (Group(MI300X_PLATFORM, 1, ranks) for ranks in (2, 8))
    assert bus_bandwidth(4 * GIB, two) == pytest.approx(47.7e9, rel=0.07)
    assert bus_bandwidth(4 * GIB, eight) == pytest.approx(312.9e9, rel=0.02)
    assert two.link.bandwidth == eight.link.bandwidth == pytest.approx(312.9e9 / 7)
    exchanged = (collectives.all_to_all_s(GIB, each) for each in (two, eight))
    assert [GIB / each for each in exchanged] == [
        pytest.approx(2 * 45e9, rel=0.02),
        pytest.approx(8 * 45e9, rel=0.02),
    ]
    assert Group(MI300X_PLATFORM, 4, 1).mesh_share == 1.0
