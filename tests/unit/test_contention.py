"""How many nodes can send out of a domain at once, of what they reach together."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from railwright_topology.probing import contention
from railwright_topology.probing.contention import ContentionProbe
from railwright_topology.probing.findings import Figures, Findings

UNKNOWN = Figures(0, None, None, None)


def found(*tiers: str) -> Findings:
    """Each tier has a letter for each node: that of its domain."""
    groupings: tuple[Mapping[str, str], ...] = tuple(
        {f"n{at}": domain for at, domain in enumerate(tier)} for tier in tiers
    )
    return Findings(groupings, (UNKNOWN,) * len(tiers), (), 0)


def test_every_node_sends_out_of_its_domain_evenly() -> None:
    """The pairs of a domain's nodes are spread evenly over the other domains."""
    first, second = contention.probes(found("aaabbc", "......"))
    assert (first.domain, first.nodes, first.pairs) == (
        "a",
        3,
        (("n0", "n3"), ("n1", "n5"), ("n2", "n4")),
    )
    assert (second.domain, second.pairs) == ("b", (("n3", "n0"), ("n4", "n5")))
    assert (first.alone, second.alone) == (("n0", "n1"), ("n3", "n4"))


def test_nodes_in_same_next_tier_domain_are_paired_first() -> None:
    racks = [each for each in contention.probes(found("aabbcc", "xxxxyy")) if each.tier == 0]
    assert [each.pairs for each in racks] == [
        (("n0", "n2"), ("n1", "n3")),
        (("n2", "n0"), ("n3", "n1")),
        (("n4", "n0"), ("n5", "n2")),
    ]


def test_domain_of_everything_or_one_node_is_not_probed() -> None:
    """Such domains have no uplink to measure."""
    assert [*contention.probes(found("...."))] == []
    assert [*contention.probes(found("abc", "..."))] == []
    assert [*contention.probes(found())] == []


@pytest.mark.parametrize(
    ("nodes", "speeds", "leaving"),
    [
        (4, [50.0, 50.0, 50.0, 50.0], 2.0),
        (4, [100.0, 100.0, 100.0, 100.0], 4.0),
        (4, [150.0, 100.0, 100.0, 100.0], 4.0),
        (4, [10.0, 5.0, 5.0, 5.0], 0.25),
        (4, [50.0, 50.0, 50.0, None], None),
        (8, [50.0, 50.0, 50.0, 50.0], 2.0),
        (8, [100.0, 90.0, 80.0, 90.0], None),
    ],
)
def test_contention_probe_gives_uplink_capacity(
    nodes: int, speeds: list[float | None], leaving: float | None
) -> None:
    """One alone reaches 100 bytes a second."""
    pairs = tuple((f"a{at}", f"b{at}") for at in range(len(speeds)))
    crowd = ContentionProbe(0, "a", nodes, pairs, ("a0", "a1"))
    assert crowd.leaving(speeds, 100.0) == leaving
    assert crowd.leaving(speeds, None) is None
