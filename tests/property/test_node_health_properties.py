"""Rails and relative speeds survive the NodeHealth object."""

from __future__ import annotations

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.examples import examples
from railwright_api.node_health import NodeHealthSpec
from railwright_conversion import node_healths
from railwright_topology.miscabling import MiscabledRail, Rails
from railwright_topology.relative_speed import EVEN, RelativeSpeed

WORDS = st.text(st.characters(codec="utf-8"), max_size=20)
RAILS = st.builds(
    Rails,
    st.lists(st.integers(0, 63), min_size=1, max_size=16).map(tuple),
    st.lists(st.builds(MiscabledRail, st.integers(0, 63), WORDS, WORDS), max_size=4).map(tuple),
)
SHARES = st.floats(0.01, 1.0)


@settings(max_examples=examples(100))
@given(st.none() | RAILS, SHARES, SHARES)
def test_rails_and_speed_are_read_back_as_they_were(
    rails: Rails | None, products: float, memory: float
) -> None:
    """The share of correctly cabled rails follows from the rails."""
    speed = RelativeSpeed(products, memory, rails.share if rails else EVEN.rails)
    spec = {
        "rails": None if rails is None else node_healths.render_rails(rails),
        "relativeSpeed": node_healths.render_speed(speed),
    }
    stored = orjson.loads(orjson.dumps(spec))
    NodeHealthSpec.model_validate(stored)
    assert node_healths.parse_rails(stored["rails"]) == rails
    assert node_healths.parse_speed(stored["relativeSpeed"], rails) == speed
