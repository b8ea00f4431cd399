"""``make observe``: Railwright's pods, jobs with faults, and a Prometheus that scrapes them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator

import pytest

from fixtures import observed_faults, queries
from railwright_dashboards.generate import DASHBOARDS
from railwright_observe import page, scenario, site
from railwright_observe.site import Site
from railwright_testbed import missing_for_real_nodes, waiting
from railwright_testbed.prometheus import INTERVAL_S

DEADLINE_S = 120.0

MAY_HAPPEN = {"Requests sent again", "Lists and watches that failed, per hour"}
"""Panels that have data if something goes wrong between Railwright and the API server."""

HAPPENED = (
    'railwright_attempts_ended_total{cause="NodeLost"} == 1',
    'railwright_attempts_ended_total{cause="RankFailed"} >= 1',
    'railwright_recovery_seconds_count{cause="NodeLost"} > 0',
    f'railwright_job_restarts_total{{job_name="{scenario.OBSERVED}"}} == 1',
    f'railwright_job_attempts_ended_total{{job_name="{scenario.OBSERVED}", cause="NodeLost"}} == 1',
    "sum(railwright_leader) == 2",
    f'railwright_job_checkpoint_size_bytes{{job_name="{scenario.OBSERVED}"}} > 1000',
    f'railwright_job_step_seconds{{job_name="{scenario.OBSERVED}"}} > 0.2',
    f'railwright_job_predicted_step_seconds{{job_name="{scenario.OBSERVED}"}} > 0.1',
    f'railwright_job_samples_per_second{{job_name="{scenario.OBSERVED}"}} > 1',
)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The cluster after all jobs and faults. npm, which bundles the script of the page, is not
    needed for what the script reads."""
    assert not missing_for_real_nodes()
    built = shutil.copytree(page.SOURCE, tmp_path_factory.mktemp("page") / "built")
    (built / "dist").mkdir()
    for bundled in ("page.js", "page.css"):
        (built / "dist" / bundled).touch()
    with site.running(built, interval_s=INTERVAL_S) as running:
        observed_faults.survey_and_read_gpus(running)
        scenario.play(running.bed, print)
        observed_faults.plug_wrongly(running)
        yield running


def at_some_time(expr: str) -> str:
    """A leader that is replaced takes its series along."""
    return f"count_over_time({queries.numbers(expr)}[30m:5s])"


def test_observed_page_has_all_dashboards(shown: Site) -> None:
    """Its document with all that it names, and each dashboard with queries of this server."""
    document = shown.prometheus.asset("index.html").decode()
    for name in re.findall(r'(?:href|src)="([^":]+)"', document):
        shown.prometheus.asset(name)
    listed = json.loads(shown.prometheus.asset("dashboards.json"))
    assert [each["name"] for each in listed] == [each.uid for each in DASHBOARDS]
    for each in DASHBOARDS:
        found = json.loads(shown.prometheus.asset(f"{each.uid}.json"))
        assert len(found["spec"]["panels"]) == len(each.panels)
        assert shown.prometheus.url in json.dumps(found["spec"]["datasources"])


def test_panels_have_data_of_jobs_with_faults(shown: Site) -> None:
    """Each query of each panel at some time of the run."""
    for expr in HAPPENED:
        shown.prometheus.until(at_some_time(expr), deadline_s=DEADLINE_S)

    def absent() -> set[str]:
        return {
            each.panel.title
            for each in queries.of_panels("default", scenario.OBSERVED)
            if not shown.prometheus.query(at_some_time(each.expr))
        } - MAY_HAPPEN

    waiting.until(
        lambda: not absent(),
        "data of all panels",
        deadline_s=DEADLINE_S,
        evidence=lambda: str(sorted(absent())),
    )
    rules = shown.prometheus.rules()
    assert [rule for rule in rules if rule["health"] != "ok"] == []


def test_observed_pods_are_followed(shown: Site) -> None:
    """The deleted leader is scraped no more, and its successor and the new standby are."""
    prometheus = shown.prometheus
    three = "count(up == 1) == 3"
    prometheus.until(three, deadline_s=DEADLINE_S)
    pods = "count by (pod) (up)"
    before = {each["metric"]["pod"] for each in prometheus.query(pods)}
    leader = scenario.replace_leader(shown.bed.control_plane, print)
    prometheus.until(f'railwright_leader{{pod="{leader}"}} == 1', deadline_s=DEADLINE_S)
    waiting.until(
        lambda: len({each["metric"]["pod"] for each in prometheus.query(pods)} & before) == 2,
        "two of the pods from before",
        deadline_s=DEADLINE_S,
    )
    prometheus.until(three, deadline_s=DEADLINE_S)
