"""The dashboards and the rules in a real Prometheus that scrapes the product's collectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fixtures import queries, scraped_processes
from railwright_dashboards import rules
from railwright_dashboards.generate import FOLDER
from railwright_testbed import prometheus, waiting
from railwright_testbed.prometheus import Prometheus

RULES = FOLDER / "rules.yaml"
CASES = Path(__file__).with_name("alert_cases.yaml")
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def scraping() -> Iterator[Prometheus]:
    """A server that has scraped both processes long enough for every rate."""
    with scraped_processes.serving() as addresses:
        config = {"job_name": "railwright", "static_configs": [{"targets": addresses}]}
        with Prometheus([config], rules=RULES) as server:
            rate = f"rate(railwright_cycle_seconds_count[{queries.RATE_INTERVAL_S}s]) > 0"
            server.until(rate, deadline_s=DEADLINE_S)
            yield server


def test_every_query_of_a_panel_returns_data(scraping: Prometheus) -> None:
    """All series exist here, also those of faults."""

    def empty() -> str:
        job = (scraped_processes.NAMESPACE, scraped_processes.JOB)
        return "\n".join(map(str, queries.without_data(scraping, *job)))

    waiting.until(lambda: not empty(), "data of all queries", deadline_s=30, evidence=empty)


def test_every_rule_is_evaluated_without_error(scraping: Prometheus) -> None:
    def healths() -> list[str]:
        return [rule["health"] for rule in scraping.rules()]

    waiting.until(lambda: "unknown" not in healths(), "evaluated rules", deadline_s=30)
    broken = [rule for rule in scraping.rules() if rule["health"] != "ok"]
    assert not broken
    assert len(healths()) == len(queries.of_rules())


def test_rules_pass_the_check_of_promtool() -> None:
    assert "SUCCESS" in prometheus.promtool("check", "rules", str(RULES))


def test_each_alert_fires_and_is_silent(tmp_path: Path) -> None:
    """Each has a case in which it fires once it holds, and one like it in which it does not."""
    cases: dict[str, Any] = yaml.safe_load(CASES.read_text())
    assert cases.keys() == {alert.name for alert in rules.ALERTS}
    tests = [test for alert in rules.ALERTS for test in _tests(alert, cases[alert.name])]
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": tests}))
    assert "SUCCESS" in prometheus.promtool("test", "rules", str(path))


def _tests(alert: rules.Alert, case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The case that fires, shortly before and after it holds; and the silent one."""
    labels = {"severity": alert.severity.value, **case.get("labels", {})}
    fires = {"exp_labels": labels, "exp_annotations": case["texts"] | {"runbook": alert.runbook}}
    yield {
        "name": f"{alert.name} fires",
        "interval": "1m",
        "input_series": [{"series": k, "values": v} for k, v in case["fires"].items()],
        "alert_rule_test": [
            {"eval_time": case["before"], "alertname": alert.name, "exp_alerts": []},
            {"eval_time": case["at"], "alertname": alert.name, "exp_alerts": [fires]},
        ],
    }
    yield {
        "name": f"{alert.name} is silent",
        "interval": "1m",
        "input_series": [{"series": k, "values": v} for k, v in case["silent"].items()],
        "alert_rule_test": [
            {"eval_time": case["at"], "alertname": alert.name, "exp_alerts": []},
        ],
    }
