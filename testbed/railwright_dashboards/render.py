"""Render dashboards as Grafana's JSON, in the classic form that Grafana 10 to 13 read."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from typing import Any

with warnings.catch_warnings():
    # The form that replaces the classic one is not read by the Grafana that most sites run.
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.builders import (
        bargauge,
        common,
        prometheus,
        stat,
        statetimeline,
        timeseries,
    )
    from grafana_foundation_sdk.builders import dashboard as builders
    from grafana_foundation_sdk.builders import table as tables
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models import common as values
    from grafana_foundation_sdk.models import dashboard as parts
    from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from railwright_dashboards.panels import ROW_WIDTH, Dashboard, Kind, Panel, Query, Variable

TAG = "railwright"
DATASOURCE = "datasource"
SOURCE = values.DataSourceRef(type_val="prometheus", uid=f"${{{DATASOURCE}}}")
REFRESH = "30s"
GREEN, RED, NEUTRAL = "green", "red", "text"
HEADINGS = {"node_name": "Node", "job_name": "Job", "job_namespace": "Namespace"}
"""Of labels in tables. All others are words already."""

SERIES_COLORS = {
    "state": {
        "Available": "green",
        "Cordoned": "yellow",
        "Unready": "orange",
        "Lost": "red",
        "DoubleBooked": "purple",
        "Reporting": "green",
        "Silent": "orange",
    },
    "phase": {
        "Queued": "blue",
        "Profiling": "light-blue",
        "Starting": "light-green",
        "Running": "green",
        "Recovering": "orange",
        "Suspended": "yellow",
        "Succeeded": "semi-dark-green",
        "Failed": "red",
    },
}
"""Of all values of a label, on every page the same: a lost node is not green."""

GROUPED = re.compile(r"\bby \(([a-z_, ]+)\)")

BUILDERS: dict[Kind, Any] = {
    Kind.NUMBER: stat.Panel,
    Kind.LINES: timeseries.Panel,
    Kind.AREAS: timeseries.Panel,
    Kind.BARS: bargauge.Panel,
    Kind.STATES: statetimeline.Panel,
    Kind.TABLE: tables.Panel,
}


def rendered(dashboard: Dashboard) -> str:
    """The file of a dashboard."""
    built = _builder(dashboard).build()
    return json.dumps(built, cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _builder(dashboard: Dashboard) -> builders.Dashboard:
    found = (
        builders.Dashboard(dashboard.title)
        .uid(dashboard.uid)
        .description(dashboard.description)
        .tags([TAG])
        .readonly()
        .refresh(REFRESH)
        .time("now-6h", "now")
        .timezone("browser")
        .tooltip(parts.DashboardCursorSync.CROSSHAIR)
        .link(
            builders.DashboardLink("Railwright")
            .type(parts.DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .keep_time(True)
            .as_dropdown(True)
            .placement("")
        )
        .with_variable(
            builders.DatasourceVariable(DATASOURCE).label("Data source").type("prometheus")
        )
    )
    for variable in dashboard.variables:
        found = found.with_variable(_variable(variable))
    for panel, position in zip(dashboard.panels, _positions(dashboard.panels), strict=True):
        found = found.with_panel(_panel(panel, position))
    return found


def _variable(variable: Variable) -> builders.QueryVariable:
    query = f"label_values({variable.selector}, {variable.label})"
    return (
        builders.QueryVariable(variable.label)
        .label(variable.title)
        .datasource(SOURCE)
        .query({"query": query, "refId": variable.label})
        .definition(query)
        .refresh(parts.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(parts.VariableSort.ALPHABETICAL_ASC)
    )


def _positions(panels: Sequence[Panel]) -> list[parts.GridPos]:
    """Panels from left to right, in rows as high as their highest panel."""
    positions: list[parts.GridPos] = []
    x = y = height = 0
    for panel in panels:
        if x + panel.width > ROW_WIDTH:
            x, y, height = 0, y + height, 0
        positions.append(parts.GridPos(h=panel.height, w=panel.width, x=x, y=y))
        x, height = x + panel.width, max(height, panel.height)
    return positions


def _panel(panel: Panel, position: parts.GridPos) -> Any:
    number = 100 * position.y + position.x + 1
    found = (
        BUILDERS[panel.kind]()
        .id(number)
        .title(panel.title)
        .description(panel.description)
        .datasource(SOURCE)
        .unit(panel.unit.value)
        .no_value("none")
        .grid_pos(position)
        .thresholds(_thresholds(panel))
    )
    for name, query in zip("ABCDEFGH", panel.queries, strict=False):
        found = found.with_target(_query(panel, query).ref_id(name))
    if panel.kind is Kind.NUMBER:
        found = found.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    if panel.kind is Kind.TABLE:
        found = found.with_transformation(_columns(panel))
    for name, color in SERIES_COLORS.get(panel.queries[0].legend.strip("{}"), {}).items():
        fixed = {"mode": "fixed", "fixedColor": color}
        found = found.override_by_name(name, [parts.DynamicConfigValue("color", fixed)])
    if panel.kind is Kind.STATES:
        found = found.show_value(values.VisibilityMode.NEVER)
    if panel.kind in (Kind.LINES, Kind.AREAS):
        found = found.legend(_legend()).min(0).show_points(values.VisibilityMode.AUTO)
    if panel.kind is Kind.AREAS:
        stacking = common.StackingConfig().mode(values.StackingMode.NORMAL)
        found = found.stacking(stacking).fill_opacity(40)
    return found


def _query(panel: Panel, query: Query) -> prometheus.Dataquery:
    found = prometheus.Dataquery().expr(query.expr).datasource(SOURCE)
    if query.legend:
        found = found.legend_format(query.legend)
    if panel.kind is Kind.TABLE:
        return found.instant().format(PromQueryFormat.TABLE)
    # The newest value of a range may be hours old: its series may have ended.
    return found.instant() if panel.kind in (Kind.BARS, Kind.NUMBER) else found.range()


def _columns(panel: Panel) -> parts.DataTransformerConfig:
    """Labels, and the values if their column has a heading. All have the same time."""
    hidden = {"Time": True} if panel.column else {"Time": True, "Value": True}
    renamed = {label: _heading(label) for label in _labels(panel.queries[0].expr)}
    renamed |= {"Value": panel.column} if panel.column else {}
    positions = {name: number for number, name in enumerate(renamed)}
    options = {"excludeByName": hidden, "indexByName": positions, "renameByName": renamed}
    return parts.DataTransformerConfig(id_val="organize", options=options)


def _labels(expr: str) -> list[str]:
    """The labels by which a query groups, the outermost first."""
    found = (label for group in GROUPED.findall(expr) for label in group.split(", "))
    return [*dict.fromkeys(found)]


def _heading(label: str) -> str:
    """The heading of a label's column in a table."""
    return HEADINGS.get(label, label.capitalize())


def _legend() -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(values.LegendDisplayMode.LIST)
        .placement(values.LegendPlacement.BOTTOM)
    )


def _thresholds(panel: Panel) -> builders.ThresholdsConfig:
    good = NEUTRAL if panel.alarm is None else GREEN
    steps = [parts.Threshold(value=None, color=good)]
    if panel.alarm is not None:
        steps.append(parts.Threshold(value=panel.alarm, color=RED))
    return builders.ThresholdsConfig().mode(parts.ThresholdsMode.ABSOLUTE).steps(steps)
