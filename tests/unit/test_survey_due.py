"""The due nodes: a function of sources, stored surveys, mode and time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from railwright_api.fabric import Probing
from railwright_controllers.surveys import due
from railwright_topology import fabric
from railwright_topology.fabric import Fabric
from railwright_topology.source_reports import Provenance, SourceReport

HOUR_S = 3600
NOW_S = 1_000_000 * HOUR_S
ALWAYS, WHEN_UNKNOWN, NEVER = (
    Probing(mode="Always"),
    Probing(mode="WhenUnknown"),
    Probing(mode="Never"),
)


def reported(
    racks: Mapping[str, str], provenance: Provenance = Provenance.IMPORTED, **times: int
) -> SourceReport:
    return SourceReport("a source", provenance, (racks,), times=times)


def of(source_reports: Iterable[SourceReport], nodes: str = "abcd") -> Fabric:
    return fabric.of(nodes, source_reports)


def test_unplaced_nodes_are_due_and_all_if_verified() -> None:
    """With mode Always all nodes are due, with Never none."""
    labelled = of([reported({"a": "r", "b": "r"})])
    assert due.of(labelled, WHEN_UNKNOWN, NOW_S) == {*"cd"}
    assert due.of(labelled, ALWAYS, NOW_S) == {*"abcd"}
    assert due.of(labelled, NEVER, NOW_S) == set()


def test_source_of_device_links_has_no_network_topology() -> None:
    scale_up = SourceReport("cliques", Provenance.IMPORTED, scale_up_domains={"a": "i", "b": "i"})
    assert due.of(of([scale_up]), WHEN_UNKNOWN, NOW_S) == {*"abcd"}


def test_survey_of_a_clock_that_was_ahead_is_due_again() -> None:
    times = {"a": NOW_S + 60 * 24 * HOUR_S, "b": NOW_S + HOUR_S // 2}
    held = of([reported(dict.fromkeys("abc", "r"), Provenance.MEASURED, **times)])
    assert due.of(held, ALWAYS, NOW_S) == {*"ad"}


@pytest.mark.parametrize("mode", [WHEN_UNKNOWN, ALWAYS])
def test_what_a_survey_placed_is_due_again_once_that_is_too_old(mode: Probing) -> None:
    old, young = NOW_S - 169 * HOUR_S, NOW_S - 167 * HOUR_S
    held = of([reported(dict.fromkeys("abc", "r"), Provenance.MEASURED, a=old, b=young)])
    assert due.of(held, mode, NOW_S) == {*"ad"}


def test_one_node_alone_is_never_due() -> None:
    assert due.of(of([], "a"), ALWAYS, NOW_S) == set()


def test_idle_nodes_and_two_of_each_domain_are_chosen() -> None:
    racks = dict.fromkeys("abcd", "r1") | dict.fromkeys("efg", "r2")
    fabric = of([reported(racks)], "abcdefgxyz")
    assert due.chosen(fabric, {*"xyz"}, {*"abcdefgxy"}, least=3) == tuple("abefxy")
    assert due.chosen(fabric, {*"xyz"}, {*"dxyz"}, least=3) == tuple("dxyz")


def test_too_few_to_find_anything_out_are_not_chosen() -> None:
    nodes = "abcdefghijklmnop"
    bare, least = of([], nodes), due.enough(nodes)
    assert due.chosen(bare, {*nodes}, {*nodes[:7]}, least=least) == ()
    assert due.chosen(bare, {*nodes[:7]}, {*nodes}, least=least) == ()
    assert due.chosen(bare, {*nodes}, {*nodes[:8]}, least=least) == tuple(nodes[:8])
    assert due.chosen(bare, {*"ab"}, {*"ab"}, least=due.enough("ab")) == ("a", "b")
    assert due.chosen(bare, {"a"}, {"a"}, least=due.enough("a")) == ()
    assert due.chosen(bare, {"a"}, {"b"}, least=due.enough("a")) == ()
