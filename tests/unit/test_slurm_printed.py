"""What scontrol prints of topologies, read. The outputs here are written as Slurm's source does."""

from __future__ import annotations

import itertools

import pytest

from railwright_topology.source_reports import SourceReport
from railwright_topology.sources import slurm


def one(text: str) -> SourceReport:
    (source_report,) = slurm.parse_conf(text)
    return source_report


def printed(blocks: int, sizes: tuple[int, ...]) -> str:
    """What ``scontrol show topology`` prints of blocks of two nodes: the larger ones behind them,
    and without those at the end that are no larger than those of a smaller size."""
    lines = [
        f"BlockName=b{at} BlockIndex={at} Nodes=n[{2 * at}-{2 * at + 1}] BlockSize=2"
        for at in range(blocks)
    ]
    for smaller, size in itertools.pairwise(sizes):
        for at in range(0, blocks, size // 2):
            left = blocks - at
            if size // 2 <= left or smaller // 2 < left:
                last = min(at + size // 2, blocks) - 1
                nodes = f"Nodes=n[{2 * at}-{2 * last + 1}]"
                names = f"AggregatedBlock=b[{at}-{last}]"
                lines.append(f"{names} BlockIndex={len(lines)} {nodes} BlockSize={size}")
    return "\n".join(lines)


@pytest.mark.parametrize("blocks", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("sizes", [(2, 4), (2, 8), (2, 4, 8)])
def test_printed_blocks_are_those_of_the_file(blocks: int, sizes: tuple[int, ...]) -> None:
    lines = [f"BlockName=b{at} Nodes=n[{2 * at}-{2 * at + 1}]" for at in range(blocks)]
    written = one("\n".join([*lines, f"BlockSizes={','.join(map(str, sizes))}"]))
    found = one(printed(blocks, sizes))
    assert not found.strange
    assert len(found.tiers) > 1
    # Slurm prints no size that is larger than all blocks together, but the first of these.
    assert found.tiers == written.tiers[: len(found.tiers)]
    assert all(tier == found.tiers[-1] for tier in written.tiers[len(found.tiers) :])


def test_larger_blocks_without_the_size_of_blocks_are_left_out() -> None:
    text = "BlockName=b1 Nodes=n1\nAggregatedBlock=b[1-2] Nodes=n[1-2] BlockSize=2"
    assert one(text).tiers == ({"n1": "b1"},)
    assert one(text).strange == (
        "line 2: no block has its BlockSize: the larger blocks are left out",
    )


def test_unused_kinds_of_a_printed_topology_are_none() -> None:
    text = """%YAML 1.1
---
- topology: fabric
  cluster_default: true
  tree: {switches: [{switch: s1, children: '', nodes: 'n[1-2]'}]}
  block: {}
  flat: false
  ring: {}
- topology: racks
  cluster_default: false
  tree: {switches: []}
  block: {block_sizes: [1], blocks: [{block: b1, nodes: n1}]}
  flat: false
- topology: none
  cluster_default: false
  tree: {}
  block: {}
  flat: true
...
"""
    fabric, racks, none = slurm.parse_yaml(text)
    assert fabric.tiers == ({"n1": "s1", "n2": "s1"},)
    assert racks.tiers == ({"n1": "b1"},)
    assert not none.tiers
    assert not fabric.strange
