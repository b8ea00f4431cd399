"""``docs/metrics.md``, made from the code: ``make generate`` writes it.

Its series are those of the collectors that the two processes construct.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.registry import Collector

from architecture import tree
from railwright_controllers.metrics import ControllerMetrics
from railwright_controllers.report.fabric_metrics import FabricMetrics
from railwright_controllers.watch.fabric import FabricCache
from railwright_operator.metrics import Metrics
from railwright_operator.report.attempt_metrics import AttemptMetrics
from railwright_operator.report.cycle_metrics import CycleMetrics
from railwright_operator.report.fleet_metrics import FleetMetrics
from railwright_operator.report.job_metrics import LABELS, JobMetrics
from railwright_process.process_metrics import ProcessMetrics

PAGE = tree.ROOT / "docs/metrics.md"

CAUSES, REASONS = "glossary.md#why-an-attempt-ended", "glossary.md#why-a-job-waits"

LINKS = {
    ("railwright_attempts_ended_total", "cause"): CAUSES,
    ("railwright_detection_seconds", "cause"): CAUSES,
    ("railwright_recovery_seconds", "cause"): CAUSES,
    ("railwright_job_last_termination_timestamp_seconds", "cause"): CAUSES,
    ("railwright_job_waiting_since_timestamp_seconds", "reason"): REASONS,
    ("railwright_jobs_waiting", "reason"): REASONS,
    ("railwright_decisions_total", "outcome"): REASONS,
}
"""Where the values of a label are listed."""

HEAD = """# Metrics

The operator serves these series at `/metrics` of port 8472, and the controllers at that of port \
8482 ([addresses](operating.md#options)), to accounts that [may read \
them](dashboards.md#who-reads-metrics). Values of labels come from closed sets, but for the \
names of jobs, nodes, resources, levels and sources, whose number is bounded: a process stays \
below 20,000 series whatever users create.

Both have the series `process_…` of the Prometheus client too: memory, CPU time, open files. Node \
agents are not scraped: nothing listens on nodes for it. What they report is in the series of the \
controllers.

A histogram has the series `…_bucket`, `…_sum` and `…_count`.
"""


@dataclass(frozen=True, slots=True)
class Series:
    """One row of the page."""

    name: str
    type: str
    labels: tuple[str, ...]
    text: str


class _Registry(CollectorRegistry):
    """Remembers its collectors, whose labels are known before they have a value."""

    def __init__(self) -> None:
        super().__init__()
        self.collectors: list[Collector] = []

    def register(self, collector: Collector) -> None:
        super().register(collector)
        self.collectors.append(collector)


def operator() -> list[Series]:
    """The series of the operator."""
    return _series(
        partial(ProcessMetrics, deployment="", is_leader=bool),
        Metrics,
        CycleMetrics,
        AttemptMetrics,
        FleetMetrics,
        lambda registry: JobMetrics(registry, clock=_zero, reception_clock=_zero, wall_clock=_zero),
    )


def controllers() -> list[Series]:
    """The series of the controllers."""
    return _series(
        partial(ProcessMetrics, deployment="", is_leader=bool),
        ControllerMetrics,
        lambda registry: FabricMetrics(registry, cache=FabricCache(), healths=lambda: ()),
    )


def rendered() -> str:
    """The text of the page."""
    ours, theirs = operator(), controllers()
    shared = [each for each in ours if each in theirs]
    jobs = [each for each in ours if each.labels[: len(LABELS)] == LABELS]
    parts = {
        "Jobs": jobs,
        "Operator": [each for each in ours if each not in shared and each not in jobs],
        "Controllers": [each for each in theirs if each not in shared],
        "Both": shared,
    }
    return HEAD + "".join(_table(title, series) for title, series in parts.items())


def _zero() -> float:
    return 0.0


def _series(*constructors: Callable[[CollectorRegistry], object]) -> list[Series]:
    registry = _Registry()
    constructed = [construct(registry) for construct in constructors]
    assert constructed
    return [found for collector in registry.collectors for found in _of(collector)]


def _of(collector: Any) -> Iterator[Series]:
    """The labels are no part of the public API of prometheus_client."""
    if isinstance(collector, ProcessCollector):
        return
    own = collector._labelnames if isinstance(collector, MetricWrapperBase) else None
    for metric in collector.describe():
        labels = metric._labelnames if own is None else own
        suffix = "_total" if metric.type == "counter" else ""
        yield Series(metric.name + suffix, metric.type, tuple(labels), metric.documentation)


def _table(title: str, series: Sequence[Series]) -> str:
    head = ["", f"## {title}", "", "| series | type | labels | meaning |", "|---|---|---|---|"]
    return "\n".join([*head, *map(_row, series), ""])


def _row(series: Series) -> str:
    links = ((label, LINKS.get((series.name, label))) for label in series.labels)
    labels = ", ".join(f"[`{label}`]({link})" if link else f"`{label}`" for label, link in links)
    return f"| `{series.name}` | {series.type} | {labels or '-'} | {series.text} |"


if __name__ == "__main__":
    PAGE.write_text(rendered(), encoding="utf-8")
    print(PAGE, file=sys.stderr)
