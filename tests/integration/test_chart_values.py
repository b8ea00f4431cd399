"""Which values the chart accepts: Helm refuses others before it changes anything."""

from __future__ import annotations

import pytest

from integration.chart import rendered
from railwright_testbed import TestbedError

MALFORMED = (
    "agent.nodeCidrs={10.0.0.1}",
    "images.registry=https://example.com",
    "images.registry=example.com/Team",
    "images.tag=.-",
    "namespaces={Team A}",
    "podMonitor.interval=30s1m",
    "alerts.docsURL=docs.example.com",
    "images.registry=example.com/a..b",
    "operator.resources.requests.memory=lots",
    "agent.nodeCidrs={999.1.1.1/99}",
    "networkPolicy.jobsFrom[0].ipBlock.cidr=foo",
    "commonLabels.team=a b",
)
"""The API server would refuse most of them, in the middle of an installation."""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("operatr.replicas=3", "additional properties 'operatr' not allowed"),
        ("operator.replicas=0", "minimum: got 0, want 1"),
        ("operator.pod.containers=none", "additional properties 'containers' not allowed"),
        ("operator.pod.tolerations=none", "got string, want array"),
        ("images.registry=", "minLength"),
        ("images.pullSecrets[0].other=key", "missing property 'name'"),
        ("networkPolicy.metricsFrom[0].other=key", "additional properties 'other' not allowed"),
        ("images.digests.other=sha256:0", "additional properties 'other' not allowed"),
        (
            "networkPolicy.metricsFrom[0].podSelector.matchLabel.a=b",
            "additional properties 'matchLabel' not allowed",
        ),
        ("commonLabels.team=3", "got number, want string"),
        ("users.groups={a}", "additional properties 'groups' not allowed"),
    ],
)
def test_invalid_value_is_refused(value: str, message: str) -> None:
    with pytest.raises(TestbedError, match=message):
        rendered(f"--set={value}")


@pytest.mark.parametrize("value", MALFORMED)
def test_malformed_value_is_refused(value: str) -> None:
    with pytest.raises(TestbedError, match="does not match pattern"):
        rendered(f"--set={value}")


def test_value_may_be_null() -> None:
    """Helm removes it then. What the chart cannot do without is refused with its name."""
    values = ("operator.env", "operator.pod", "networkPolicy.jobsFrom", "images.digests")
    nothing = rendered(*(f"--set={value}=null" for value in values))
    assert nothing == rendered()
    with pytest.raises(TestbedError, match="missing property 'enabled'"):
        rendered("--set=agent.enabled=null")
