"""The domains of nodes survive the Fabric object, whatever nodes and domains are called."""

from __future__ import annotations

from random import Random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.examples import examples
from fixtures.large_interconnects import large
from railwright_api.interconnect import SchedulingTopology
from railwright_api.schema import NODES_MAX
from railwright_conversion import bounds, interconnects
from railwright_topology.folding import fold
from railwright_topology.interconnect import Interconnect
from railwright_topology.links import Links
from railwright_topology.sources import hostlist

OBJECT_BYTES_MAX = 1 << 20
NODE_NAMES = st.one_of(
    st.from_regex(r"[a-z][a-z0-9]{0,3}-?[0-9]{1,3}", fullmatch=True),
    st.from_regex(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?(\.[a-z0-9]{1,20}){0,2}", fullmatch=True),
    st.from_regex(r"n[0-9]{17,20}", fullmatch=True),
)
DOMAINS = st.one_of(
    st.sampled_from(["", "a", "b", "rack-1"]),
    st.text(st.characters(), max_size=8),
    st.integers(250, 256).flatmap(lambda many: st.sampled_from(["x" * many, "é" * many])),
)
LINKS = st.builds(
    Links,
    st.floats(1.0, 1e9),
    st.dictionaries(DOMAINS, st.just(0.0) | st.floats(bounds.MAGNITUDES[0], 1e6), max_size=3),
    st.frozensets(DOMAINS, max_size=3),
)


@st.composite
def interconnects_of(draw: st.DrawFn) -> Interconnect:
    count = draw(st.integers(0, 4))
    levels = draw(st.lists(DOMAINS.filter(bool), min_size=count, max_size=count, unique=True))
    place = st.tuples(*[DOMAINS] * count)
    return Interconnect(
        tuple(levels),
        draw(st.dictionaries(NODE_NAMES, place, max_size=30)),
        tuple(draw(st.lists(LINKS, min_size=count, max_size=count))),
    )


@settings(max_examples=examples(200))
@given(st.sets(NODE_NAMES, max_size=60))
def test_folded_names_of_nodes_expand_to_the_same(names: set[str]) -> None:
    expanded = hostlist.expand(fold(names), len(names))
    assert sorted(expanded) == sorted(names)


@settings(max_examples=examples(200))
@given(interconnects_of(), st.randoms(use_true_random=False))
def test_interconnect_is_read_back_as_it_was(found: Interconnect, random: Random) -> None:
    """Names that no object can have are replaced, and different ones stay different."""
    rendered = orjson.loads(orjson.dumps(interconnects.render(found)))
    SchedulingTopology.model_validate(rendered)
    back = interconnects.parse(rendered)
    assert back.places.keys() == found.places.keys()
    for level in range(len(found.levels)):
        both = {(found.places[node][level], back.places[node][level]) for node in found.places}
        assert len({old for old, _ in both}) == len({new for _, new in both}) == len(both)
        assert all(new == old for old, new in both if len(old) < 60 and old.isascii())
    for old, new in zip(found.links, back.links, strict=True):
        assert new.oversubscription == old.oversubscription
        assert sorted(new.leaving.values()) == sorted(old.leaving.values())
        assert len(new.reducing) == len(old.reducing)
    assert interconnects.render(back) == rendered
    nodes = [*found.places]
    random.shuffle(nodes)
    shuffled = Interconnect(found.levels, {node: found.places[node] for node in nodes}, found.links)
    assert interconnects.render(shuffled) == rendered


@pytest.mark.parametrize(("nodes", "nodes_per_rack"), [(5_000, 8), (5_000, 16), (2_048, 8)])
def test_large_cluster_with_irregular_names_fits_an_object(nodes: int, nodes_per_rack: int) -> None:
    found = large(nodes, nodes_per_rack)
    rendered, left_out = interconnects.render_bounded(found, OBJECT_BYTES_MAX)
    assert rendered is not None
    assert not left_out
    assert interconnects.parse(rendered) == found


def test_levels_that_fit_no_object_are_left_out() -> None:
    """5,000 racks of one node each, with names of 63 characters."""
    found = large(5_000, 1)
    rendered, left_out = interconnects.render_bounded(found, OBJECT_BYTES_MAX)
    assert rendered is not None
    assert left_out == ("rack",)
    assert len(orjson.dumps(rendered)) <= OBJECT_BYTES_MAX
    back = interconnects.parse(rendered)
    assert back.levels == ("pod", "block")
    assert back.places == {node: domains[:2] for node, domains in found.places.items()}
    assert interconnects.render_bounded(found, 1_000) == (
        None,
        ("pod", "block", "rack"),
    )


def test_more_nodes_than_a_job_can_have_are_read() -> None:
    """But not more places than the schema accepts."""
    places = {f"n{number:05d}": (f"r{number}",) for number in range(NODES_MAX + 1)}
    found = Interconnect(("rack",), places, (Links(),))
    rendered, left_out = interconnects.render_bounded(found, 8 * OBJECT_BYTES_MAX)
    assert rendered is not None
    assert left_out == ("rack",)
    assert interconnects.parse(rendered).places.keys() == places.keys()
