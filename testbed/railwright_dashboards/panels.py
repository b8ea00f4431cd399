"""Dashboards as values: panels with their queries, units and descriptions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum

ROW_WIDTH = 24
"""Columns of Grafana's grid."""

PANELS_MAX = 16
"""A page that a person reads from top to bottom."""


class Unit(StrEnum):
    """Grafana's names of the units that the series have."""

    COUNT = "short"
    SHARE = "percentunit"
    SECONDS = "s"
    DURATION = "dtdurations"
    SINCE = "dateTimeFromNow"
    BYTES = "bytes"
    PER_SECOND = "cps"
    REQUESTS = "reqps"


class Kind(StrEnum):
    """How a panel shows its series."""

    NUMBER = "stat"
    LINES = "timeseries"
    AREAS = "stacked timeseries"
    BARS = "bargauge"
    STATES = "state-timeline"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL expression. ``legend`` names each series by its labels, such as ``{{phase}}``."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. ``alarm`` is the value from which a number is red. ``column`` is the heading of
    the values in a table; empty: a table of labels alone. ``may_be_empty``: the series of a query
    do not exist in every cluster, or not at all times."""

    title: str
    description: str
    kind: Kind
    unit: Unit
    queries: tuple[Query, ...]
    _: KW_ONLY
    width: int = ROW_WIDTH // 2
    alarm: float | None = None
    column: str = ""
    may_be_empty: bool = False

    @property
    def height(self) -> int:
        """Rows of the grid."""
        return 4 if self.kind is Kind.NUMBER else 8


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice above the panels: the values of ``label`` of the series that match ``selector``."""

    label: str
    title: str
    selector: str


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One page, in the order of the questions that a person comes with."""

    uid: str
    title: str
    description: str
    panels: tuple[Panel, ...]
    variables: tuple[Variable, ...] = ()

    @property
    def queries(self) -> Iterator[tuple[Panel, Query]]:
        """All queries, with their panels."""
        return ((panel, query) for panel in self.panels for query in panel.queries)


def number(
    title: str,
    expr: str,
    description: str,
    unit: Unit = Unit.COUNT,
    *,
    legend: str = "",
    alarm: float | None = None,
    may_be_empty: bool = False,
) -> Panel:
    """A quarter of a row with one number, red from ``alarm`` on."""
    return Panel(
        title,
        description,
        Kind.NUMBER,
        unit,
        (Query(expr, legend or title),),
        width=ROW_WIDTH // 4,
        alarm=alarm,
        may_be_empty=may_be_empty,
    )


def lines(
    title: str,
    queries: dict[str, str],
    description: str,
    unit: Unit = Unit.COUNT,
    *,
    may_be_empty: bool = False,
) -> Panel:
    """Half a row with the course of some series: their legends, and what they show."""
    found = tuple(Query(expr, legend) for legend, expr in queries.items())
    return Panel(title, description, Kind.LINES, unit, found, may_be_empty=may_be_empty)


def areas(
    title: str, expr: str, legend: str, description: str, *, may_be_empty: bool = False
) -> Panel:
    """Half a row with series that add up."""
    query = Query(expr, legend)
    return Panel(title, description, Kind.AREAS, Unit.COUNT, (query,), may_be_empty=may_be_empty)


def bars(title: str, expr: str, legend: str, description: str, unit: Unit = Unit.COUNT) -> Panel:
    """Half a row with the newest values side by side."""
    return Panel(title, description, Kind.BARS, unit, (Query(expr, legend),))


def table(
    title: str,
    expr: str,
    description: str,
    unit: Unit = Unit.COUNT,
    *,
    column: str = "Value",
    may_be_empty: bool = False,
) -> Panel:
    """Half a row with all labels, and the newest values in a column of this heading."""
    query = Query(expr, "")
    return Panel(
        title,
        description,
        Kind.TABLE,
        unit,
        (query,),
        column=column,
        may_be_empty=may_be_empty,
    )


def quantiles(
    series: str, *shares: float, by: str = "", window: str = "$__rate_interval"
) -> dict[str, str]:
    """Quantiles of a histogram by their legends. What happens a few times a day needs a window of
    an hour: in most shorter ones there is nothing. With ``by``, labels without any observation
    have no series."""
    labels, legend = (f"le, {by}", f" {{{{{by}}}}}") if by else ("le", "")
    buckets = f"sum by ({labels}) (rate({series}_bucket[{window}]))"
    observed = " >= 0" if by else ""
    return {
        f"p{share * 100:g}{legend}": f"histogram_quantile({share}, {buckets}){observed}"
        for share in shares
    }


def mean(series: str, *, by: str, window: str) -> dict[str, str]:
    """The mean of a histogram for each value of a label that has an observation, by its legend."""
    total, count = (f"sum by ({by}) (rate({series}_{each}[{window}]))" for each in ("sum", "count"))
    return {f"mean {{{{{by}}}}}": f"{total} / {count} >= 0"}
