"""Rules for dashboards and alerts, after those of Grafana's linter."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from architecture import metrics_page, tree
from railwright_controllers.report import fabric_metrics
from railwright_dashboards import render, rules
from railwright_dashboards.generate import DASHBOARDS
from railwright_dashboards.panels import PANELS_MAX, ROW_WIDTH, Dashboard, Kind, Unit
from railwright_operator.report import fleet_metrics
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.model.snapshot import Unavailable

SERIES = re.compile(r"\b(?:railwright|process)_[a-z_]+")
COUNTER = re.compile(r"\b(rate|increase)\(([a-z_]+)")
SUFFIXES = ("_bucket", "_sum", "_count")
GROUPED = re.compile(r"\b(?:by|on) \(([a-z_, ]*)\)")
SELECTED = re.compile(r"([a-z_]+)(?:=~|!=|=)\"")
SHOWN = re.compile(r"{{ ?(?:\$labels\.)?([a-z_]+) ?}}")
OF_TARGETS = {"instance"}
OF_THE_CLIENT = {"process_resident_memory_bytes", "process_cpu_seconds_total"}

FORBIDDEN = re.compile(r"\b(irate|quantile_over_time|label_replace)\(")

each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)


def types() -> dict[str, str]:
    """The type of every series."""
    found = (*metrics_page.operator(), *metrics_page.controllers())
    return {each.name: each.type for each in found}


def expressions() -> list[str]:
    """The queries of panels and rules."""
    queries = [query.expr for dashboard in DASHBOARDS for _, query in dashboard.queries]
    alerts = [alert.expr for alert in rules.ALERTS]
    return [*queries, *rules.RECORDINGS.values(), *alerts]


def test_states_and_phases_have_colors() -> None:
    """With those that Grafana chooses by the order of series, a lost node may be green."""
    nodes = {fleet_metrics._state(state) for state in (None, *Unavailable)}
    samples = fabric_metrics._fabric({"agents": {"nodes": 2, "silent": 1}})
    agents = {labels[0] for name, _, labels in samples if name == "fabric_agents"}
    colors = {label: {*names} for label, names in render.SERIES_COLORS.items()}
    assert colors == {"state": nodes | agents, "phase": {*Phase}}


def test_there_is_a_page_for_each_question() -> None:
    assert len({each.uid for each in DASHBOARDS}) == len(DASHBOARDS) == 6
    assert sum(len(each.panels) for each in DASHBOARDS) >= 40


@each_dashboard
def test_page_is_short_and_each_panel_explains_itself(dashboard: Dashboard) -> None:
    assert 0 < len(dashboard.panels) <= PANELS_MAX
    assert dashboard.description.endswith("?")
    titles = [panel.title for panel in dashboard.panels]
    assert len(set(titles)) == len(titles)
    for panel in dashboard.panels:
        assert panel.description.endswith("."), panel.title
        assert panel.queries, panel.title
        legends = [query.legend for query in panel.queries]
        assert len(set(legends)) == len(legends)
        assert all(legends) or panel.kind is Kind.TABLE, panel.title


@each_dashboard
def test_file_follows_the_rules_of_grafana(dashboard: Dashboard) -> None:
    """Every panel queries the data source that the user chose, and none overlaps another."""
    found: dict[str, Any] = json.loads(render.rendered(dashboard))
    assert not found["editable"]
    assert found["uid"] == dashboard.uid
    assert found["links"][0]["tags"] == found["tags"] == [render.TAG]
    names = [each["name"] for each in found["templating"]["list"]]
    assert names == [render.DATASOURCE, *(each.label for each in dashboard.variables)]
    panels = found["panels"]
    assert len({panel["id"] for panel in panels}) == len(dashboard.panels)
    cells: set[tuple[int, int]] = set()
    for panel, written in zip(dashboard.panels, panels, strict=True):
        sources = [written["datasource"], *(each["datasource"] for each in written["targets"])]
        assert {each["uid"] for each in sources} == {"${datasource}"}
        assert [each["expr"] for each in written["targets"]] == [q.expr for q in panel.queries]
        assert written["fieldConfig"]["defaults"]["unit"] in {unit.value for unit in Unit}
        at = written["gridPos"]
        own = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not own & cells, panel.title
        assert at["x"] + at["w"] <= ROW_WIDTH
        cells |= own


def test_series_of_every_expression_exist() -> None:
    defined = {*types(), *OF_THE_CLIENT}
    for expr in expressions():
        assert not FORBIDDEN.search(expr), expr
        for name in SERIES.findall(expr):
            base = name
            for suffix in SUFFIXES:
                if name not in defined:
                    base = base.removesuffix(suffix)
            assert base in defined, f"{name} in {expr}"


def test_labels_of_every_expression_exist() -> None:
    """Those that are grouped by, matched, selected, or in a legend: an unknown one is empty."""
    found = (*metrics_page.operator(), *metrics_page.controllers())
    labels = {each.name: {*each.labels, *OF_TARGETS} for each in found}
    queries = [query for dashboard in DASHBOARDS for _, query in dashboard.queries]
    texts = [(query.expr, query.legend) for query in queries]
    texts += [(alert.expr, alert.summary + alert.description) for alert in rules.ALERTS]
    texts += [(expr, "") for expr in rules.RECORDINGS.values()]
    for expr, text in texts:
        series = [next(s for s in _bare(name) if s in labels) for name in _of_ours(expr)]
        allowed = {"le"}.union(*(labels[name] for name in series))
        grouped = {label for group in GROUPED.findall(expr) for label in group.split(", ") if label}
        used = grouped | {*SELECTED.findall(expr)} | {*SHOWN.findall(text)}
        assert used <= allowed, (expr, text, used - allowed)


def _bare(name: str) -> list[str]:
    """A series, and the histogram that it may be a part of."""
    return [name, *(name.removesuffix(suffix) for suffix in SUFFIXES if name.endswith(suffix))]


def _of_ours(expr: str) -> list[str]:
    return [name for name in SERIES.findall(expr) if name.startswith("railwright_")]


def test_rates_are_of_counters() -> None:
    kinds = types()
    for expr in expressions():
        for _, name in COUNTER.findall(expr):
            of_series = {kinds[bare] for bare in _bare(name) if bare in kinds}
            assert of_series & {"counter", "histogram"} or name in OF_THE_CLIENT, expr


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    pages = {path.name: path for path in (tree.ROOT / rules.RUNBOOKS).glob("*.md")}
    assert pages.keys() == {f"{alert.name}.md" for alert in rules.ALERTS}
    for alert in rules.ALERTS:
        text = pages[f"{alert.name}.md"].read_text(encoding="utf-8")
        assert text.startswith(f"# {alert.name}\n")
        for heading in ("Effect", "Find the cause", "What to do"):
            assert f"\n## {heading}\n" in text, alert.name
