"""``docs/reference/alerts.md``, made from the rules: ``make generate`` writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from architecture import tree
from architecture.markdown import table
from railwright_dashboards.rules import ALERTS, RECORDINGS, Alert

PAGE = tree.ROOT / "docs/reference/alerts.md"

HEAD = """# Alerts

The Prometheus rules of [dashboards/rules.yaml](../../dashboards/rules.yaml). [Dashboards and \
alerts](../dashboards.md) describes how to load them. A person should look at a critical alert \
now, at a warning today, and at the others when there is time.
"""

RECORDED = """
## Recorded series

The rules also record these series, for long times:
"""

_TEMPLATE = re.compile(r"{{[^}]*}}")


def rendered() -> str:
    """The text of the page."""
    rows = [
        (f"[{each.name}](#{each.name.lower()})", each.severity.value, _text(each.summary))
        for each in ALERTS
    ]
    recorded = [(f"`{name}`", f"`{expr}`") for name, expr in RECORDINGS.items()]
    return "".join(
        [
            HEAD,
            table(("alert", "severity", "summary"), rows),
            *(line for alert in ALERTS for line in _section(alert)),
            RECORDED,
            table(("series", "expression"), recorded),
        ]
    )


def _section(alert: Alert) -> Iterator[str]:
    after = "at once" if alert.holds == "0m" else f"after {alert.holds}"
    yield f"\n## {alert.name}\n\n{_text(alert.summary)}. {_text(alert.description)}\n"
    yield f"\n- Severity: {alert.severity.value}; it fires {after}\n"
    yield f"- Runbook: [{alert.name}](../runbooks/{alert.name}.md)\n"
    yield f"\n```\n{alert.expr}\n```\n"


def _text(template: str) -> str:
    """The text with ``…`` for what Prometheus fills in."""
    return _TEMPLATE.sub("…", template)
