"""The plan that a site declares. Those here are written for these tests."""

from __future__ import annotations

import collections
import re

import pytest

from fixtures.remarks import remarks
from railwright_topology.source_reports import Provenance, SourceReport
from railwright_topology.sources import plan
from railwright_topology.wiring import WiringError

PLAN = """
version: 1
tiers: [block, rack]
domains:
  block-a:
    rack-[1-2]: gpu-[01-04]
    no: gpu-05,gpu-07
  block-b:
    rack-1: gpu-06
scaleUpDomains:
  nvl-[1-2]: gpu-[03-06]
"""


def test_a_plan_is_read_with_racks_that_share_a_range() -> None:
    racks = {
        "gpu-01": "block-a/rack-1",
        "gpu-02": "block-a/rack-1",
        "gpu-03": "block-a/rack-2",
        "gpu-04": "block-a/rack-2",
        "gpu-05": "block-a/no",
        "gpu-07": "block-a/no",
        "gpu-06": "block-b/rack-1",
    }
    assert plan.parse(PLAN) == SourceReport(
        "plan",
        Provenance.DECLARED,
        (racks, {node: path.partition("/")[0] for node, path in racks.items()}),
        {"gpu-03": "nvl-1", "gpu-04": "nvl-1", "gpu-05": "nvl-2", "gpu-06": "nvl-2"},
        names=("rack", "block"),
    )


def test_the_format_is_documented_by_a_plan_that_is_one() -> None:
    written = [line for line in (plan.__doc__ or "").splitlines() if line.startswith("    ")]
    found = plan.parse("\n".join(written))
    sizes = [sorted({*collections.Counter(tier.values()).values()}) for tier in found.tiers]
    assert sizes == [[9, 16], [256, 265]]
    assert {*collections.Counter(found.scale_up_domains.values()).values()} == {16}


def test_two_thousand_nodes_take_ten_lines() -> None:
    text = "version: 1\ntiers: [hall, block, rack]\ndomains:\n  hall-1:\n" + "".join(
        f"    block-{block}: {{'rack-[01-25]': 'gpu-[{500 * block + 1}-{500 * block + 500}]'}}\n"
        for block in range(4)
    )
    found = plan.parse(text)
    sizes = [sorted({*collections.Counter(tier.values()).values()}) for tier in found.tiers]
    assert sizes == [[20], [500], [2000]]
    assert text.count("\n") < 10


@pytest.mark.parametrize(
    ("changed", "into", "line", "rule"),
    [
        ("version: 1", "version: 2", 2, "version '2' is read as 1"),
        ("version: 1", "", 3, "version is not there"),
        ("tiers: [block, rack]", "", 2, "tiers is not there"),
        ("tiers: [block, rack]", "tiers:", 3, "tiers are named here"),
        ("[block, rack]", "[rack, rack]", 3, "tiers are named here, each once"),
        ("[block, rack]", "block", 3, "a list of tiers stands here"),
        ("[block, rack]", "[rack]", 6, "the nodes of a rack, a host list"),
        ("[block, rack]", "[hall, block, rack]", 6, "several of the innermost tier alone"),
        ("[block, rack]", "[hall, row, block, rack]", 6, "of the innermost tier alone"),
        (
            "block-b:\n    rack-1: gpu-06",
            "block-b: gpu-06",
            8,
            "a mapping of names and their nodes",
        ),
        ("scaleUpDomains:", "scaleUpDomain:", 11, "'scaleUpDomain' is no field of a plan"),
        ("  block-b:\n", "  block-[b-c]:\n", 9, "neither a number nor a range"),
        ("  block-b:\n", "  block-[2-3]:\n", 9, "several of the innermost tier alone"),
        ("  block-b:\n", "  block/b:\n", 9, "no block has / in it"),
        ("rack-1: gpu-06", "rack/1: gpu-06", 9, "no rack has / in it"),
        ("rack-1: gpu-06", "rack-1:", 9, "the nodes of a rack, a host list stands here"),
        ("rack-1: gpu-06", "rack-1: gpu-05", 9, "'block-a/no' and 'block-b/rack-1'"),
        ("rack-1: gpu-06", "rack-1: gpu-06,gpu-06", 9, "a node stands twice in the list"),
        ("rack-1: gpu-06", "rack-1: gpu-[1-99999]", 9, "more names than fit"),
        ("no: gpu", "rack-2: gpu", 7, "'block-a/rack-2' is described twice"),
        ("gpu-[01-04]", "gpu-[01-03]", 6, "3 nodes are not shared evenly by 2"),
        ("gpu-[01-04]", "gpu-01", 6, "1 nodes are not shared evenly by 2"),
        ("nvl-[1-2]: gpu-[03-06]", "x: gpu-03\n  y: gpu-03", 12, "is in both 'x' and 'y'"),
        ("  block-b:", "  block-a:", 8, "'block-a' stands twice"),
    ],
)
def test_plan_omission_has_line_and_rule(changed: str, into: str, line: int, rule: str) -> None:
    assert changed in PLAN
    stated = remarks(lambda: plan.parse(PLAN.replace(changed, into, 1)))
    assert re.search(f"line {line}: .*{re.escape(rule)}", stated)


def test_a_plan_without_a_node_is_none() -> None:
    with pytest.raises(WiringError, match="no node is in it"):
        plan.parse("version: 1\ntiers: [rack]\ndomains:\n")
