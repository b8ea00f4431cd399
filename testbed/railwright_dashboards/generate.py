"""``make generate`` writes the dashboards and the rules as files: ``dashboards/`` has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from railwright_dashboards import fabric, fleet, job, operator, queue, recovery, render, rules
from railwright_dashboards.panels import Dashboard

FOLDER = Path(__file__).resolve().parents[2] / "dashboards"

DASHBOARDS: tuple[Dashboard, ...] = tuple(
    module.DASHBOARD for module in (fleet, fabric, queue, job, recovery, operator)
)


def files() -> dict[str, str]:
    """The content of each file, by its name."""
    return {
        **{f"{each.uid}.json": render.rendered(each) for each in DASHBOARDS},
        "rules.yaml": _yaml(rules.rule_groups()),
        "kustomization.yaml": _yaml(_config_maps()),
    }


def _config_maps() -> dict[str, Any]:
    """The kustomization that makes ConfigMaps of them, for the sidecar of Grafana's chart."""
    return {
        "generatorOptions": {
            "disableNameSuffixHash": True,
            "labels": {"grafana_dashboard": "1"},
        },
        "configMapGenerator": [
            {"name": f"{each.uid}-dashboard", "files": [f"{each.uid}.json"]} for each in DASHBOARDS
        ],
    }


def _yaml(value: dict[str, Any]) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=100, allow_unicode=True)


if __name__ == "__main__":
    for name, text in files().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
