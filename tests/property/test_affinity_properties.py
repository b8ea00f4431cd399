"""Node affinity by index and by node, compared with the semantics of Kubernetes written out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fixtures import cluster, job, node
from railwright_conversion import node_affinities
from railwright_scheduler.model.shortages import NeverFits
from railwright_scheduler.policy.decide import decide
from railwright_scheduler.policy.eligibility import Demands, Eligibility

KEYS = st.sampled_from(["zone", "disk", "size"])
VALUES = st.sampled_from(["", "a", "b", "1", "05", "5", "-3", "1.5", "x1", "９", "9" * 30, "1_0"])
LABELS = st.dictionaries(KEYS, VALUES, max_size=3)
NAMES = st.sampled_from(["n0", "n1", "n2", "n9"])
OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
REQUIREMENTS = st.fixed_dictionaries(
    {"key": KEYS, "operator": OPERATORS, "values": st.lists(VALUES, max_size=3, unique=True)}
)
FIELDS = st.fixed_dictionaries(
    {
        "key": st.just("metadata.name"),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.lists(NAMES, min_size=1, max_size=1),
    }
)
TERMS = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(REQUIREMENTS, max_size=3),
        "matchFields": st.lists(FIELDS, max_size=2),
    },
)
Json = dict[str, Any]


def is_met(requirement: Json, value: str | None) -> bool:
    """As labels.Requirement of apimachinery and the field selector of kube-scheduler have it."""
    operator, values = requirement["operator"], requirement["values"]
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if value is None or len(values) != 1:
        return False
    have, bound = parse_int(value), parse_int(values[0])
    if have is None or bound is None:
        return False
    return have > bound if operator == "Gt" else have < bound


def parse_int(text: str) -> int | None:
    """As strconv.ParseInt(text, 10, 64)."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits or any(each not in "0123456789" for each in digits):
        return None
    return int(text) if -(2**63) <= int(text) < 2**63 else None


def matches(selector_terms: list[Json], name: str, labels: dict[str, str]) -> bool:
    """Whether one term has requirements and the node meets all of them."""
    for term in selector_terms:
        expressions, fields = term.get("matchExpressions", []), term.get("matchFields", [])
        met = [is_met(each, labels.get(each["key"])) for each in expressions]
        met += [is_met(each, name) for each in fields]
        if met and all(met):
            return True
    return False


def pod_spec(selector_terms: list[Json]) -> Json:
    return {
        "affinity": {
            "nodeAffinity": {node_affinities.REQUIRED: {"nodeSelectorTerms": selector_terms}}
        }
    }


@given(st.lists(LABELS, max_size=6), st.lists(TERMS, max_size=3), LABELS)
def test_affinity_matches_nodes_as_kubernetes_does(
    carried: list[dict[str, str]], selector_terms: list[Json], selector: dict[str, str]
) -> None:
    nodes = [replace(node(f"n{i}"), labels=labels) for i, labels in enumerate(carried)]
    affinity = node_affinities.convert(pod_spec(selector_terms))
    expected = [matches(selector_terms, each.name, dict(each.labels)) for each in nodes]
    assert Eligibility(nodes).matched(affinity).tolist() == expected
    asked = job("a", affinity=affinity, selector=selector)
    selected = [selector.items() <= labels.items() for labels in carried]
    both = [one and other for one, other in zip(expected, selected, strict=True)]
    demands = Demands(asked.roles[0])
    assert [demands.unmet_by(each) == "" for each in nodes] == both
    decided = decide(cluster(*nodes, jobs=(asked,)))
    assert {each.nodes[0] for each in decided.admitted} <= {
        each.name for each, fits in zip(nodes, both, strict=True) if fits
    }
    assert bool(decided.admitted) == any(both)
    for wait in decided.waiting:
        assert isinstance(wait.reason, NeverFits)
        assert (wait.reason.matched, wait.reason.unmatched) == (0, sum(selected))


def test_pod_without_required_terms_has_no_affinity() -> None:
    specs: list[Json] = [{}, {"affinity": None}, {"affinity": {"nodeAffinity": {}}}]
    assert [node_affinities.convert(spec) for spec in specs] == [None] * 3
