"""The policies on the operator's account whose match conditions decide, as written."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from architecture import tree
from railwright_api import names

Document = dict[str, Any]

LIMITS = tree.ROOT / "deploy/rights/operator-limits.yaml"
OPERATOR = "'system:serviceaccount:railwright-system:railwright-operator'"
OPERATOR_SERVICE_ACCOUNT = f"request.userInfo.username == {OPERATOR}"
OTHER_SERVICE_ACCOUNT = f"request.userInfo.username != {OPERATOR}"


def conditional() -> list[Document]:
    """The policies of which a match condition decides, and the validations find the message."""
    return [
        document["spec"]
        for document in yaml.safe_load_all(LIMITS.read_text(encoding="utf-8"))
        if document["kind"] == "ValidatingAdmissionPolicy"
        and "breaks-a-rule" in [each["name"] for each in document["spec"]["matchConditions"]]
    ]


def test_policy_with_rules_as_conditions_ends_in_refusal() -> None:
    """A request that none of the other validations refuses is refused by the last."""
    policies = conditional()
    assert len(policies) == 2
    assert {spec["failurePolicy"] for spec in policies} == {"Fail"}
    assert {spec["validations"][-1]["expression"] for spec in policies} == {"false"}


@pytest.mark.parametrize(
    ("resource", "condition"),
    [
        (
            "pods",
            f"{OTHER_SERVICE_ACCOUNT} ? request.operation == 'CREATE' && "
            f"'{names.LABEL_JOB_UID}' in object.metadata.?labels.orValue({{}}) : "
            "![request.operation == 'DELETE' ? oldObject : object].all(pod, RULES)",
        ),
        ("pods/binding", f"{OPERATOR_SERVICE_ACCOUNT} && !( RULES)"),
    ],
)
def test_condition_repeats_the_rules_of_validations(resource: str, condition: str) -> None:
    """A rule in one of both alone would not be in force, or refuse without its message."""
    (spec,) = (
        spec
        for spec in conditional()
        if spec["matchConstraints"]["resourceRules"][0]["resources"] == [resource]
    )
    expressions = [" ".join(each["expression"].split()) for each in spec["validations"]]
    rules = [each for each in expressions if each not in (OPERATOR_SERVICE_ACCOUNT, "false")]
    assert len(rules) == 4
    joined = " && ".join(f"({rule})" for rule in rules).replace("variables.pod.", "pod.")
    (decides,) = spec["matchConditions"]
    assert " ".join(decides["expression"].split()).replace(joined, "RULES") == condition
