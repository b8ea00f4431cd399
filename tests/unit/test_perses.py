"""The translation of the dashboards for the local page."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from railwright_dashboards import render
from railwright_dashboards.generate import DASHBOARDS
from railwright_dashboards.panels import Dashboard, Kind
from railwright_observe import perses

PLUGINS = {
    Kind.NUMBER: "StatChart",
    Kind.LINES: "TimeSeriesChart",
    Kind.AREAS: "TimeSeriesChart",
    Kind.BARS: "BarChart",
    Kind.STATES: "StatusHistoryChart",
    Kind.TABLE: "Table",
}

each_dashboard = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.uid)


def translated(written: dict[str, Any]) -> dict[str, Any]:
    found = perses.translate(written, prometheus="http://p", interval_s=5, range_s=600)
    spec: dict[str, Any] = found["spec"]
    return spec


def written(dashboard: Dashboard) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(render.rendered(dashboard))
    return found


@each_dashboard
def test_every_panel_is_translated(dashboard: Dashboard) -> None:
    """With its kind, its queries and its place."""
    spec = translated(written(dashboard))
    (grid,) = spec["layouts"]
    items = grid["spec"]["items"]
    assert len({item["content"]["$ref"] for item in items}) == len(dashboard.panels)
    for panel, item in zip(dashboard.panels, items, strict=True):
        found = spec["panels"][item["content"]["$ref"].removeprefix("#/spec/panels/")]["spec"]
        assert found["display"]["name"] == panel.title
        assert found["plugin"]["kind"] == PLUGINS[panel.kind]
        queries = [each["spec"]["plugin"]["spec"] for each in found["queries"]]
        if not found["plugin"]["spec"].get("querySettings"):
            assert [each["query"] for each in queries] == [query.expr for query in panel.queries]
            legends = [query.legend for query in panel.queries]
            assert [each["seriesNameFormat"] for each in queries] == legends
        assert (item["width"], item["height"]) == (panel.width, panel.height)


def test_every_kind_of_panel_is_on_a_dashboard() -> None:
    used = Counter(panel.kind for dashboard in DASHBOARDS for panel in dashboard.panels)
    assert used.keys() == PLUGINS.keys()


@each_dashboard
def test_choices_are_translated(dashboard: Dashboard) -> None:
    variables = [each["spec"] for each in translated(written(dashboard))["variables"]]
    found = [(v["name"], v["plugin"]["spec"]) for v in variables]
    assert found == [
        (v.label, {"labelName": v.label, "matchers": [v.selector]}) for v in dashboard.variables
    ]


def test_series_with_colors_have_queries_of_their_own() -> None:
    """As a color of Perses is of a query."""
    seen = set()
    for dashboard in DASHBOARDS:
        found = list(translated(written(dashboard))["panels"].values())
        for panel, each in zip(dashboard.panels, found, strict=True):
            label = panel.queries[0].legend.strip("{}")
            names = render.SERIES_COLORS.get(label, {})
            settings = each["spec"]["plugin"]["spec"].get("querySettings")
            if panel.kind not in (Kind.LINES, Kind.AREAS) or not names:
                assert not settings, panel.title
                continue
            seen.add(label)
            queries = [
                query["spec"]["plugin"]["spec"]["query"] for query in each["spec"]["queries"]
            ]
            assert queries == [
                f"({panel.queries[0].expr}) and on ({label}) "
                f'label_replace(vector(0), "{label}", "{name}", "", "")'
                for name in names
            ]
            chosen = [(one["queryIndex"], one["colorValue"]) for one in settings]
            colors = [perses.COLORS[color] for color in names.values()]
            assert chosen == [*enumerate(colors)]
    assert seen == {"state", "phase"}


def test_columns_have_the_order_of_the_query() -> None:
    (queue,) = (each for each in DASHBOARDS if each.uid == "railwright-queue")
    (table,) = (
        panel["spec"]["plugin"]["spec"]
        for panel in translated(written(queue))["panels"].values()
        if panel["spec"]["display"]["name"] == "Jobs that wait"
    )
    headers = [column["header"] for column in table["columnSettings"] if "header" in column]
    assert headers == ["Namespace", "Job", "Reason", "Waits for"]


def test_stacked_and_red_stay() -> None:
    """What a colour and an area say is not lost."""
    for dashboard in DASHBOARDS:
        found = list(translated(written(dashboard))["panels"].values())
        for panel, each in zip(dashboard.panels, found, strict=True):
            spec = each["spec"]["plugin"]["spec"]
            if panel.kind is Kind.NUMBER:
                steps = [step["value"] for step in spec["thresholds"]["steps"]]
                assert steps == ([] if panel.alarm is None else [panel.alarm]), panel.title
            if panel.kind in (Kind.LINES, Kind.AREAS):
                is_stacked = spec["visual"]["stack"] == "all"
                assert is_stacked == (panel.kind is Kind.AREAS), panel.title


@pytest.mark.parametrize("change", [{"type": "heatmap"}, {"unit": "furlongs"}])
def test_unknown_kinds_and_units_are_refused(change: dict[str, str]) -> None:
    whole = written(DASHBOARDS[0])
    panel = whole["panels"][0]
    if "unit" in change:
        panel["fieldConfig"]["defaults"].update(change)
    else:
        panel.update(change)
    with pytest.raises(KeyError, match=r"heatmap|furlongs"):
        translated(whole)
