"""Taints and selectors by index, compared with the rules for each node."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from fixtures import job, node
from railwright_scheduler.model.snapshot import Taint, Toleration
from railwright_scheduler.policy.eligibility import Demands, Eligibility

KEYS = st.sampled_from(["a", "b", "node.kubernetes.io/not-ready"])
VALUES = st.sampled_from(["", "x", "y"])
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
TAINTS = st.builds(Taint, KEYS, VALUES, EFFECTS)
TOLERATIONS = st.builds(
    Toleration,
    KEYS | st.just(""),
    st.sampled_from(["", "Equal", "Exists", "Lt"]),
    VALUES,
    EFFECTS | st.just(""),
)
LABELS = st.dictionaries(KEYS, VALUES, max_size=3)


@given(st.lists(st.lists(TAINTS, max_size=3), max_size=5), st.lists(TOLERATIONS, max_size=4))
def test_index_of_taints_tolerates_as_each_taint_does(
    carried: list[list[Taint]], tolerations: list[Toleration]
) -> None:
    nodes = [replace(node(f"n{i}"), taints=tuple(taints)) for i, taints in enumerate(carried)]
    index = Eligibility(nodes)
    keeps = [
        {
            taint
            for taint in taints
            if taint.effect != "PreferNoSchedule"
            and not any(tolerates(toleration, taint) for toleration in tolerations)
        }
        for taints in carried
    ]
    lasting = [{taint for taint in taints if "/" not in taint.key} for taints in keeps]
    everywhere = index.selected({})
    demands = Demands(job("a", tolerations=tuple(tolerations)).roles[0])
    assert [demands.unmet_by(each) == "" for each in nodes] == [not taints for taints in keeps]
    assert index.tolerated(tolerations).tolist() == [not taints for taints in keeps]
    assert index.tolerated_ever(tolerations).tolist() == [not taints for taints in lasting]
    assert {*index.lasting(tolerations, everywhere)} == set().union(*lasting)


@given(st.lists(LABELS, max_size=6), LABELS)
def test_selector_matches_nodes_with_all_its_labels(
    carried: list[dict[str, str]], selector: dict[str, str]
) -> None:
    nodes = [replace(node(f"n{i}"), labels=labels) for i, labels in enumerate(carried)]
    expected = [selector.items() <= labels.items() for labels in carried]
    assert Eligibility(nodes).selected(selector).tolist() == expected
    demands = Demands(job("a", selector=selector).roles[0])
    assert [demands.unmet_by(each) == "" for each in nodes] == expected


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether this toleration covers this taint, as Kubernetes decides it."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in ("", "Equal"):
        return toleration.value == taint.value
    return toleration.operator == "Exists"
