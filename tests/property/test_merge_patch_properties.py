"""A merge patch of ours replaces whole values, whatever objects hold at whatever depth."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fixtures import merging
from railwright_kube import bodies

NAMES = st.sampled_from("abc")
LEAVES = st.none() | st.integers(0, 2) | st.lists(st.integers(0, 2), max_size=2)
VALUES = st.recursive(LEAVES, lambda inner: st.dictionaries(NAMES, inner), max_leaves=12)
OBJECTS = st.dictionaries(NAMES, VALUES, max_size=3)


@given(OBJECTS, OBJECTS)
def test_patched_object_equals_the_new_one(before: dict[str, Any], after: dict[str, Any]) -> None:
    stored = merging.merged({}, before)
    assert merging.merged(stored, bodies.merge_patch(stored, after)) == merging.merged({}, after)


@given(OBJECTS)
def test_patch_to_the_stored_object_is_empty(after: dict[str, Any]) -> None:
    assert bodies.merge_patch(merging.merged({}, after), after) == {}


def test_patch_removes_fields_at_every_depth() -> None:
    before = {
        "phase": "Running",
        "lastTermination": {"cause": "RankFailed", "rank": 3},
        "nodes": ["n0"],
    }
    after = {"phase": "Running", "lastTermination": {"cause": "NodeLost"}}
    assert bodies.merge_patch(before, after) == {
        "lastTermination": {"cause": "NodeLost", "rank": None},
        "nodes": None,
    }
