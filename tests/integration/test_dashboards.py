"""The dashboards and the rules in a real Prometheus that scrapes the product's collectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from architecture import tree
from fixtures import alert_cases, queries, scraped_processes
from railwright_dashboards import rules
from railwright_testbed import prometheus, waiting
from railwright_testbed.prometheus import Prometheus


@pytest.fixture(scope="module")
def scraping() -> Iterator[Prometheus]:
    with scraped_processes.scraped() as server:
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
    assert len(healths()) == len(rules.ALERTS) + len(rules.RECORDINGS)


def test_every_recorded_series_has_data(scraping: Prometheus) -> None:
    """A rule without a result is as healthy as any other."""

    def empty() -> str:
        return "\n".join(queries.recordings_without_data(scraping))

    waiting.until(lambda: not empty(), "recorded series", deadline_s=30, evidence=empty)


def test_rules_pass_the_check_of_promtool() -> None:
    assert "SUCCESS" in prometheus.promtool("check", "rules", str(alert_cases.RULES))


def test_example_of_scrapes_passes_the_check_of_promtool(tmp_path: Path) -> None:
    """But for the discovery of pods, which Debian's Prometheus does not have."""
    found = yaml.safe_load((tree.ROOT / "examples/prometheus.yaml").read_text())
    for each in found["scrape_configs"]:
        del each["kubernetes_sd_configs"]
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump(found))
    assert "SUCCESS" in prometheus.promtool("check", "config", "--syntax-only", str(file))


def test_each_alert_fires_and_is_silent(tmp_path: Path) -> None:
    """Each has a case in which it fires once it holds, and one like it in which it does not."""
    assert alert_cases.read().keys() == {alert.name for alert in rules.ALERTS}
    assert alert_cases.run(tmp_path) == [alert.name for alert in rules.ALERTS]
