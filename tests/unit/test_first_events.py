"""Series of counters begin before their first event, which otherwise has no increase."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics import MetricWrapperBase

from architecture import tree
from fixtures import constructed
from railwright_process import messages, metrics_server
from simulator.run import run

Labels = tuple[str, tuple[str, ...]]

SERVERS = ("railwright_process", "railwright_operator/heartbeats", "railwright_controllers/agents")
NOT_COUNTED = {"REQUEST_TIMEOUT"}
"""Of connections whose message never came whole."""


def counters(registry: CollectorRegistry) -> Iterator[MetricWrapperBase]:
    """The counters and histograms with labels."""
    for collector in set(registry._collector_to_names):
        if isinstance(collector, Counter | Histogram) and collector._labelnames:
            yield collector


def begun(registry: CollectorRegistry) -> set[Labels]:
    return {(each._name, tuple(values)) for each in counters(registry) for values in each._metrics}


@pytest.mark.parametrize("process", [constructed.leading_operator, constructed.leading_controllers])
def test_every_counter_with_labels_has_begun(process: Callable[[], CollectorRegistry]) -> None:
    registry = process()
    assert {each._name for each in counters(registry)} == {name for name, _ in begun(registry)}
    assert len(begun(registry)) > 300


def test_no_event_of_a_run_begins_a_series(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of these runs fail, nodes are lost, and the API server refuses requests."""
    used: set[Labels] = set()
    labels = MetricWrapperBase.labels

    def noted(self: MetricWrapperBase, *values: str) -> MetricWrapperBase:
        if isinstance(self, Counter | Histogram):
            used.add((self._name, tuple(map(str, values))))
        return labels(self, *values)

    initial = begun(constructed.leading_operator())
    monkeypatch.setattr(MetricWrapperBase, "labels", noted)
    for seed in (7, 11):
        run(seed, "all")
    assert used >= {("railwright_attempts_ended", ("NodeLost",))}
    assert used <= initial, used - initial


def test_every_status_of_a_server_has_begun() -> None:
    """The server for metrics counts its own."""
    named = {
        path: set(re.findall(r"HTTPStatus\.([A-Z_]+)", path.read_text()))
        for folder in SERVERS
        for path in (tree.ROOT / "operator" / folder).glob("*.py")
    }
    own = named.pop(Path(metrics_server.__file__))
    assert own == {status.name for status in metrics_server.STATUSES}
    of_messages = set[str]().union(*named.values())
    assert of_messages - NOT_COUNTED == {status.name for status in messages.STATUSES}
