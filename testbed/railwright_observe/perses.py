"""Translate a dashboard in Grafana's JSON into one of Perses, which draws it on the page.

Kinds of panels, units and options that no dashboard has are not translated: they raise KeyError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Json = dict[str, Any]

PROJECT = "railwright"
"""Perses sorts dashboards into projects."""

SOURCE = "PrometheusDatasource"
QUERY = "PrometheusTimeSeriesQuery"
VARIABLE = "PrometheusLabelValuesVariable"
VALUES_OF = re.compile(r"label_values\((?P<selector>.*), (?P<label>\w+)\)")

UNITS: Mapping[str, Json] = {
    "short": {"unit": "decimal", "shortValues": True},
    "percentunit": {"unit": "percent-decimal"},
    "s": {"unit": "seconds"},
    "dtdurations": {"unit": "seconds"},
    "bytes": {"unit": "bytes"},
    "cps": {"unit": "counts/sec"},
    "reqps": {"unit": "requests/sec"},
}
COLORS = {
    "blue": "#1565c0",
    "green": "#2e7d32",
    "light-blue": "#4fc3f7",
    "light-green": "#9ccc65",
    "orange": "#ef6c00",
    "purple": "#7b1fa2",
    "red": "#c62828",
    "semi-dark-green": "#1b5e20",
    "text": "#37474f",
    "yellow": "#f9a825",
}


def translate(dashboard: Json, *, prometheus: str, interval_s: int, range_s: int) -> Json:
    """The dashboard, with this address of Prometheus, the interval of its scrapes, and the time
    that the panels show at first."""
    panels = {f"panel{panel['id']}": _panel(panel) for panel in dashboard["panels"]}
    items = [_place(panel["gridPos"], f"panel{panel['id']}") for panel in dashboard["panels"]]
    source = {"directUrl": prometheus, "scrapeInterval": f"{interval_s}s"}
    return {
        "kind": "Dashboard",
        "metadata": {"name": dashboard["uid"], "project": PROJECT},
        "spec": {
            "display": {"name": dashboard["title"], "description": dashboard["description"]},
            "datasources": {"prometheus": {"default": True, "plugin": _plugin(SOURCE, source)}},
            "variables": [
                _variable(each)
                for each in dashboard["templating"]["list"]
                if each["type"] != "datasource"
            ],
            "panels": panels,
            "layouts": [{"kind": "Grid", "spec": {"items": items}}],
            "duration": f"{range_s}s",
            "refreshInterval": f"{10 * interval_s}s",
        },
    }


def _plugin(kind: str, spec: Json) -> Json:
    return {"kind": kind, "spec": spec}


def _place(at: Json, panel: str) -> Json:
    content = {"$ref": f"#/spec/panels/{panel}"}
    return {"x": at["x"], "y": at["y"], "width": at["w"], "height": at["h"], "content": content}


def _variable(variable: Json) -> Json:
    found = VALUES_OF.fullmatch(variable["query"]["query"])
    if found is None:
        raise KeyError(variable["query"]["query"])
    values = {"labelName": found["label"], "matchers": [found["selector"]]}
    spec = {
        "name": variable["name"],
        "display": {"name": variable["label"]},
        "allowMultiple": False,
        "allowAllValue": False,
        "sort": "alphabetical-asc",
        "plugin": _plugin(VARIABLE, values),
    }
    return {"kind": "ListVariable", "spec": spec}


def _panel(panel: Json) -> Json:
    queries = [
        _plugin("TimeSeriesQuery", {"plugin": _plugin(QUERY, query)})
        for query in _queries(panel, _fixed_colors(panel))
    ]
    spec = {
        "display": {"name": panel["title"], "description": panel["description"]},
        "plugin": PLUGINS[panel["type"]](panel),
        "queries": queries,
    }
    return {"kind": "Panel", "spec": spec}


def _fixed_colors(panel: Json) -> dict[str, str]:
    """The colors of series by their names, if the panel has any."""
    overrides = panel["fieldConfig"]["overrides"] if panel["type"] == "timeseries" else ()
    return {
        each["matcher"]["options"]: COLORS[given["value"]["fixedColor"]]
        for each in overrides
        for given in each["properties"]
        if given["id"] == "color"
    }


def _queries(panel: Json, colors: Mapping[str, str]) -> Iterator[Json]:
    """Perses gives a color to a query, so each series that has one gets a query of its own."""
    for target in panel["targets"]:
        legend = target.get("legendFormat", "")
        label = legend.strip("{}")
        for name in colors:
            named = f'label_replace(vector(0), "{label}", "{name}", "", "")'
            yield {
                "query": f"({target['expr']}) and on ({label}) {named}",
                "seriesNameFormat": legend,
            }
        if not colors:
            yield {"query": target["expr"], "seriesNameFormat": legend}


def _format(panel: Json) -> Json:
    return UNITS[panel["fieldConfig"]["defaults"]["unit"]]


def _number(panel: Json) -> Json:
    first, *steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    thresholds = {
        "defaultColor": COLORS[first["color"]],
        "steps": [{"value": each["value"], "color": COLORS[each["color"]]} for each in steps],
    }
    spec = {"calculation": "last", "format": _format(panel), "thresholds": thresholds}
    return _plugin("StatChart", spec)


def _lines(panel: Json) -> Json:
    custom = panel["fieldConfig"]["defaults"]["custom"]
    is_stacked = custom.get("stacking", {}).get("mode") == "normal"
    visual = {
        "areaOpacity": custom["fillOpacity"] / 100 if is_stacked else 0,
        "stack": "all" if is_stacked else "none",
        "lineWidth": 1.5,
        "connectNulls": False,
        # The palette in its order: a color made of a name may be that of its neighbour.
        "palette": {"mode": "categorical"},
    }
    spec = {
        "legend": {"position": "bottom", "mode": "list", "size": "small"},
        "yAxis": {"show": True, "format": _format(panel), "min": 0},
        "visual": visual,
        "querySettings": [
            {"queryIndex": number, "colorMode": "fixed", "colorValue": color}
            for number, color in enumerate(_fixed_colors(panel).values())
        ],
    }
    return _plugin("TimeSeriesChart", spec)


def _bars(panel: Json) -> Json:
    spec = {"calculation": "last", "format": _format(panel), "sort": "desc", "mode": "value"}
    return _plugin("BarChart", spec)


def _states(_panel: Json) -> Json:
    return _plugin("StatusHistoryChart", {})


def _table(panel: Json) -> Json:
    """Labels first, as in Grafana: Perses appends the columns that have no settings."""
    (organized,) = (each["options"] for each in panel["transformations"])
    names = dict(sorted(organized["renameByName"].items(), key=_position(organized)))
    heading = names.pop("Value", "")
    value: Json = {"name": "value", "format": _format(panel)}
    if "Value" in organized["excludeByName"]:
        value["hide"] = True
    else:
        value["header"] = heading
    columns = [
        *({"name": label, "header": header} for label, header in names.items()),
        value,
        {"name": "timestamp", "hide": True},
    ]
    return _plugin("Table", {"density": "compact", "columnSettings": columns})


def _position(organized: Json) -> Callable[[tuple[str, str]], int]:
    positions: Mapping[str, int] = organized["indexByName"]
    return lambda column: positions[column[0]]


PLUGINS: Mapping[str, Callable[[Json], Json]] = {
    "stat": _number,
    "timeseries": _lines,
    "bargauge": _bars,
    "state-timeline": _states,
    "table": _table,
}
"""The panels of Perses, by the kind of panel in Grafana."""
